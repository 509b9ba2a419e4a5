"""The state of a watch at /metrics, where Prometheus fetches it: the text of the textfile, of this moment."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread

from gatekeeper.core.errors import InputError
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.system.small_server import SmallHandler, SmallServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@contextmanager
def served(host: str, port: int, text: Callable[[], str], *, names: Iterable[str] = ()) -> Iterator[str]:
    """Serve what *text* returns while the context is open; yield the address, which may have further *names*."""

    class Handler(SmallHandler):
        def get(self) -> None:
            if self.path.partition("?")[0] == "/metrics":
                self.reply(200, CONTENT_TYPE, text().encode())
            else:
                self.reply(404, CONTENT_TYPE, b"see /metrics\n")

    try:
        server = SmallServer((host, port), Handler, names=HostNames((*names, host)))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host}:{port}: {why}", hint="choose another --listen") from error
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
