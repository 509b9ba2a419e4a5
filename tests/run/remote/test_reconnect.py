"""A lost connection is retried until --patience is used up, except where a retry cannot help."""

from collections.abc import Iterator
from typing import cast

import pytest

from gatekeeper.run.remote import reconnect
from gatekeeper.run.remote.reconnect import ReconnectingSession
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import SshError


class Wire:
    """A connection that only can be closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def lost(reason: str = "closed") -> SshError:
    return SshError(reason, f"mini: {reason}", hint="try again")


class Line:
    """Makes connections in turn, or fails to."""

    def __init__(self, *then: SshError | None) -> None:
        self._then: Iterator[SshError | None] = iter(then)
        self.made: list[Wire] = []
        self.alone: list[bool] = []

    def __call__(self, *, alone: bool = False) -> Connection:
        self.alone.append(alone)
        error = next(self._then, None)
        if error is not None:
            raise error
        self.made.append(Wire())
        return cast("Connection", self.made[-1])


def test_an_interrupted_action_is_repeated() -> None:
    """
    Two connections break during an action; the third completes it, the loss is reported once, and every one is closed.
    """
    line, messages, tries = Line(None, lost("timed_out"), None, None), [], []

    def work(connection: Connection) -> str:
        tries.append(connection)
        if len(tries) < 3:
            raise lost()
        return "done"

    with ReconnectingSession(line, patience_s=60) as session:
        session.say = lambda about, message: messages.append((about, message))
        assert "done" == session.do(work)

    assert (3, 3) == (len(tries), len(line.made))
    assert all(wire.closed for wire in line.made)
    assert 1 == sum(message.startswith("lost: mini: closed") for _, message in messages[:2])


def test_the_first_connection_is_not_tried_twice() -> None:
    """
    An error of the very first connection is an error of the command, and raised at once.
    """
    line = Line(lost("refused"))

    with pytest.raises(SshError) as refused, ReconnectingSession(line, patience_s=600) as session:
        session.do(lambda _: None)

    assert ("refused", 0) == (refused.value.reason, len(line.made))
    assert "the run continues" not in refused.value.hint


@pytest.mark.parametrize("reason", ["host_key_changed", "no_python"])
def test_an_error_that_a_retry_cannot_fix_is_raised_at_once(reason: str) -> None:
    """
    Another host key in the middle of a run ends the command at once; the hint says that the run continues.
    """
    line = Line(None, lost(reason))

    def work(_link: Connection) -> None:
        raise lost()

    session = ReconnectingSession(line, patience_s=600)
    session.run_started = True
    with pytest.raises(SshError) as refused, session:
        session.do(work)

    assert reason == refused.value.reason
    assert "the run continues" in refused.value.hint


class Clock:
    """A clock that stands still but for sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stepped_clock = Clock()
    monkeypatch.setattr(reconnect, "time", stepped_clock)
    return stepped_clock


def test_patience_starts_again_with_progress(clock: Clock) -> None:
    """
    Without progress --patience is used up; each progress starts it again.
    """
    line, tries = Line(), []

    def work(_link: Connection) -> str:
        tries.append(1)
        if len(tries) < 100:
            session.note_progress()
            raise lost()
        return "done"

    with ReconnectingSession(line, patience_s=5) as session, pytest.raises(SshError):
        session.do(lambda _: (_ for _ in ()).throw(lost()))
    given_up = clock.now
    with ReconnectingSession(line, patience_s=5) as session:
        assert "done" == session.do(work)

    assert 5 == pytest.approx(given_up)


def test_patience_counts_the_time_without_a_connection(clock: Clock) -> None:
    """
    A connection that worked for an hour and breaks is made again, though it made no progress for longer than
    --patience; one that was silent is not.
    """

    def work(reason: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            clock.sleep(3600)
            raise lost(reason)
        return "done"

    tries: list[int] = []
    with ReconnectingSession(Line(), patience_s=600) as session:
        assert "done" == session.do(lambda _: work("closed"))
    tries.clear()
    with ReconnectingSession(Line(), patience_s=600) as session, pytest.raises(SshError, match="silent"):
        session.do(lambda _: work("silent"))

    assert 1 == len(tries)


def test_a_connection_that_breaks_at_once_again_and_again_is_given_up(clock: Clock) -> None:
    """
    Where each new connection breaks at once, --patience counts from the first break.
    """
    with ReconnectingSession(Line(), patience_s=600) as session, pytest.raises(SshError):
        session.do(lambda _: (_ for _ in ()).throw(lost()))

    assert 600 == pytest.approx(clock.now)


def test_after_silence_no_connection_is_shared() -> None:
    """
    A connection that other commands share may be the one that hangs: after silence the next shares none, and after any
    other error it is made as the user configured it.
    """
    line, then = Line(), iter([lost("silent"), lost("closed"), None])

    def work(_link: Connection) -> None:
        if (error := next(then)) is not None:
            raise error

    with ReconnectingSession(line, patience_s=60) as session:
        session.do(work)

    assert [False, True, False] == line.alone
