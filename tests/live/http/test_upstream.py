"""The connections to the servers, against a server that sends exactly what each test says."""

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.system.own_limits import OwnLimitError
from gatekeeper.live.http.upstream import MOST_AT_ONCE, MOST_HEAD, Exchange, Origin, Upstream, UpstreamError, origin_of

OK = b"HTTP/1.1 200 OK\r\n"


class Wire:
    """A server that answers each request with the next of its texts; `None` closes the connection instead."""

    def __init__(self, *answers: bytes | None, closes: bool = False, at_once: bool = False) -> None:
        self.answers, self.closes, self.at_once = list(answers), closes, at_once
        self.connections = 0
        self.requests: list[bytes] = []
        self.origin = Origin("127.0.0.1", 0, False, b"", has_key=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                body = b"" if self.at_once else await _body(head, reader)
                self.requests.append(head + body)
                if (answer := self.answers.pop(0)) is None:
                    break
                writer.write(answer)
                await writer.drain()
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    if b"chunked" in head:
        return await reader.readuntil(b"0\r\n\r\n")
    length = next((line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), b": 0")
    return await reader.readexactly(int(length.partition(b":")[2]))


@asynccontextmanager
async def wired(wire: Wire) -> AsyncIterator[Upstream]:
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.origin = origin_of(Address(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    connections = Upstream()
    try:
        yield connections
    finally:
        connections.close()
        server.close()


async def whole(connections: Upstream, wire: Wire, method: str = "POST", content: Any = b"{}", **headers: str) -> bytes:
    """Return the body of one answer."""
    exchange = await connections.request(wire.origin, method, "/v1", headers, content)
    try:
        return await rest(exchange)
    finally:
        connections.release(exchange)


async def rest(exchange: Exchange) -> bytes:
    pieces = []
    while piece := await exchange.read():
        pieces.append(piece)
    return b"".join(pieces)


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n"
SIZED = OK + b"Content-Length: 5\r\n\r\nabcde"


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (CHUNKED, 1),
        (SIZED, 1),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + SIZED, 1),
        (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nabcde", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", 2),
    ],
)
async def test_a_connection_is_used_again_if_the_server_keeps_it(answer: bytes, connections: int) -> None:
    """Each answer is read whole, interim ones are dropped; a server that closes its connection gets another one."""
    wire = Wire(answer, answer)
    async with wired(wire) as upstream:
        assert [await whole(upstream, wire) for _ in range(2)] == [b"abcde"] * 2
    assert wire.connections == connections


