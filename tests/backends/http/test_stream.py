"""The measured stream over real sockets: bytes with their times, or a fault, whatever the server does."""

import gc
import os
import re
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.backends.http import stream
from gatekeeper.backends.http.chat_answer import ChatResponse, read_answer
from gatekeeper.backends.http.stream import post
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Answer
from tests.backends.fake_server import HEAD, Act, FakeServer
from tests.backends.http.test_response import CHUNKED, STREAM, TEXT, chunk, framed
from tests.builders.golden_words import says
from tests.builders.tls import self_signed

DONE = b"data: [DONE]\n\n"
SHORT = chunk({"content": "a"}, "stop") + DONE


def answer_to(*script: bytes | Act, timeout: float = 5.0) -> tuple[Answer, ChatResponse]:
    with FakeServer(script) as server:
        return read_answer(post(server.url, b"{}", headers={}, timeout=timeout))


LENGTH = HEAD.replace(b"Connection: close", b"Content-Length: %d" % len(SHORT.removesuffix(DONE)))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([HEAD, SHORT, Act.HANG], id="done"),
        pytest.param([HEAD, SHORT[:-9], SHORT[-9:], Act.HANG], id="done-in-two"),
        pytest.param([CHUNKED, framed(SHORT.removesuffix(DONE), [5, 60]), Act.HANG], id="last-chunk"),
        pytest.param([LENGTH, SHORT.removesuffix(DONE), Act.HANG], id="length"),
        pytest.param([HEAD, SHORT.removesuffix(DONE)], id="close"),
    ],
)
def test_the_end_is_where_the_server_says(script: list[bytes | Act]) -> None:
    """`[DONE]`, the last HTTP chunk, the announced length and the close of the connection end an answer."""
    answer, _ = answer_to(*script)

    assert (None, "a") == (answer.fault, answer.text)


def test_a_long_line_is_one_piece() -> None:
    """A line of ten megabytes is read to its end, like any other."""
    size = 10_000_000

    answer, _ = answer_to(HEAD, chunk({"content": "a" * size}, "stop"), DONE)

    assert (None, size, 1) == (answer.fault, len(answer.text), len(answer.arrivals))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([HEAD, *([chunk({"content": "a" * 100_000})] * 200)], id="tokens"),
        pytest.param([HEAD, b"data: " + b"a" * (1 << 21)], id="a-line"),
        pytest.param([HEAD, b": ping\n\n" * (1 << 18)], id="comments"),
    ],
)
def test_an_endless_answer_ends(script: list[bytes]) -> None:
    """An endless answer is read up to its limit of bytes, and only its beginning is kept."""
    with FakeServer(script) as server:
        raw = post(server.url, b"{}", headers={}, timeout=5, most_bytes=1 << 20)
    answer, _ = read_answer(raw)

    says("backends", "an endless answer ends", answer.fault)
    assert len(raw.data) <= 1 << 16


PLAIN_ERROR = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n\r\n"
WRONG = [
    pytest.param([HEAD], "^empty answer", id="200-without-body"),
    pytest.param([HEAD, chunk({"content": "a"})], "^cut off", id="no-done-no-finish"),
    pytest.param([HEAD, chunk({"content": "a"}) + b'data: {"choices": [{"del'], "^garbled stream", id="half-json"),
    pytest.param([HEAD, b'data: {"a": ' + b"[" * 100_000 + b"\n\n"], "^garbled stream", id="deep-json"),
    pytest.param([CHUNKED, framed(SHORT, [40])[:60]], "^garbled stream", id="half-an-http-chunk"),
    pytest.param([LENGTH.replace(b"Length: ", b"Length: 9"), SHORT[:-14]], "^cut off", id="shorter-than-announced"),
    pytest.param([HEAD, b"<html><body>Bad gateway</body></html>"], "^not an event stream: <html>", id="html"),
    pytest.param([HEAD, chunk({"content": "a"}), Act.RESET], "^connection broken", id="reset"),
    pytest.param([Act.RESET], "^connection broken", id="reset-at-once"),
    pytest.param([], "^cut off", id="closed-at-once"),
    pytest.param([LENGTH.replace(b"Length: ", b"Length: " + b"9" * 5000), SHORT[:20]], "^garbled", id="absurd-length"),
    pytest.param([b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000, SHORT], "^endless: its headers", id="endless-head"),
    pytest.param([b"SSH-2.0-OpenSSH_9.6\r\n"], "^not HTTP: SSH", id="another-protocol"),
    pytest.param([PLAIN_ERROR % b"404 Not Found", b'{"error": "no such model"}'], "^HTTP 404: .*no such", id="404"),
    pytest.param([PLAIN_ERROR % b"500 Oops", b"<html>sorry</html>"], "^HTTP 500: <html>sorry", id="500"),
    pytest.param([PLAIN_ERROR % b"503 Later", b"", Act.RESET], r"^HTTP 503: .*\(connection broken", id="503-reset"),
    pytest.param([HEAD, b'data: {"error": {"message": "out of memory"}}\n\n', DONE], "out of memory", id="error"),
    pytest.param([HEAD, b"data: 17\n\n", DONE], "^garbled stream", id="json-of-another-kind"),
    pytest.param([HEAD, b'data: {"choices": [17]}\n\n', DONE], "^garbled stream", id="choices-of-another-kind"),
]


