"""Servers that never end, over real sockets: every request is over at its limit of time or of bytes."""

import errno
import os
import socket
import time
from itertools import count

import pytest

from gatekeeper.backends.answer_limits import AnswerLimits
from gatekeeper.backends.http import control_requests
from gatekeeper.backends.http.chat_answer import read_answer
from gatekeeper.backends.http.stream import post
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.records import Answer
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system.own_limits import OwnLimitError
from tests.backends.fake_server import HEAD, Act, FakeServer, Forever, Script
from tests.backends.http.test_response import chunk
from tests.builders.descriptors import few_descriptors
from tests.builders.golden_words import says

TOKEN = chunk({"content": "a"})
NEVER_ENDING: dict[str, Script] = {
    "silence": [Act.HANG],
    "silence after the head": [HEAD, Act.HANG],
    "a token now and then": [HEAD, Forever(TOKEN, 0.03)],
    "one byte a packet": [HEAD, b'data: {"choices": [{"delta": {"content": "', Forever(b"a", 0.01)],
    "headers": [HEAD.removesuffix(b"\r\n"), Forever(b"X-More: 1\r\n", 0.02)],
    "interim heads": [Forever(b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.02)],
    "comments now and then": [HEAD, Forever(b": ping\n\n", 0.02)],
    "empty HTTP chunks": [
        HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Forever(b"1\r\n\n\r\n", 0.02),
    ],
}


@pytest.mark.parametrize("name", NEVER_ENDING)
def test_an_answer_that_never_ends_is_over_at_its_deadline(name: str) -> None:
    """However a server keeps a request alive, its answer is a fault at the deadline, which no piece prolongs."""
    with FakeServer(NEVER_ENDING[name]) as server:
        raw = post(server.url, b"{}", headers={}, timeout=0.2, deadline=0.3)
    answer, _ = read_answer(raw)

    assert answer.fault is not None
    assert answer.fault.startswith("timeout: ")
    assert 0.19 < (answer.ended_ns - answer.sent_ns) / 1e9 < 20  # under load it is read late, but it is read


def test_comments_without_a_pause_are_silence() -> None:
    """A server that sends comments as fast as it can never lets the socket time out, and is still silent."""
    with FakeServer([HEAD, Forever(b": ping\n\n" * 20, 1e-4)]) as server:
        raw = post(server.url, b"{}", headers={}, timeout=0.2, deadline=60)

    says("backends", "comments without a pause are silence", raw.broken)


@pytest.mark.parametrize("piece", [TOKEN, b": ping\n\n"], ids=["a token", "a comment"])
def test_a_process_that_was_stopped_blames_nobody(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ten minutes pass in a wait of a second, this process was stopped, as by Ctrl-Z: the answer goes on."""
    real = time.monotonic_ns
    script: Script = [HEAD, 0.2, piece, 0.2, piece, 0.2, chunk({"content": "b"}, "stop"), b"data: [DONE]\n\n"]
    calls = count()
    with FakeServer(script) as server:
        # The request and the head come before the stop, and the first piece after it.
        monkeypatch.setattr(time, "monotonic_ns", lambda: real() + (600 * 10**9 if next(calls) >= 2 else 0))
        raw = post(server.url, b"{}", headers={}, timeout=1, deadline=2)
        monkeypatch.undo()

    assert raw.broken is None


def test_a_server_that_does_not_read_is_a_fault() -> None:
    """A request that the server never takes from the socket is over at the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        raw = post(url, b" " * (32 << 20), headers={}, timeout=0.2, deadline=0.3)

    assert raw.broken is not None
    assert raw.broken.startswith("timeout")


def test_a_handshake_that_never_ends_is_no_connection() -> None:
    """A server that accepts the connection and never answers the TLS handshake is a fault within the time limit."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        raw = post(f"https://127.0.0.1:{listener.getsockname()[1]}/", b"{}", headers={}, timeout=0.2)

    assert raw.broken is not None
    assert raw.broken.startswith("no connection")


@pytest.mark.parametrize("name", [*NEVER_ENDING, "text without end"])
def test_a_control_request_is_over_at_its_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health, models and counters of a server that never ends its response are absent, soon and in bounded memory."""
    monkeypatch.setattr(control_requests, "LIMIT_S", 0.2)
    monkeypatch.setattr(control_requests, "MOST_BYTES", 1 << 16)
    endless: dict[str, Script] = {"text without end": [HEAD, Forever(b"a_total 1\n" * 100)]}
    script = {**NEVER_ENDING, **endless}[name]

    with FakeServer(script) as server:
        replies = control_requests.fetch(server.url, {}), control_requests.status(server.url, {})

    assert (None, None) == replies


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param([HEAD.replace(b"event-stream", b"plain; charset=hex"), b"a_total 1"], "a_total 1", id="charset"),
        pytest.param([HEAD, b"\xff 1"], "\N{REPLACEMENT CHARACTER} 1", id="not-utf-8"),
        pytest.param([HEAD.replace(b"Connection: close", b"Content-Length: 9"), b"half"], None, id="cut-off"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n", Act.HANG], None, id="204"),
        pytest.param([b"HTTP/1.1 302 Found\r\nLocation: /else\r\nContent-Length: 0\r\n\r\n", Act.HANG], None, id="302"),
        pytest.param([Act.RESET], None, id="reset"),
        pytest.param([b"\x00" * 100], None, id="not-http"),
    ],
)
def test_a_control_response_is_text_or_absent(script: Script, expected: str | None) -> None:
    """Whatever a server declares, its counters are read as text; what is not a whole HTTP response is absent."""
    with FakeServer(script) as server:
        assert expected == control_requests.fetch(server.url, {})


