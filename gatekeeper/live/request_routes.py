"""The route of a live request: its workload, the policy as it is watched, the load, and the draw of the holdout."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatekeeper.backends.dialect import Dialect
from gatekeeper.core.clock import Instant
from gatekeeper.core.policy import Policy, Proxy
from gatekeeper.live.certified_point import CertifiedPoint
from gatekeeper.live.guards.guard_judgement import GuardResult
from gatekeeper.live.live_conversations import Conversations
from gatekeeper.live.live_evidence import LiveEvidence
from gatekeeper.live.live_request import LiveRequest, choose_workload
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.server_load import ServerLoad

Fields = Mapping[str, Any]
NO_ROUND = "the watch has not finished its first round"
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class RequestDecision:
    """How one request is decoded, and why."""

    workload: str
    rule: str
    speculative: bool
    because: str
    arm: str | None = None
    """`speculative` or `holdout` where the draw decided; None where something else did."""
    epoch: int = 0
    fields: Fields = field(default_factory=dict)
    """Request fields for speculation; empty where the server takes none."""
    plain_fields: Fields = field(default_factory=dict)
    conversation: str = ""
    """The id of its conversation, which was drawn as a whole."""
    may_speculate: bool = False
    """The policy allows it now: then a failing plain server may be replaced by the speculative one."""


@dataclass(frozen=True, slots=True)
class _Published:
    policy: Policy
    routes: Mapping[str, OverlayRoute]
    plain: Mapping[str, Fields]
    until_ns: int
    points: Mapping[str, CertifiedPoint]
    """The certified point of each workload that has a route."""
    any_plain: Fields
    """What makes a server decode plainly; empty where it needs nothing."""
    dialect: Dialect
    target: Path | None
    """Where the certified target is stored on this machine."""


class ConcurrencyLimit:
    """Whether too many requests are in flight to speculate; it goes back only after some time of less load."""

    def __init__(self) -> None:
        self.crowded = False
        self._low_ns: int | None = None

    def update(self, in_flight: int, most: int, proxy: Proxy, now_ns: int) -> bool:
        """Return whether it is crowded with *in_flight* requests, at most *most* of them speculating."""
        if in_flight > most:
            self.crowded, self._low_ns = True, None
        elif in_flight > max(1, int(most * proxy.resume_at)):
            self._low_ns = None
        elif self.crowded:
            self._low_ns = now_ns if self._low_ns is None else self._low_ns
            self.crowded = now_ns - self._low_ns < proxy.resume_after * 1e9
        return self.crowded


class RequestRoutes:
    """Decides request by request; the watch publishes the routes from its own thread."""

    def __init__(
        self,
        draw: Callable[[], float] = _random.random,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Draw each conversation with *draw*, evenly from 0 to 1."""
        self.evidence, self._now_ns = LiveEvidence(), now_ns
        self._conversations, self.load = Conversations(draw), ServerLoad(now_ns)
        self._published: _Published | None = None
        self._limits: dict[str, ConcurrencyLimit] = {}
        self.in_flight = 0
        self.not_plain = ""
        """Why plain decoding is not plain, once an answer has shown it; empty until then. Nothing speculates after."""

    def publish(
        self,
        policy: Policy,
        routes: Sequence[OverlayRoute],
        plain: Mapping[str, Fields],
        until_ns: int,
        dialect: Dialect,
        target: Path | None = None,
    ) -> None:
        """Take the routes as they are until *until_ns*; a changed setting drops the evidence of the one before.

        *plain* has by workload the request fields for plain decoding. An *until_ns* of 0 decides nothing yet: all is
        decoded plainly.
        """
        before = self._published.routes if self._published is not None else {}
        routes_by_workload = {route.workload: route for route in routes}
        for name, route in routes_by_workload.items():
            earlier = before.get(name)
            if earlier is None or (earlier.speculation, earlier.setting) != (route.speculation, route.setting):
                self.evidence.restart(name, policy.watch.window, self._now_ns())
        points = {
            name: CertifiedPoint.of(policy.route_of(name), policy.conditions, policy.max_concurrency(name), dialect)
            for name in routes_by_workload
        }
        any_plain = next((fields for fields in plain.values() if fields), {})
        self._published = _Published(policy, routes_by_workload, plain, until_ns, points, any_plain, dialect, target)

    def judge(self, workload: str, policy: Policy, now: Instant) -> Sequence[GuardResult]:
        """Return what live requests prove against the workload's speculation."""
        published = self._published
        if published is None or workload not in published.routes or not published.routes[workload].speculation:
            return ()
        return self.evidence.judge(workload, policy, now)

    @property
    def policy(self) -> Policy | None:
        """Return the policy in force; None before the first round of the watch."""
        return self._published.policy if self._published is not None else None

    @property
    def routes(self) -> Mapping[str, OverlayRoute]:
        """Return the routes as published last."""
        return self._published.routes if self._published is not None else {}

    @property
    def plain_fields(self) -> Fields:
        """Return what makes a server decode plainly, as published last; empty where it needs nothing."""
        return self._published.any_plain if self._published is not None else {}

    @property
    def dialect(self) -> Dialect | None:
        """Return how requests to the servers are written; None before the watch has published."""
        return self._published.dialect if self._published is not None else None

    @property
    def is_stale(self) -> bool:
        """Return whether the next round of the watch is overdue, so that nothing may speculate."""
        return self._published is None or self._now_ns() >= self._published.until_ns

    def begin(self, answers: int = 1) -> None:
        """Count a generating request that has arrived, or so many answers that it asks for."""
        self._count(answers)

    def end(self, answers: int = 1) -> None:
        """Count a generating request that has ended, with all its answers."""
        self._count(-answers)

    def _count(self, answers: int) -> None:
        self.in_flight += answers
        if (published := self._published) is not None:
            now_ns = self._now_ns()
            for name, limit in self._limits.items():
                point = published.points.get(name)
                limit.update(self.in_flight, point.streams if point else 1, published.policy.proxy, now_ns)

    def decide(self, request: LiveRequest) -> RequestDecision:
        """Return the route of a request that was counted already."""
        published, now_ns = self._published, self._now_ns()
        if published is None:
            return RequestDecision("unknown", "none", False, NO_ROUND)
        proxy, conversation = (
            published.policy.proxy,
            self._conversations.conversation_of(request.prefixes, request.session),
        )
        workload, rule = choose_workload(request, proxy, published.routes)
        route = published.routes.get(workload) or OverlayRoute(workload, False, "no route in the policy")
        plain = published.plain.get(workload) or published.any_plain
        if now_ns >= published.until_ns:
            because = NO_ROUND if not published.until_ns else "the next round of the watch is overdue"
            return RequestDecision(workload, rule, False, because, plain_fields=plain)
        if self.not_plain:
            return RequestDecision(workload, rule, False, self.not_plain, plain_fields=plain)
        if not route.speculation:
            return RequestDecision(workload, rule, False, route.because, plain_fields=plain)
        limit = self._limits.get(workload) or self._limits.setdefault(workload, ConcurrencyLimit())
        point = published.points[workload]
        because, arm = route.because, None
        crowded = limit.update(self.in_flight, point.streams, proxy, now_ns)
        outside = point.difference(request)
        if outside is None and crowded:
            outside = f"{self.in_flight} requests in flight, certified up to {point.streams}"
        added = point.added if outside is None else {}
        if outside is not None:
            because = outside
        elif conversation.draw < proxy.holdout:
            because = arm = "holdout"
        else:
            arm = "speculative"
        return RequestDecision(
            workload,
            rule,
            arm == "speculative",
            because,
            arm,
            self.evidence.epoch(workload),
            {**added, **route.request},
            {**added, **plain},
            conversation.id,
            may_speculate=outside is None,
        )

    def must_be_counted(self, request: LiveRequest) -> bool:
        """Return whether only the tokens of a request's prompt can show that the draft is certified for it."""
        published = self._published
        if published is None or self.is_stale or self.not_plain:
            return False
        workload, _ = choose_workload(request, published.policy.proxy, published.routes)
        route = published.routes.get(workload)
        return route is not None and route.speculation and published.points[workload].must_be_counted(request)

    @property
    def target(self) -> Path | None:
        """Return where the certified target is stored on this machine; None where it is not."""
        return self._published.target if self._published is not None else None