@pytest.mark.parametrize(("script", "fault"), WRONG)
def test_what_is_wrong_is_a_fault(script: list[bytes | Act], fault: str) -> None:
    """An incomplete answer has a fault with the reason; it is never an exception."""
    answer, _ = answer_to(*script)

    assert answer.fault is not None
    assert re.search(fault, answer.fault)


@pytest.mark.parametrize("status", [b"429 Too Many Requests", b"503 Service Unavailable"])
@pytest.mark.parametrize("retry_after", ["30", "Fri, 20 Nov 2026 07:28:00 GMT", None])
def test_requests_are_never_retried(status: bytes, retry_after: str | None) -> None:
    """A busy server gets one request; the time to retry is in the fault."""
    head = PLAIN_ERROR % status
    if retry_after is not None:
        head = head.replace(b"\r\n\r\n", f"\r\nretry-after: {retry_after}\r\n\r\n".encode())

    with FakeServer([head, b'{"error": "busy"}'], [HEAD, SHORT]) as server:
        answer, _ = read_answer(post(server.url, b"{}", headers={}, timeout=5))
        count = len(server.requests)

    suffix = "" if retry_after is None else f", retry after {retry_after}"
    assert (1, f'HTTP {status[:3].decode()}{suffix}: {{"error": "busy"}}') == (count, answer.fault)


def test_redirects_are_not_followed() -> None:
    """A redirect is a fault that names its target, which gets no request: it would get the prompt and the key."""
    with FakeServer([HEAD, SHORT]) as target:
        redirect = PLAIN_ERROR % b"307 Temporary Redirect"
        redirect = redirect.replace(b"\r\n\r\n", b"\r\nLocation: %s\r\n\r\n" % target.url.encode())
        with FakeServer([redirect]) as server:
            answer, _ = read_answer(post(server.url, b"{}", headers={}, timeout=5))
        count = len(target.requests)

    assert 0 == count
    says("backends", "redirects are not followed", answer.fault, url=target.url)


def test_a_server_that_dies_on_the_second_request() -> None:
    """The first answer is kept, the second is broken, and the third has no connection."""
    with FakeServer([HEAD, SHORT], [HEAD, chunk({"content": "a"}), Act.DIE]) as server:
        faults = [read_answer(post(server.url, b"{}", headers={}, timeout=5))[0].fault or "" for _ in range(3)]

    assert ["", "connection broken", "no connection"] == [fault.split(":")[0] for fault in faults]


def test_no_server_is_a_fault() -> None:
    """Where nothing listens, the fault says so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    answer, _ = read_answer(post(f"http://127.0.0.1:{port}/", b"{}", headers={}, timeout=1))

    assert answer.fault is not None
    assert answer.fault.startswith("no connection")


def test_the_process_is_quiet_only_while_a_stream_is_read() -> None:
    """Threads hand over soon and the collector waits while a stream is read; then all is as it was."""
    before = sys.getswitchinterval()
    states = []

    with stream.quiet:
        with stream.quiet:
            states.append((sys.getswitchinterval() < before, gc.isenabled()))
        states.append((sys.getswitchinterval() < before, gc.isenabled()))

    assert [(True, False)] * 2 == states
    assert (before, True) == (sys.getswitchinterval(), gc.isenabled())


KEY = "sk-0123456789abcdef"


def test_a_key_is_sent_and_never_kept() -> None:
    """The key reaches the server and no record, not even where the server quotes it in an error."""
    refusal = [PLAIN_ERROR % b"401 Unauthorized", b'{"error": "Incorrect API key provided: %s"}' % KEY.encode()]

    with FakeServer(refusal) as server:
        raw = post(server.url, b"{}", headers={"Authorization": f"Bearer {KEY}"}, timeout=5)
        request = server.requests[0]
    answer, chat = read_answer(raw)

    assert f"\r\nAuthorization: Bearer {KEY}\r\n".encode() in request
    assert answer.fault is not None
    assert (True, True) == (answer.fault.startswith("HTTP 401: "), "*" * len(KEY) in answer.fault)
    assert KEY not in repr((raw, answer, chat))


@pytest.mark.parametrize("key", [f"{KEY}\r\nX-Forged: 1", f"{KEY}…"])
def test_a_key_that_cannot_be_sent_is_not_quoted(key: str) -> None:
    """A key with a line break or a non-ASCII character is an input error that names only the header."""
    with pytest.raises(InputError) as complaint:
        post("http://127.0.0.1:9/", b"{}", headers={"Authorization": f"Bearer {key}"}, timeout=1)
    says("backends", "a key that cannot be sent is not quoted", complaint.value.message)

    assert KEY not in f"{complaint.value} {complaint.value.hint}"


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[Path]:
    """Return a certificate for 127.0.0.1 that signed itself, with its key in the same file."""
    path = self_signed(tmp_path)
    stream._trust.cache_clear()
    yield path
    stream._trust.cache_clear()


@pytest.mark.parametrize("trusted", [True, False])
def test_certificates_are_verified(certificate: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream over TLS is read where the machine trusts the server, with the times of its reads."""
    if trusted:
        monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, os.fspath(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    with FakeServer([HEAD, STREAM], secure=context) as server:
        answer, _ = read_answer(post(server.url, b"{}", headers={}, timeout=5))
        count = len(server.requests)

    assert (int(trusted), TEXT if trusted else "", None) == (count, answer.text, answer.read_delay_ns)
    assert trusted == (answer.fault is None)
    assert trusted or "CERTIFICATE_VERIFY_FAILED" in str(answer.fault)
