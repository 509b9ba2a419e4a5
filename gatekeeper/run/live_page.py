"""The page of a run under way, on 127.0.0.1: served by a process of its own, which only reads the run directory.

Run as a program it is that process: `python -m gatekeeper.run.live_page FD NICENESS`. FD is a socket that listens
already; the run directory comes as a line on stdin, and the end of stdin is the end of the run. It renders only while a
browser fetches it, takes at most a tenth of one core, at the lowest priority, and so disturbs no measurement.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.system.run_directory import REPORT
from gatekeeper.core.system.small_server import MOST, SmallHandler, SmallServer

LEAST_S, DUTY = 5.0, 0.1
"""At least this long from one rendering to the next, and at most this share of a core."""
WATCHED_S = 30.0
"""A browser that sent no request for this long is gone."""
LOWEST = 19
"""The niceness of its process: a busy machine measures first, and the page may come a minute late, and says so."""
LINGER_S = 6.0
"""How long the finished page waits for a browser that is still there; it sends a request every two seconds."""
WAITING = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>gatekeeper</title>'
    "<style>body { margin: 3rem auto; max-width: 40rem; padding: 0 1.5rem; font: 1rem/1.55 system-ui, sans-serif; "
    "color-scheme: light dark; } h1 { font-size: 1.45rem; }</style>"
    "<main><h1>The page of this run comes soon</h1><p>It is drawn when the models are checked and the run begins. This "
    "page reloads by itself.</p></main></html>"
)


@contextmanager
def serve_page(port: int, *, niceness: int = LOWEST) -> Iterator[tuple[Observer, str]]:
    """Serve the page while the context is open; yield the observer that tells where the run is, and the address."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            message = f"--serve {port}: cannot listen on 127.0.0.1:{port}: {error.strerror}"
            raise InputError(message, hint="choose another port, or --serve 0 for any that is free") from error
        listening.listen(MOST)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        command = [sys.executable, "-m", "gatekeeper.run.live_page", str(listening.fileno()), str(niceness)]
        server = subprocess.Popen(
            command,
            pass_fds=(listening.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the run
        )
    assert server.stdin is not None
    pipe = server.stdin

    def tell(event: Event) -> None:
        if event.kind == EventKind.BEGIN:
            with suppress(OSError):  # a page that cannot be served is no reason to end a run
                pipe.write(f"{Path(event.detail['run']).absolute()}\n".encode())
                pipe.flush()

    try:
        yield tell, address
        with suppress(OSError):
            pipe.close()
        with suppress(subprocess.TimeoutExpired):
            server.wait(2 * LINGER_S)
    finally:
        server.kill()
        server.wait()
        with suppress(OSError):
            pipe.close()


class LivePage:
    """The newest page of a run, rendered again while a browser fetches it and its records grow."""

    def __init__(self) -> None:
        self.html, self.version = WAITING.encode(), 0
        self.shown = 0
        """The version that was fetched last."""
        self.requested_s = -WATCHED_S
        """When it was requested last."""
        self.run: Path | None = None
        self.over = threading.Event()
        """The run has ended."""

    def is_watched(self) -> bool:
        """Return whether a browser fetches it."""
        return time.monotonic() - self.requested_s < WATCHED_S

    def render_first(self) -> None:
        """Render it once as soon as there is a run, whose first answers are then to come."""
        while self.run is None and not self.over.wait(0.1):
            pass
        self._show(self._render_page())

    def keep_rendered(self) -> None:
        """Render it again and again until the run has ended; then serve the report until every browser has it."""
        rendered_bytes, due = -1, 0.0
        while not self.over.wait(0.5):
            size = self._count_record_bytes()
            if self.is_watched() and size != rendered_bytes and time.monotonic() >= due:
                begun, spent = time.monotonic(), time.process_time()
                rendered_bytes = size
                self._show(self._render_page())
                due = begun + max(LEAST_S, (time.process_time() - spent) / DUTY)
        report = self.run / REPORT if self.run is not None else None
        if report is None or not report.is_file() or not self.is_watched():
            return
        self._show(report.read_bytes())
        ends = time.monotonic() + LINGER_S
        while self.shown != self.version and time.monotonic() < ends:
            time.sleep(0.1)

    def _show(self, html: bytes | None) -> None:
        if html is not None:
            self.html, self.version = html, self.version + 1

    def _count_record_bytes(self) -> int:
        """Return the bytes of the run's records; 0 before there is a run."""
        with suppress(OSError):
            return sum(file.stat().st_size for file in self.run.glob("*.jsonl")) if self.run is not None else 0
        return 0

    def _render_page(self) -> bytes | None:
        """Return the page; None where the records, which are being written, cannot be read at this moment."""
        from gatekeeper.report.html import page  # noqa: PLC0415
        from gatekeeper.run.stored.stored_page import load_live_page  # noqa: PLC0415

        if self.run is None:
            return None
        try:
            return page.render(load_live_page(self.run)).encode()
        except (GatekeeperError, OSError, ValueError, LookupError):
            return None


class PageHandler(SmallHandler):
    """Answers two paths: the page, and the number of its version; and a browser's question for an icon."""

    server: "PageServer"

    def get(self) -> None:
        """Answer with the page or its version; nothing else of the run directory can be fetched."""
        page = self.server.page
        if self.path == "/":
            page.requested_s = time.monotonic()
            version, html = page.version, page.html
            if self.reply(200, "text/html; charset=utf-8", html):
                page.shown = version
        elif self.path == "/version":
            page.requested_s = time.monotonic()
            self.reply(200, "text/plain", str(page.version).encode())
        elif self.path == "/favicon.ico":
            self.reply(204, "image/x-icon", b"")
        else:
            self.reply(404, "text/plain", b"there is only one page: /\n")


class PageServer(SmallServer):
    """Serves a page on a socket that listens already."""

    def __init__(self, listening: socket.socket, page: LivePage) -> None:
        super().__init__(listening.getsockname()[:2], PageHandler, bind_and_activate=False, names=HostNames())
        self.socket.close()
        self.socket, self.page = listening, page


def main(number: int, niceness: int) -> None:
    """Serve until stdin ends."""
    page = LivePage()
    server = PageServer(socket.socket(fileno=number), page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=_read_run, args=(page,), daemon=True).start()
    page.render_first()  # before the lowest priority, at which a busy machine would never draw it
    os.nice(niceness)
    page.keep_rendered()


def _read_run(page: LivePage) -> None:
    for line in sys.stdin:
        page.run = Path(line.rstrip("\n"))
    page.over.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
