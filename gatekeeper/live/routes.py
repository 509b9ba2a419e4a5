"""The routes under watch: their rules, states, recent answers and guard results."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.backends.dialect import Dialect
from gatekeeper.core.clock import Instant, stamp
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.policy import Policy
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Outcome
from gatekeeper.live import restore, route_moves
from gatekeeper.live.canary_round import PAIRED_METRICS, RoundRequest
from gatekeeper.live.guards import guard_judgement
from gatekeeper.live.guards.guard_judgement import GuardContext, GuardResult
from gatekeeper.live.guards.recent_samples import GuardEvidence, RecentAnswers, RecentHost
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.restore import LoggedRoutes, PublishedRoutes
from gatekeeper.live.route_moves import RouteChange, RouteRules, RouteState, Standing


class LiveTraffic(Protocol):
    """Real requests, of a proxy: they give evidence beside the canaries, and follow what is published."""

    not_plain: str
    """Why plain decoding is not plain, as an answer has shown; empty where none has."""

    def judge(self, workload: str, policy: Policy, now: Instant) -> Sequence[GuardResult]:
        """Return what the requests show of one workload."""

    def publish(
        self,
        policy: Policy,
        routes: Sequence[OverlayRoute],
        plain: Mapping[str, Mapping[str, Any]],
        until_ns: int,
        dialect: Dialect,
        target: Path | None = None,
    ) -> None:
        """Take the routes as they are until *until_ns*, and by workload the request fields for plain decoding.

        0: nothing is decided yet, all is decoded plainly. *dialect* is how requests to the servers are written,
        *target* where the certified target is stored on this machine.
        """


class Routes:
    """All routes of a policy. A route is watched while it speculates or could speculate again."""

    def __init__(self, policy: Policy, *, switched: bool, now: Instant) -> None:
        """Start as certified; *switched* says whether the server accepts the setting per request."""
        self.policy, self._switched = policy, switched
        self.results: dict[str, tuple[GuardResult, ...]] = {}
        self.answered: set[str] = set()
        """The routes that answered without a fault at least once."""
        self.restore(LoggedRoutes(), PublishedRoutes(), now)

    def restore(self, logged: LoggedRoutes, published: PublishedRoutes, now: Instant) -> None:
        """Continue from a log and an overlay."""
        self.rules = self._rules(logged.routes)
        self.states: dict[str, RouteState] = {}
        for name, rules in self.rules.items():
            standing = restore.restored_standing(name, rules, logged, published, stamp(now.wall))
            self.states[name] = route_moves.start(standing, now.now_ns)
        self._answers = {name: RecentAnswers(now.now_ns) for name in self.rules}

    def _rules(self, remembered: Iterable[str]) -> dict[str, RouteRules]:
        """Return the rules of the policy's routes, and of removed ones: they decode plainly and are remembered.

        So a route that was removed for a while comes back neither as certified nor without its bar.
        """
        names = dict.fromkeys([*(route.workload for route in self.policy.route), *remembered])
        return {name: RouteRules(self.policy.route_of(name).steps, self.policy.watch, self._switched) for name in names}

    def snapshot(self, verdict_sha256: str) -> dict[str, Any]:
        """Return the state from which a later watch continues."""
        return restore.snapshot(verdict_sha256, self.standings, self.rules)

    @property
    def standings(self) -> dict[str, Standing]:
        """Return the standing of every route."""
        return {name: state.standing for name, state in self.states.items()}

    @property
    def watched(self) -> list[str]:
        """Return the routes that can still change."""
        return [name for name in self._speculating() if not self.states[name].standing.barred]

    def _speculating(self) -> list[str]:
        return [name for name, rules in self.rules.items() if len(rules.ladder) > 1]

    def edit(self, policy: Policy, now: Instant) -> list[RouteChange]:
        """Apply an edited policy. A route whose setting is no longer on its ladder is off; nothing is turned on."""
        before, states = self.rules, self.states
        self.policy, self.results = policy, {}
        self.rules = self._rules(before)
        self.states = {}
        changes: list[RouteChange] = []
        for name, rules in self.rules.items():
            if name not in states:  # a route that is new in the file starts at plain decoding
                self.states[name] = route_moves.start(Standing(workload=name, step=rules.plain), now.now_ns)
                self._answers[name] = RecentAnswers(now.now_ns)
                continue
            self.states[name] = states[name]
            changes += self._set_state(name, *route_moves.after_edit(states[name], before[name], rules, now))
        return changes

    def forget(self, now: Instant) -> None:
        """Drop the evidence from before a gap."""
        for answers in self._answers.values():
            answers.forget(now.now_ns)
        self.states = {name: route_moves.start(state.standing, now.now_ns) for name, state in self.states.items()}

    def requests(self) -> list[RoundRequest]:
        """Return the requests of a round."""
        return [
            RoundRequest(
                name,
                route_moves.judged_setting(self.states[name], self.rules[name]),
                self.rules[name].ladder[0],
                paired=any(guard.metric in PAIRED_METRICS for guard in self.policy.guards_of(name)),
            )
            for name in self.watched
        ]

    def add(self, generation: Generation, *, counts: bool) -> None:
        """Keep an answer; one that does not count still shows that the server is answering."""
        if counts:
            self._answers[generation.workload].add(generation)
        if generation.answer.fault is None:
            self.answered.add(generation.workload)

    def judge(
        self, name: str, host: RecentHost, context: GuardContext, now: Instant, live: Sequence[GuardResult] = ()
    ) -> tuple[RouteChange, ...]:
        """Judge one route by its recent evidence and by what *live* requests show; return the changes."""
        rules, state, answers = self.rules[name], self.states[name], self._answers[name]
        window, host_window = self._windows()
        evidence = GuardEvidence(
            now.now_ns, answers.since_ns, answers.within(now.now_ns, window), host.samples(now.now_ns, host_window),
            host.counter_gains(now.now_ns, window),
        )  # fmt: skip
        canaries = guard_judgement.judge_guards(name, evidence, context, route_moves.judged_setting(state, rules))
        results = (*canaries, *live)
        self.results[name] = results
        return self._set_state(name, *route_moves.after_round(state, results, rules, now))

    def last_round(self, name: str) -> tuple[RouteState, tuple[GuardResult, ...], RouteRules]:
        """Return a route's state after its last round, its guards' results, and its rules."""
        return self.states[name], self.results.get(name, ()), self.rules[name]

    def _windows(self) -> tuple[float, float]:
        """Return the longest window of all guards and of the host guards, in seconds."""
        guards, watch = self.policy.guard, self.policy.watch
        window = max([watch.window, *(guard.over or 0.0 for guard in guards)])
        return window, max([watch.interval, *(guard.over or 0.0 for guard in guards if guard.of.host)])

    def bar(self, name: str, reason: str, now: Instant) -> tuple[RouteChange, ...]:
        """Turn one route off until another certificate."""
        self.results[name] = ()
        return self._set_state(name, *route_moves.bar(self.states[name], self.rules[name], reason, now))

    def hold(self, name: str, reason: str, now: Instant) -> tuple[RouteChange, ...]:
        """Turn one route off while the server contradicts the policy's conditions."""
        self.results[name] = ()
        return self._set_state(name, *route_moves.hold(self.states[name], self.rules[name], reason, now))

    def _set_state(self, name: str, state: RouteState, changes: tuple[RouteChange, ...]) -> tuple[RouteChange, ...]:
        before = self.states[name]
        self.states[name] = state
        if state.standing.step != before.standing.step:
            self._answers[name].forget(state.since_ns)  # they belong to another setting
        return changes

    def overlay_route(self, name: str) -> OverlayRoute:
        """Return a route's entry in the overlay."""
        state = self.states[name]
        setting = route_moves.active_setting(state, self.rules[name])
        speculating = speculates(setting)
        reason = state.standing.because or state.standing.barred
        if not reason:
            reason = "as certified" if speculating else self.policy.route_of(name).because or "as the policy says"
        return OverlayRoute(name, speculating, reason, setting if speculating else ())

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 if every speculating route is as certified, 1 if one is not, 3 if one never answered."""
        names = self._speculating()
        crossed = any(result.outcome is Outcome.FAIL for name in names for result in self.results.get(name, ()))
        if crossed or any(self.states[name].standing.step or self.states[name].standing.barred for name in names):
            return ExitCode.OBJECTIVE_FAILED
        return ExitCode.OK if self.answered.issuperset(names) else ExitCode.UNPROVEN