ENDLESS = 4 * MOST_HEAD
"""Bytes of a part of an answer that has no end."""


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (OK + b"Content-Length: 9\r\n\r\nabcde", "closed the connection"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "closed the connection"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n", "not HTTP"),
    ],
)
async def test_what_arrived_before_a_server_breaks_off_is_passed_on(answer: bytes, sentence: str) -> None:
    """Then the error says how it ended, and the connection is not used again."""
    wire = Wire(answer, SIZED, closes=True)
    async with wired(wire) as upstream:
        exchange = await upstream.request(wire.origin, "POST", "/v1", {}, b"")
        assert (await exchange.read()).startswith(b"abc")
        with pytest.raises(UpstreamError, match=sentence):
            await rest(exchange)
        upstream.release(exchange)
        assert await whole(upstream, wire) == b"abcde"
    assert wire.connections == 2


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "closed the connection"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", "not HTTP"),
        (OK + b"X-Long: " + b"x" * ENDLESS, "not HTTP"),
        (OK + b"x" * ENDLESS, "not HTTP"),
        (b"HTTP/1.1 200 " + b"x" * ENDLESS, "not HTTP"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * (ENDLESS // 25), "not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "not HTTP"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error(answer: bytes | None, sentence: str) -> None:
    """Nothing of it is passed on."""
    wire = Wire(answer)
    async with wired(wire) as upstream:
        with pytest.raises(UpstreamError, match=sentence):
            await upstream.request(wire.origin, "POST", "/v1", {}, b"")


@pytest.mark.parametrize("rest_of_it", [b"0\r\nX-Trailer: ", b"1;"], ids=["trailer", "chunk size"])
async def test_an_answer_whose_framing_has_no_end_breaks_off(rest_of_it: bytes) -> None:
    """After the body, too, no line may be endless: the parser would collect it."""
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    wire = Wire(head + rest_of_it + b"x" * ENDLESS)
    async with wired(wire) as upstream:
        with pytest.raises(UpstreamError, match="not HTTP"):
            await rest(await upstream.request(wire.origin, "POST", "/v1", {}, b""))


async def test_a_connection_whose_answer_was_not_read_is_not_used_again() -> None:
    """Its client has left: the rest of the answer belongs to nobody."""
    wire = Wire(SIZED, SIZED)
    async with wired(wire) as upstream:
        exchange = await upstream.request(wire.origin, "POST", "/v1", {}, b"")
        await asyncio.sleep(0.1)
        upstream.release(exchange)
        assert await whole(upstream, wire) == b"abcde"
    assert wire.connections == 2


async def test_a_second_answer_reaches_nobody() -> None:
    """What a server sends without being asked must not become the answer to the next request, of another client."""
    wire = Wire(SIZED + OK + b"Content-Length: 6\r\n\r\nSECRET", SIZED)
    async with wired(wire) as upstream:
        assert [await whole(upstream, wire) for _ in range(2)] == [b"abcde"] * 2
    assert wire.connections == 2


async def test_bytes_that_come_late_close_an_idle_connection() -> None:
    """They are not taken for the next answer."""
    wire = Wire(SIZED, SIZED)
    sent = asyncio.Event()
    answer = wire.serve

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def late() -> None:
            writer.write(SIZED)
            sent.set()

        if not wire.connections:
            asyncio.get_running_loop().call_later(0.05, late)
        await answer(reader, writer)

    wire.serve = serve  # type: ignore[method-assign]
    async with wired(wire) as upstream:
        assert await whole(upstream, wire) == b"abcde"
        await sent.wait()
        await asyncio.sleep(0.05)
        assert await whole(upstream, wire) == b"abcde"
    assert wire.connections == 2


async def test_an_answer_to_head_has_no_body() -> None:
    """Its length is that of the answer to GET."""
    wire = Wire(OK + b"Content-Length: 5\r\n\r\n", SIZED)
    async with wired(wire) as upstream:
        assert await whole(upstream, wire, "HEAD", b"") == b""
        assert await whole(upstream, wire, "GET", b"") == b"abcde"


async def test_a_client_that_reads_slowly_stops_the_server() -> None:
    """An answer that nobody reads takes little memory here."""
    size = 64 << 20
    wire = Wire(OK + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
    async with wired(wire) as upstream:
        exchange = await upstream.request(wire.origin, "POST", "/v1", {}, b"")
        await asyncio.sleep(0.2)
        first = len(await exchange.read())
        assert first < 4 << 20
        assert first + len(await rest(exchange)) == size


def test_of_an_answer_that_comes_fast_a_part_is_parsed_in_each_turn() -> None:
    """Of a megabyte in chunks of one byte no turn of the event loop parses more than a few parts; nothing is lost."""
    count = 1 << 18
    head = OK + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    by_turn = Counter[int]()

    async def run() -> None:
        wire = Wire(head + b"1\r\na\r\n" * count + b"0\r\n\r\n", closes=True)
        async with wired(wire) as upstream:
            exchange = await upstream.request(wire.origin, "POST", "/v1", {}, b"{}")
            turn = 0

            def take(piece: bytes) -> bool:
                by_turn[turn] += len(piece)
                return True

            exchange.take = take
            reading = asyncio.ensure_future(rest(exchange))
            while not reading.done():
                await asyncio.sleep(0)
                turn += 1
            by_turn[turn] += len(await reading)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())

    assert count == by_turn.total()
    # The chunk of each byte takes six; a turn may end one part and begin the next, and the first had no reader yet.
    assert 4 * MOST_AT_ONCE // 6 >= max(by_turn.values())


@pytest.mark.parametrize(
    ("address", "head"),
    [
        ("http://127.0.0.1:8080", b"Host: 127.0.0.1:8080\r\n"),
        ("https://example.org/v1", b"Host: example.org\r\n"),
        ("http://[::1]:80", b"Host: [::1]\r\n"),
        ("http://me:p%40ss@example.org", b"Host: example.org\r\nAuthorization: Basic bWU6cEBzcw==\r\n"),
    ],
)
def test_a_request_names_its_server(address: str, head: bytes) -> None:
    """With the port where it is not the usual one, and the key of an address that has one."""
    assert origin_of(Address(address)).head == head


@pytest.mark.parametrize(
    ("error", "own_limit"),
    [
        (OSError(errno.EMFILE, "too many"), True),
        (OSError(errno.ENFILE, "too many"), True),
        (OSError(errno.ENOBUFS, "no buffer space"), True),
        (OSError(errno.EADDRNOTAVAIL, "no address"), True),
        (OSError(f"Multiple exceptions: [Errno {errno.EADDRNOTAVAIL}] a, [Errno {errno.EMFILE}] b"), True),
        (OSError(f"Multiple exceptions: [Errno {errno.EADDRNOTAVAIL}] a, [Errno {errno.ECONNREFUSED}] b"), False),
        (OSError(errno.ECONNREFUSED, "refused"), False),
        (OSError(errno.ETIMEDOUT, "timed out"), False),
        (TimeoutError(), False),
    ],
)
async def test_a_limit_of_ours_is_no_fault_of_a_server(
    monkeypatch: pytest.MonkeyPatch, error: OSError, *, own_limit: bool
) -> None:
    """Without descriptors, ports or memory no server can be reached; a server that is down is at fault."""

    async def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    with pytest.raises(OwnLimitError if own_limit else UpstreamError):
        await Upstream().request(origin_of(Address("http://localhost:1")), "GET", "/", {}, b"")