@pytest.mark.parametrize("url", ["http://127.0.0.1:port/", "http://127.0.0.1:0/", "http://[::1/", "http://h/a b"])
def test_an_impossible_url_is_an_input_error(url: str) -> None:
    """A url that cannot be requested is an error of the input, which does not repeat it: it may hold a key."""
    with pytest.raises(InputError, match="the url of a server") as refused:
        post(url, b"{}", headers={}, timeout=1)

    assert url not in f"{refused.value} {refused.value.hint}"


def answer(tokens: int, first_s: float, each_s: float) -> Answer:
    """Return a complete answer of *tokens*, the first after *first_s*, the others *each_s* apart."""
    times = [round((first_s + each_s * number) * 1e9) for number in range(tokens)]
    return Answer(0, times[-1], arrivals=tuple(Arrival(at, 1) for at in times), output_tokens=tokens)


def test_the_slowest_answer_sets_the_deadline() -> None:
    """Much time before any answer, then ten times the slowest; faults do not count, and the SLO's deadline wins."""
    subject = Subject(backend="openai", target="t", timeout=2.0)
    limits = AnswerLimits(subject)
    unseen = limits.seconds(100)
    limits.note(answer(1, 0.5, 0.0))
    after_ping = limits.seconds(100)
    limits.note(answer(11, 0.1, 0.02))
    limits.note(answer(11, 0.1, 0.01))
    limits.note(Answer(0, 10**12, arrivals=(Arrival(1, 1), Arrival(10**12, 1)), fault="cut off"))

    assert (1002, 502) == (unseen, after_ping)
    assert pytest.approx(2 + 100 * 0.2) == limits.seconds(100)
    assert pytest.approx(2 + 100 * 0.2 * 4) == limits.seconds(100, streams=20)
    assert 7 == AnswerLimits(subject.model_copy(update={"deadline": 7.0})).seconds(10**9)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_too_few_descriptors_are_our_limit(host: str) -> None:
    """A connection without a descriptor is an error of ours with what to raise, also in the look-up of a name."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://{host}:{listener.getsockname()[1]}/"
        with few_descriptors(0), pytest.raises(OwnLimitError, match="may not open more files") as reached:
            post(url, b"{}", headers={}, timeout=1)

    assert ExitCode.INTERNAL_ERROR == reached.value.exit_code
    assert "ulimit -n" in reached.value.hint
    assert "--resume" in reached.value.hint


@pytest.mark.parametrize(
    "number", [errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENFILE], ids=["ports", "buffers", "files"]
)
def test_what_the_machine_lacks_is_our_limit(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No free port, no memory for a connection and no file in the system are errors of ours with what to change."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(socket.socket, "connect", refuse)  # what a kernel that has run out of it does
        with pytest.raises(OwnLimitError) as reached:
            post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", headers={}, timeout=1)

    assert ExitCode.INTERNAL_ERROR == reached.value.exit_code
    assert "close other programs" in reached.value.hint


def test_a_refused_connection_is_a_fault_of_the_server() -> None:
    """The name localhost has an address that this machine may lack; the last one counts, where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    before = time.monotonic_ns()

    raw = post(f"http://localhost:{port}/", b"{}", headers={}, timeout=1)

    assert raw.broken == f"no connection: {os.strerror(errno.ECONNREFUSED)}"
    assert raw.sent_ns >= before
