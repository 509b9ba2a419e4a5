"""A small HTTP server for pages and metrics of our own: who may ask, how many at a time, and for how long."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any

from gatekeeper.core.system.host_names import HostNames

MOST = 16
"""Connections at a time; further ones are closed."""
LIMIT_S = 10.0
"""A connection on which nothing comes for this long is closed."""


class SmallServer(ThreadingHTTPServer):
    """Answers each connection in a thread, up to a limit."""

    daemon_threads = True
    names: HostNames
    """Under which it may be addressed."""

    def __init__(self, *arguments: Any, names: HostNames, **options: Any) -> None:
        self.names, self._free = names, threading.Semaphore(MOST)
        super().__init__(*arguments, **options)

    def process_request(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Answer in a thread, unless there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Answer, then let another connection in."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing: a connection that breaks harms only its client."""


class SmallHandler(BaseHTTPRequestHandler):
    """Answers GET alone, for clients that name this machine."""

    server: SmallServer
    timeout = LIMIT_S
    server_version, sys_version = "gatekeeper", ""

    def do_GET(self) -> None:
        """Answer, unless the request is for another name (DNS rebinding)."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) == 1 and self.server.names.has(hosts[0].strip()):
            self.get()
        else:
            self.reply(403, "text/plain", b"not a name of this machine (--host-name adds one to a watch)\n")

    def get(self) -> None:
        """Answer a request that may be answered."""
        raise NotImplementedError

    def reply(self, code: int, kind: str, content: bytes) -> bool:
        """Send an answer; return whether the client has taken it."""
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        try:
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # a client that left
            self.close_connection = True
            return False
        return True

    def log_message(self, *_: object) -> None:
        """Log nothing."""
