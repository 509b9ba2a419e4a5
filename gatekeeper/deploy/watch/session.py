"""A session: one watch from its start to its end, look after look."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.policy import Policy
from gatekeeper.core.records import HostSample
from gatekeeper.deploy.watch import messages, recent
from gatekeeper.deploy.watch.canary_round import Pace, Round
from gatekeeper.deploy.watch.certified_run import Certificate, Edits
from gatekeeper.deploy.watch.guards import Judgement, Tally, Terms
from gatekeeper.deploy.watch.hooks import LIMIT_S
from gatekeeper.deploy.watch.journal import entries
from gatekeeper.deploy.watch.messages import Notice, Notices
from gatekeeper.deploy.watch.model_identity import Witness
from gatekeeper.deploy.watch.outputs import Ears, Outlet, Places
from gatekeeper.deploy.watch.overlay import Lane
from gatekeeper.deploy.watch.recent import Host, Instant
from gatekeeper.deploy.watch.route_state import Change
from gatekeeper.deploy.watch.routes import Routes
from gatekeeper.deploy.watch.server import Post

SLACK_S = 15.0
"""An overlay counts for two intervals, twice the last look, the commands' time, and this for a slow collector."""
UNISSUED = timedelta(days=1)
"""A clock so far before the policy's issue tells nothing about its expiry."""


class Sampling(Protocol):
    """Samples the host while it is entered."""

    @property
    def fault(self) -> str | None:
        """Say why no more samples come, None while they do."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the world comes in."""

    clock: Clock
    post: Post
    witness: Witness
    sampler: Callable[[Callable[[HostSample], None]], Sampling] | None
    """Makes what hands over samples of the host; None: nobody wants them."""
    host_interval: float
    export: Callable[[Change], str | None]
    """Tells a collector of a change; returns why it was not told, None where it was, or nobody asked for it."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the command line adds to the policy."""

    policy: Callable[[Policy], Policy]
    """Returns a policy as it is to be watched."""
    commands: tuple[tuple[str, ...], ...] = ()
    limit: float = LIMIT_S


