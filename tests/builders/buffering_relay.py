"""A relay before a real server that holds back what it streams: run it as `python buffering_relay.py PORT COMMAND…`.

The command is started with `{inner}` replaced by a free port. What it streams goes on in pieces, each 100 ms.
"""

import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from gatekeeper.backends.http import control_requests
from gatekeeper.backends.ports import HOST, free_port

HELD_S = 0.1


def main(port: str, *command: str) -> None:
    inner = free_port()
    client = httpx2.Client(base_url=f"http://{HOST}:{inner}", timeout=60)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._relay(b"")

        def do_POST(self) -> None:
            self._relay(self.rfile.read(int(self.headers["Content-Length"])))

        def _relay(self, body: bytes) -> None:
            with client.stream(self.command, self.path, content=body) as answer:
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
                self.end_headers()
                buffered, since = b"", time.monotonic()
                for piece in answer.iter_bytes():
                    buffered += piece
                    if time.monotonic() - since > HELD_S:
                        self.wfile.write(buffered)
                        buffered, since = b"", time.monotonic()
                self.wfile.write(buffered)

        def log_message(self, *_: object) -> None:
            pass

    with subprocess.Popen([word.replace("{inner}", str(inner)) for word in command]) as process:
        try:
            while control_requests.status(f"http://{HOST}:{inner}/health", {}) != 200:
                time.sleep(0.1)
            ThreadingHTTPServer((HOST, int(port)), Handler).serve_forever()
        finally:
            process.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
