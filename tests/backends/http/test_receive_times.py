"""When the kernel received what a stream reads: its stamps over real sockets, and what holds where there are none."""

import itertools
import socket
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.http import receive_times
from gatekeeper.backends.http.chat_answer import read_answer
from gatekeeper.backends.http.receive_times import ReceiveTimes, received_times
from gatekeeper.backends.http.stream import RawResponse, post
from tests.backends.fake_server import HEAD, FakeServer
from tests.backends.http.test_response import STREAM, TEXT

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel stamps TCP segments on Linux alone")


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server, _ = listener.accept()
        with server:
            yield client, server


def response_of(url: str) -> RawResponse:
    return post(url, b"{}", headers={}, timeout=5)


@on_linux
def test_a_late_read_has_the_time_of_receiving(connection: tuple[socket.socket, socket.socket]) -> None:
    """What waited to be read has the time at which the kernel received it, and how long it waited is known."""
    client, server = connection
    times, room = ReceiveTimes(client), memoryview(bytearray(64))
    since, read_ns = time.monotonic_ns(), []
    for _ in range(2):  # the kernel may still be starting to stamp at the first
        sent = time.monotonic_ns()
        server.sendall(b"token")
        time.sleep(0.05)
        begun = time.monotonic_ns()
        assert times.receive_into(room) == len(b"token")
        read_ns.append(time.monotonic_ns())

    received, delay = times.of_reads(read_ns, since)

    assert sent <= received[-1] < begun
    assert delay == max(read_ns[number] - received[number] for number in range(2))


def test_a_clock_that_was_set_leaves_the_times_of_the_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the wall clock is set within an answer, its arrivals have the times at which they were read."""
    for step in (50_000_000, -50_000_000):
        differences = itertools.count(receive_times.monotonic_minus_wall(), step)
        monkeypatch.setattr(receive_times, "monotonic_minus_wall", lambda values=differences: next(values))
        with FakeServer([HEAD, STREAM]) as server:
            raw = response_of(server.url)
        monkeypatch.undo()

        assert raw.read_delay_ns is None
        assert all(before <= after for before, after in pairwise([raw.sent_ns, *raw.times, raw.ended_ns]))


@pytest.mark.parametrize("kept_from", ["system", "option"])
def test_elsewhere_answers_have_the_times_of_the_reads(monkeypatch: pytest.MonkeyPatch, kept_from: str) -> None:
    """On macOS, and where the kernel refuses the option, an answer is read as well, with the times of the reads."""
    if kept_from == "system":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setattr(receive_times, "_SO_TIMESTAMPNS", 9_999)
    with FakeServer([HEAD, STREAM]) as server:
        answer, _ = read_answer(response_of(server.url))

    assert (TEXT, None) == (answer.text, answer.read_delay_ns)


INSTANTS = st.integers(1, 10**12)


@given(st.lists(st.tuples(st.none() | INSTANTS, INSTANTS), min_size=1), INSTANTS, st.integers(-(10**6), 10**6))
def test_times_stay_between_the_request_and_the_reads(
    reads: list[tuple[int | None, int]], since: int, difference: int
) -> None:
    """Whatever the stamps are, times are in order between request and read; a stamp that fits counts."""
    read_ns = sorted(since + waited for _, waited in reads)
    stamps = [stamp or 0 for stamp, _ in reads]

    received = received_times(stamps, difference, read_ns, since)

    assert sorted(received) == list(received)
    assert all(since <= at <= read for at, read in zip(received, read_ns, strict=True))
    if stamps[0] and since <= stamps[0] + difference <= read_ns[0]:
        assert stamps[0] + difference == received[0]