class Session:
    """Watches from entering to leaving: `look` once, or `run` until somebody ends it."""

    def __init__(
        self, certificate: Certificate, edits: Edits, orders: Orders, ports: Ports, places: Places, ears: Ears
    ) -> None:
        self._certificate, self._edits, self._orders, self._ports = certificate, edits, orders, ports
        self._clock, self._places = ports.clock, places
        now = Instant.of(self._clock)
        self.routes = Routes(orders.policy(edits.now.policy), switched=ports.post.both_arms, now=now)
        watch = self.routes.policy.watch
        self.pace = Pace(watch.duty, watch.interval, now.now_ns)
        self._outlet = Outlet(places, ears, self._clock, state=self._snapshot, export=ports.export)
        self._round = Round(certificate.given.slo, certificate.given.canaries, ports.post, self._clock)
        self._host, self._sampling = Host(), ExitStack()
        self._sampler: Sampling | None = None
        self._stack = ExitStack()
        self._last, self._rested, self._took = now, 0.0, 0.0
        self._notices = Notices(ports.post.name)
        self._greeted = False
        self._answering: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Take the lock, go on from the journal, and say what is watched."""
        with ExitStack() as stack:
            stack.enter_context(self._outlet)
            stack.callback(self._ports.post.close)
            stack.callback(self._sampling.close)
            self.routes.restore(entries(self._places.journal), self._certificate.verdict_sha256, self._last)
            watch, rules = self.routes.policy.watch, self.routes.rules
            self._outlet.say(
                messages.beginning(self._places.url, self.routes.policy.slo, self.routes.standings, rules),
                messages.QUIET,
            )
            self._outlet.say(messages.cost(watch.duty, watch.interval))
            digest = self._edits.now.sha256
            self._outlet.note("begun", policy_sha256=digest, url=self._places.url, duty=watch.duty, **self._snapshot())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave an overlay that says when it was last true and why nobody looks any more, and give everything back."""
        why = (
            "interrupted"
            if kind is KeyboardInterrupt
            else "its last look was made"
            if kind is None
            else f"failed: {error}"
        )
        try:
            with suppress(GatekeeperError) if kind is not None else ExitStack():
                self._outlet.end(why)  # a journal that can not be written has ended the session already
        finally:
            self._stack.close()

    def run(self, rounds: int | None) -> int:
        """Look *rounds* times, or for ever; return the exit code."""
        number = 0
        while rounds is None or number < rounds:
            if number:
                self._rest()
            self.look()
            number += 1
        return self.routes.exit_code

    def look(self) -> None:
        """Look once: at the clock, the policy, the models, the answers; then judge, switch and tell."""
        begun = Instant.of(self._clock)
        self._notice(recent.gap(self._last, begun, expected=self._rested, interval=self.routes.policy.watch.interval))
        self._take_up_policy()
        why = self._over(begun) or self._identify() or self._ask(begun)
        if why is None:
            self._keep_sampling()
            terms = self._terms()
            for name in self.routes.watched:
                now = Instant.of(self._clock)
                changes = self.routes.judge(name, self._host, terms, now)
                self._notify(name, self._notices.lacking(*self.routes.judged_of(name), now.now_ns))
                self._follow(changes)
        else:
            for name in self.routes.rules:
                self._follow(self.routes.bar(name, why, Instant.of(self._clock)))
        self._last, self._rested = Instant.of(self._clock), 0.0
        self._took = (self._last.now_ns - begun.now_ns) / 1e9
        self._publish()
        self._tell()

    def _rest(self) -> None:
        """Wait until the next look is due."""
        self._rested = max(0.0, self.routes.policy.watch.interval - self._took)
        self._clock.sleep(self._rested)

    def _notice(self, gap: str | None) -> bool:
        """Throw away what was seen before a *gap*, for nobody saw what happened in it; tell whether there was one."""
        if gap is None:
            return False
        self._outlet.note("gap", because=gap)
        self._outlet.say(f"{gap}: what was seen before counts no more", messages.WARNING)
        self._host.forget()
        self.routes.woken(Instant.of(self._clock))
        return True

    def _take_up_policy(self) -> None:
        before, said = self._edits.now, self._edits.reread()
        if said is None:
            return
        self._outlet.say(said, messages.WARNING)
        if self._edits.now is before:
            self._outlet.note("policy_refused" if self._edits.trouble is not None else "policy_back", because=said)
            return
        changes = self.routes.edited(self._orders.policy(self._edits.now.policy), Instant.of(self._clock))
        watch = self.routes.policy.watch
        self.pace.duty, self.pace.interval = watch.duty, watch.interval
        self._outlet.note("policy", policy_sha256=self._edits.now.sha256, because=said, **self._snapshot())
        self._follow(changes)

    def _over(self, now: Instant) -> str | None:
        """Say why the policy's time is over, None while it is not."""
        policy = self.routes.policy
        if policy.expired(now.wall):
            return f"the policy expired at {stamp(policy.expires)}"
        if now.wall < policy.issued - UNISSUED:
            return (
                f"the clock says {stamp(now.wall)}, long before the policy was issued: nobody knows if it has expired"
            )
        return None

    def _identify(self) -> str | None:
        """Say why it is not the certified models that answer, None where nothing speaks against it."""
        witness = self._ports.witness
        why = witness.look()
        if witness.restarted:
            self._round.restarted()
            if (told := witness.document()) != self._answering:
                self._outlet.note("server", **told)
                self._answering = told
        if not self._greeted:
            self._greeted = True
            self._outlet.say(witness.told())
        return why

    def _ask(self, begun: Instant) -> str | None:
        """Ask what the pace allows; say why another model answered, None where none did."""
        watch = self.routes.policy.watch
        for asked in self._round.ask(self.routes.wishes(), watch.canaries, self.pace):
            one = asked.generation
            other = self._ports.witness.heard(one.answer.claims.model, sound=one.answer.fault is None)
            if other is not None:
                return other
            if (notice := self._notices.heard(one)) is not None:
                self._notify(one.workload, [notice])
            self.routes.add(one, counts=asked.counts)
        now = Instant.of(self._clock)
        passed = (now.now_ns - begun.now_ns) / 1e9
        if not self._notice(recent.gap(begun, now, expected=passed, interval=watch.interval)):
            gained = self._ports.post.gained()
            if gained is not None:
                self._host.counted(Tally(now.now_ns, *gained))
        return None

    def _terms(self) -> Terms:
        given = self._certificate.given
        canaries = {name: {one.id: one for one in mine} for name, mine in given.canaries.items()}
        greedy = given.slo.sampling.temperature == 0
        return Terms(self.routes.policy, canaries, greedy, self._ports.host_interval, given.slo.confidence)

    def _keep_sampling(self) -> None:
        """Begin to sample the host, and begin again where the sampler broke down; absence speaks for itself."""
        if self._ports.sampler is None or (self._sampler is not None and self._sampler.fault is None):
            return
        if self._sampler is not None:
            self._outlet.note("sampler_failed", because=self._sampler.fault)
            self._outlet.say(f"the host is not sampled: {self._sampler.fault}", messages.WARNING)
        self._sampling.close()
        self._sampler = self._sampling.enter_context(self._ports.sampler(self._host.sampled))

    def _notify(self, workload: str, notices: Iterable[Notice]) -> None:
        for one in notices:
            self._outlet.note(one.kind, workload=workload, **one.detail)
            self._outlet.say(one.text, messages.GOOD if one.good else messages.WARNING)

    def _follow(self, changes: Sequence[Change]) -> None:
        """Write changes down, publish them, and only then act on them."""
        for change in changes:
            self._outlet.changed(change)
        if changes:
            self._publish()
        commands = (*self.routes.policy.watch.on_change, *self._orders.commands)
        for change in changes:
            self._outlet.act(change, self._lane(change.workload), commands, self._orders.limit)

    def _lane(self, name: str) -> Lane:
        lane = self.routes.lane(name)
        return replace(lane, request=self._ports.post.fields(lane.setting))

    def _publish(self) -> None:
        policy = self.routes.policy
        commands = len(policy.watch.on_change) + len(self._orders.commands)
        seconds = 2 * policy.watch.interval + 2 * self._took + commands * self._orders.limit + SLACK_S
        lanes = [self._lane(route.workload) for route in policy.route]
        self._outlet.publish(policy, self._edits.now.sha256, lanes, seconds)

    def _tell(self) -> None:
        """Tell what this look came to."""
        routes, now_ns = self.routes, self._clock.now_ns()
        pace = self.pace
        load = {"asked": pace.asked, "seconds": round(pace.spent, 3), "share": pace.share(now_ns), "bound": pace.duty}
        standings = routes.standings
        self._outlet.note(
            "look",
            load={**load, "share": round(load["share"], 6)},
            seconds=round(self._took, 3),
            routes={name: _summary(routes, name) for name in routes.rules},
        )
        rows = [(standings[name], routes.rules[name], routes.judged.get(name, ())) for name in routes.rules]
        self._outlet.say(messages.look(stamp(self._last.wall), rows, load))

    def _snapshot(self) -> dict[str, Any]:
        return self.routes.snapshot(self._certificate.verdict_sha256)


def _summary(routes: Routes, name: str) -> dict[str, Any]:
    """Return a route at one look, short enough to be kept for every look."""
    standing = routes.standings[name]
    return {"rung": standing.rung, "guards": {one.guard.name: _figures(one) for one in routes.judged.get(name, ())}}


def _figures(one: Judgement) -> list[Any]:
    check = one.check
    word = "asleep" if one.asleep else check.outcome.word
    return [word, check.center, check.lo, check.hi, check.n]
