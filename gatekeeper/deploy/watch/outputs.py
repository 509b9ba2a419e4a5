"""The outlet: where a session's words go: the journal, the overlay, commands, a collector, people and programs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.policy import Policy
from gatekeeper.deploy.watch import hooks, messages, route_state
from gatekeeper.deploy.watch.journal import Journal
from gatekeeper.deploy.watch.overlay import Lane, Lock, Overlay, Publisher
from gatekeeper.deploy.watch.route_state import Change


@dataclass(frozen=True, slots=True)
class Places:
    """Where a session's files lie, and what it watches."""

    overlay: Path
    journal: Path
    policy: Path
    url: str


@dataclass(frozen=True, slots=True)
class Ears:
    """Who is told."""

    say: Callable[[str, messages.Style], None]
    """People, on stderr."""
    write: Callable[[Mapping[str, Any]], None]
    """Programs, on stdout: what the journal gets, entry by entry."""


class Outlet:
    """Holds the overlay and the journal from entering to leaving; nothing it tells can stop the watch.

    Only the journal can: what can not be written down must not be done.
    """

    def __init__(
        self,
        places: Places,
        ears: Ears,
        clock: Clock,
        *,
        state: Callable[[], Mapping[str, Any]],
        export: Callable[[Change], str | None],
    ) -> None:
        """Write with *clock*'s time; *export* tells a collector of a change, and returns why that failed."""
        self._places, self._ears, self._clock, self._state, self._export = places, ears, clock, state, export
        self._stack = ExitStack()
        self._overlay: Overlay | None = None
        self._failed: str | None = None

    def __enter__(self) -> Self:
        """Take both locks and open the journal."""
        places, wall = self._places, self._clock.wall
        owner = {"since": stamp(wall()), "policy": str(places.policy), "url": places.url}
        with ExitStack() as stack:
            self._publisher = stack.enter_context(Publisher(places.overlay, owner=owner))
            stack.enter_context(Lock(places.journal, owner=owner, option="--journal"))
            self._journal = stack.enter_context(Journal(places.journal, wall=wall, state=self._state))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give both back."""
        self._stack.close()

    def say(self, text: str, style: messages.Style | None = None) -> None:
        """Tell people."""
        self._ears.say(text, style or {})

    def note(self, kind: str, **detail: Any) -> None:
        """Write an entry and tell programs."""
        self._ears.write(self._journal.write(kind, **detail))

    def publish(self, policy: Policy, policy_sha256: str, lanes: Sequence[Lane], seconds: float) -> None:
        """Put what is true now in place, to be believed for *seconds*, and speculation no longer than the policy."""
        now = self._clock.wall()
        until = now + timedelta(seconds=seconds)
        if any(lane.speculation for lane in lanes):
            until = min(until, policy.expires)
        self._put(Overlay(policy.slo, policy_sha256, now, until, tuple(lanes)))

    def end(self, why: str) -> None:
        """Leave an overlay that says when it was last true and why nobody looks any more."""
        if self._overlay is not None:
            self._put(replace(self._overlay, ended=why))
        self.note("ended", because=why)

    def _put(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._publisher.publish(overlay)
        trouble, before = self._publisher.trouble, self._failed
        self._failed = trouble
        if trouble is not None and before is None:
            self.note("overlay_failed", because=trouble)
            self.say(f"{trouble}: readers decode plainly once the old one is too old", messages.BAD)
        elif trouble is None and before is not None:
            self.note("overlay_back")
            self.say(f"{self._publisher.path} is written again", messages.GOOD)

    def changed(self, change: Change) -> None:
        """Tell of a change, before anything is done about it."""
        self.note(route_state.CHANGE, **change.document())
        self.say(*messages.change(change))

    def act(self, change: Change, lane: Lane, commands: Sequence[Sequence[str]], limit: float) -> None:
        """Run the commands of a change and tell the collector; one that settles what is in force changes nothing."""
        place = str(self._places.overlay.absolute())
        told = {**change.document(), "speculation": lane.speculation, "overlay": place, "request": dict(lane.request)}
        for argv in commands if change.kind != "settled" else ():
            ran = hooks.run(argv, told, limit=limit)
            self.note("command", workload=change.workload, **ran.document())
            if ran.fault is not None:
                self.say(f"{' '.join(argv)}: {ran.fault}", messages.WARNING)
        failed = self._export(change)
        if failed is not None:
            self.note("telemetry_failed", because=failed)
            self.say(f"telemetry was not delivered: {failed}", messages.WARNING)
