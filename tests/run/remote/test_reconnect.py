"""A tether holds on: a lost connection is made again, for as long as patience lasts, and not where it is hopeless."""

from collections.abc import Iterator
from typing import cast

import pytest

from gatekeeper.run.remote import reconnect as tether_module
from gatekeeper.run.remote.reconnect import Tether
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import LinkError


class Wire:
    """A connection that only can be closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def lost(reason: str = "closed") -> LinkError:
    return LinkError(reason, f"far: {reason}", hint="try again")


class Line:
    """Makes connections in turn, or fails to."""

    def __init__(self, *then: LinkError | None) -> None:
        self._then: Iterator[LinkError | None] = iter(then)
        self.made: list[Wire] = []
        self.alone: list[bool] = []

    def __call__(self, *, alone: bool = False) -> Link:
        self.alone.append(alone)
        error = next(self._then, None)
        if error is not None:
            raise error
        self.made.append(Wire())
        return cast("Link", self.made[-1])


def test_what_was_lost_is_done_again() -> None:
    """
    Two connections break under the work; it is done over the third, said once, and every one is closed.
    """
    line, said, tries = Line(None, lost("timed_out"), None, None), [], []

    def work(link: Link) -> str:
        tries.append(link)
        if len(tries) < 3:
            raise lost()
        return "done"

    with Tether(line, patience_s=60) as tether:
        tether.say = lambda about, what: said.append((about, what))
        assert "done" == tether.hold(work)

    assert (3, 3) == (len(tries), len(line.made))
    assert all(wire.closed for wire in line.made)
    assert 1 == sum(what.startswith("lost: far: closed") for _, what in said[:2])


def test_the_first_connection_is_not_tried_twice() -> None:
    """
    What is wrong with the very first connection is wrong with the command, and said at once.
    """
    line = Line(lost("refused"))

    with pytest.raises(LinkError) as refused, Tether(line, patience_s=600) as tether:
        tether.hold(lambda _: None)

    assert ("refused", 0) == (refused.value.reason, len(line.made))
    assert "goes on there" not in refused.value.hint


@pytest.mark.parametrize("reason", ["host_key_changed", "no_python"])
def test_what_waiting_does_not_mend_is_not_waited_for(reason: str) -> None:
    """
    Another host key in the middle of a run ends the command at once; the run goes on there, and that is said.
    """
    line = Line(None, lost(reason))

    def work(_link: Link) -> None:
        raise lost()

    tether = Tether(line, patience_s=600)
    tether.goes_on = True
    with pytest.raises(LinkError) as refused, tether:
        tether.hold(work)

    assert reason == refused.value.reason
    assert "the run goes on there; the same command attaches to it" in refused.value.hint


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
    made = Clock()
    monkeypatch.setattr(tether_module, "time", made)
    return made


def test_patience_ends_but_begins_anew_with_every_word(clock: Clock) -> None:
    """
    Without a word patience is used up; each word that came begins it anew.
    """
    line, tries = Line(), []

    def work(_link: Link) -> str:
        tries.append(1)
        if len(tries) < 100:
            tether.alive()
            raise lost()
        return "done"

    with Tether(line, patience_s=5) as tether, pytest.raises(LinkError):
        tether.hold(lambda _: (_ for _ in ()).throw(lost()))
    given_up = clock.now
    with Tether(line, patience_s=5) as tether:
        assert "done" == tether.hold(work)

    assert 5 == pytest.approx(given_up)


def test_patience_is_for_the_time_without_a_connection(clock: Clock) -> None:
    """
    A connection that worked for an hour and breaks is made again, though nothing was said over it for longer than
    patience lasts; one that stood and said nothing is not.
    """

    def work(reason: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            clock.sleep(3600)
            raise lost(reason)
        return "done"

    tries: list[int] = []
    with Tether(Line(), patience_s=600) as tether:
        assert "done" == tether.hold(lambda _: work("closed"))
    tries.clear()
    with Tether(Line(), patience_s=600) as tether, pytest.raises(LinkError, match="silent"):
        tether.hold(lambda _: work("silent"))

    assert 1 == len(tries)


def test_a_connection_that_breaks_at_once_again_and_again_is_given_up(clock: Clock) -> None:
    """
    Where each new connection breaks under the work, patience counts from the first break.
    """
    with Tether(Line(), patience_s=600) as tether, pytest.raises(LinkError):
        tether.hold(lambda _: (_ for _ in ()).throw(lost()))

    assert 600 == pytest.approx(clock.now)


def test_after_silence_no_connection_is_shared() -> None:
    """
    A connection that other commands share may be the one that hangs: after silence the next is made alone, and after
    any other trouble as the user has it.
    """
    line, then = Line(), iter([lost("silent"), lost("closed"), None])

    def work(_link: Link) -> None:
        if (error := next(then)) is not None:
            raise error

    with Tether(line, patience_s=60) as tether:
        tether.hold(work)

    assert [False, True, False] == line.alone
