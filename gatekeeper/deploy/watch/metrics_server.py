"""The state of a watch at /metrics, where Prometheus fetches it: the text of the textfile, of this moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from gatekeeper.core.errors import InputError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LIMIT_S = 10.0
"""A connection on which nothing comes for this long is closed."""


@contextmanager
def served(host: str, port: int, text: Callable[[], str]) -> Iterator[str]:
    """Serve what *text* returns while the context is open; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        timeout = LIMIT_S

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            content = text().encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("content-type", CONTENT_TYPE)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing: a scrape is no event of the watch."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host}:{port}: {why}", hint="choose another --listen") from error
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
