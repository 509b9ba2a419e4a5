"""The page of a run under way: its own process, this machine alone, and no browser that harms the run."""

import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.system.small_server import MOST
from gatekeeper.run.live_page import LivePage, serve_page
from tests.builders.small_run import restored, small, stored, unfinished
from tests.builders.waiting import until

AT = "2026-01-01T00:00:00.000000Z"


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has measured everything and not ended."""
    project = small(tmp_path_factory.mktemp("live"))
    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)
    restored(project.path / "run", unfinished(stored(project.path / "run")))
    return project.path / "run"


@pytest.fixture(scope="module")
def address(under_way: Path) -> Iterator[str]:
    with serve_page(0, niceness=0) as (tell, address):
        tell(Event(AT, EventKind.BEGIN, {"run": str(under_way)}))
        yield urlsplit(address).netloc


def fetched(address: str, path: str = "/", **headers: str) -> tuple[int, str]:
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.slow
def test_the_page_of_a_run_under_way_is_served(address: str) -> None:
    """The page says how far the run is, has what was measured, and asks its server alone for the next."""
    until(lambda: "Running:" in fetched(address)[1])

    page = fetched(address)[1]

    assert "connect-src &#x27;self&#x27;" in page
    assert all(title in page for title in ("Workloads", "so far", "The soak over time"))
    assert "Next:" not in page
    assert int(fetched(address, "/version")[1]) >= 1


@pytest.mark.slow
def test_the_first_page_waits_for_no_browser(under_way: Path) -> None:
    """It is drawn as soon as there is a run, before the priority falls so far that a busy machine never draws it."""
    page = LivePage()
    page.run = under_way

    page.render_first()

    assert (1, True) == (page.version, b"Running:" in page.html)


@pytest.mark.parametrize("path", ["/manifest.json", "/../manifest.json", "//etc/passwd", "/soak-1.jsonl", "/version/"])
def test_no_file_is_served(address: str, path: str) -> None:
    """There is one page and its version: no path leads to a file."""
    assert 404 == fetched(address, path)[0]


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("localhost:80@evil.example", 403),
        ("", 403),
    ],
)
def test_a_page_of_somebody_else_gets_nothing(address: str, host: str, code: int) -> None:
    """A name that leads to this machine from elsewhere (DNS rebinding) is refused by its Host header."""
    assert code == fetched(address, "/version", Host=host)[0]


def test_only_reading_is_possible(address: str) -> None:
    """Other methods than GET are refused."""
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request("POST", "/", b"x")
        assert 501 == connection.getresponse().status


@pytest.mark.slow
def test_browsers_that_say_nothing_are_limited(address: str) -> None:
    """Connections beyond the limit are closed at once; when the silent ones have gone, the page is there again."""
    name, _, port = address.partition(":")
    silent = [socket.create_connection((name, int(port))) for _ in range(MOST + 4)]
    for connection in silent:
        connection.close()

    until(lambda: 200 == answered(address))


def answered(address: str) -> int | None:
    try:
        return fetched(address, "/version")[0]
    except OSError:
        return None


def test_a_port_in_use_is_said_before_anything_starts() -> None:
    """The error names the port and offers another."""
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        port = occupant.getsockname()[1]

        with pytest.raises(InputError, match=f"--serve {port}") as error, serve_page(port):
            pytest.fail("it must not start")

    assert "--serve 0" in str(error.value.hint)


@pytest.mark.slow
def test_the_end_of_the_run_ends_the_server(under_way: Path) -> None:
    """A browser that still asks gets the report; then the server ends."""
    report, pages = under_way / "report.html", [""]
    with serve_page(0, niceness=0) as (tell, address):
        place = urlsplit(address).netloc
        tell(Event(AT, EventKind.BEGIN, {"run": str(under_way)}))
        until(lambda: "Running:" in fetched(place)[1])
        report.write_text("the report")
        asking = threading.Thread(target=_ask_until_gone, args=(place, pages))
        asking.start()
    asking.join(60)
    report.unlink()

    assert "the report" == pages[-1]
    assert answered(place) is None


def _ask_until_gone(address: str, pages: list[str]) -> None:
    while answered(address) is not None:
        with suppress(OSError):
            pages.append(fetched(address)[1])
        time.sleep(0.2)


@pytest.mark.slow
def test_a_dead_server_harms_nothing(under_way: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the page's process has died, telling it about the run raises nothing."""
    monkeypatch.setattr(sys, "executable", shutil.which("true"))

    with serve_page(0, niceness=0) as (tell, _):
        for _ in range(20):
            tell(Event(AT, EventKind.BEGIN, {"run": str(under_way)}))
            time.sleep(0.05)
