"""The routes under watch: their rules, where each stands, what was seen of each, and what follows."""

from collections.abc import Iterable, Mapping
from typing import Any

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import ExitCode
from gatekeeper.core.policy import Policy
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Outcome
from gatekeeper.deploy.watch import guards, route_state
from gatekeeper.deploy.watch.canary_round import TWINNED, Wish
from gatekeeper.deploy.watch.guards import Judgement, Seen, Terms
from gatekeeper.deploy.watch.overlay import Lane
from gatekeeper.deploy.watch.recent import Answers, Host, Instant
from gatekeeper.deploy.watch.route_state import Change, Rules, Standing, State


class Routes:
    """Every route of a policy. A route is watched while it speculates, or could again."""

    def __init__(self, policy: Policy, *, switched: bool, now: Instant) -> None:
        """Begin as certified; *switched* tells whether the server takes the setting with each request."""
        self.policy, self._switched = policy, switched
        self.rules = self._rules(())
        self.states = {name: route_state.begin(Standing(name), now.now_ns) for name in self.rules}
        self.judged: dict[str, tuple[Judgement, ...]] = {}
        self._answers = {name: Answers(now.now_ns) for name in self.rules}
        self._heard: set[str] = set()

    def _rules(self, known: Iterable[str]) -> dict[str, Rules]:
        """Return the rules of the policy's routes, and of those it had: they decode plainly, and are remembered.

        So nothing comes back as certified, or without its bar, because its route was taken out for a while.
        """
        names = dict.fromkeys([*(route.workload for route in self.policy.route), *known])
        routes = [self.policy.route_of(name) for name in names]
        return {
            route.workload: route_state.rules(route, self.policy.watch, switched=self._switched) for route in routes
        }

    def restore(self, entries: Iterable[Mapping[str, Any]], verdict_sha256: str, now: Instant) -> None:
        """Go on from a journal."""
        known = route_state.known(entries, verdict_sha256)
        self.rules = self._rules(known)
        self.states = {
            name: route_state.begin(one, now.now_ns) for name, one in route_state.restored(known, self.rules).items()
        }
        self._answers = {name: Answers(now.now_ns) for name in self.rules}

    def snapshot(self, verdict_sha256: str) -> dict[str, Any]:
        """Return what a journal needs to go on from."""
        return route_state.snapshot(verdict_sha256, self.standings, self.rules)

    @property
    def standings(self) -> dict[str, Standing]:
        """Return where every route stands."""
        return {name: state.standing for name, state in self.states.items()}

    @property
    def watched(self) -> list[str]:
        """Return the routes of which something can still change."""
        return [name for name in self.rules if self._speculates(name) and not self.states[name].standing.barred]

    def _speculates(self, name: str) -> bool:
        return len(self.rules[name].rungs) > 1

    def edited(self, policy: Policy, now: Instant) -> list[Change]:
        """Take up an edited policy. A route whose setting is no rung any more is off; nothing is turned on by it."""
        before, states = self.rules, self.states
        self.policy, self.judged = policy, {}
        self.rules = self._rules(before)
        self.states = {}
        found: list[Change] = []
        for name, rules in self.rules.items():
            if name not in states:  # a route that is new to the file has not earned anything yet
                self.states[name] = route_state.begin(Standing(name, rung=rules.plain), now.now_ns)
                self._answers[name] = Answers(now.now_ns)
                continue
            self.states[name] = states[name]
            amended = route_state.amended(states[name], before[name], rules, now_ns=now.now_ns, at=stamp(now.wall))
            found += self._become(name, *amended)
        return found

    def woken(self, now: Instant) -> None:
        """Throw away what was seen before a gap."""
        for answers in self._answers.values():
            answers.forget(now.now_ns)
        self.states = {name: route_state.woken(state, now.now_ns) for name, state in self.states.items()}

    def wishes(self) -> list[Wish]:
        """Return what a look wants to know."""
        return [
            Wish(
                name,
                route_state.to_judge(self.states[name], self.rules[name]),
                self.rules[name].rungs[0],
                twin=any(one.metric in TWINNED for one in self.policy.guards_of(name)),
            )
            for name in self.watched
        ]

    def add(self, one: Generation, *, counts: bool) -> None:
        """Keep an answer; one that does not count shows all the same that somebody answers."""
        if counts:
            self._answers[one.workload].add(one)
        if one.answer.fault is None:
            self._heard.add(one.workload)

    def judge(self, name: str, host: Host, terms: Terms, now: Instant) -> tuple[Change, ...]:
        """Judge one route by what was lately seen, and step."""
        rules, state = self.rules[name], self.states[name]
        answers, now_ns = self._answers[name], now.now_ns
        window, of_host = self._windows()
        samples, tallies = host.samples(now_ns, of_host), host.tallies(now_ns, window)
        seen = Seen(now_ns, answers.since_ns, answers.of(now_ns, window), samples, tallies)
        self.judged[name] = guards.judgements(name, seen, terms, route_state.to_judge(state, rules))
        return self._become(
            name, *route_state.step(state, self.judged[name], rules, now_ns=now.now_ns, at=stamp(now.wall))
        )

    def judged_of(self, name: str) -> tuple[State, tuple[Judgement, ...], Rules]:
        """Return where a route stands after its last look, what was judged, and by which rules."""
        return self.states[name], self.judged.get(name, ()), self.rules[name]

    def _windows(self) -> tuple[float, float]:
        """Return the seconds that any guard looks back, and those that any guard of the host does."""
        guards, watch = self.policy.guard, self.policy.watch
        window = max([watch.window, *(one.over or 0.0 for one in guards)])
        return window, max([watch.interval, *(one.over or 0.0 for one in guards if one.of.host)])

    def bar(self, name: str, why: str, now: Instant) -> tuple[Change, ...]:
        """Turn one route off until another certificate."""
        rules, state = self.rules[name], self.states[name]
        self.judged[name] = ()
        return self._become(name, *route_state.bar(state, rules, why, now_ns=now.now_ns, at=stamp(now.wall)))

    def _become(self, name: str, state: State, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        before = self.states[name]
        self.states[name] = state
        if state.standing.rung != before.standing.rung:
            self._answers[name].forget(state.since_ns)  # they are of another setting
        return changes

    def lane(self, name: str) -> Lane:
        """Return what a route may do now."""
        rules, state = self.rules[name], self.states[name]
        setting = route_state.in_force(state, rules)
        on = dict(setting).get("draft") is not None
        because = state.standing.because or state.standing.barred
        if not because:
            because = "as certified" if on else self.policy.route_of(name).because or "as the policy says"
        return Lane(name, on, because, setting if on else ())

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 where every speculating route is as certified, 1 where one is not, 3 where one never answered."""
        names = [name for name in self.rules if self._speculates(name)]
        crossed = any(one.outcome is Outcome.FAIL for name in names for one in self.judged.get(name, ()))
        if crossed or any(self.states[name].standing.rung or self.states[name].standing.barred for name in names):
            return ExitCode.OBJECTIVE_FAILED
        return ExitCode.OK if self._heard.issuperset(names) else ExitCode.UNPROVEN
