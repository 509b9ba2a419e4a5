"""The routes under watch: how one steps down the fallback ladder and up again, where it continues, and all of them.

A route steps down when a guard is crossed, is off when evidence is missing, and tries a step up after a quiet time. A
watch continues from its log and from the overlay on disk: what cannot be read of them is not "as certified".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gatekeeper.analysis.plan.settings import setting_document, speculates
from gatekeeper.core.clock import Instant, stamp
from gatekeeper.core.document import document_of
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.policy import Policy, Watch
from gatekeeper.core.records import Generation, Setting
from gatekeeper.core.units import show_seconds
from gatekeeper.live.canary_round import PAIRED_METRICS, RoundRequest
from gatekeeper.live.guards import guard_judgement
from gatekeeper.live.guards.guard_judgement import GuardContext, GuardResult
from gatekeeper.live.guards.recent_samples import GuardEvidence, RecentAnswers, RecentHost
from gatekeeper.live.overlay import OverlayRoute, PublishedRoutes
from gatekeeper.live.watch_log import DAMAGED, STATE

Kind = Literal["down", "off", "try", "settled", "barred"]
"""down: a guard was crossed, one step down. off: evidence is missing, plain decoding. try: a step up, on trial.
settled: the trial ended at the same step. barred: plain decoding until another certificate."""
UNSOAKED = "; this step was not soaked: the guards decide"
"""Added for every step between the certified setting and plain decoding."""
_MOST_DOUBLINGS = 64
Step = Annotated[int, Field(ge=0, strict=True)]
"""A step of the ladder: 0 is the certified setting, the last is plain decoding."""
CHANGE = "change"
SNAPSHOTS = frozenset({"begun", "policy", STATE})
"""Kinds of entries that hold the state of every route; earlier entries are not needed."""


class _Stored(BaseModel):
    """A part of an entry of watch.jsonl; keys of the entry around it are ignored."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class RouteChange(_Stored):
    """One change of a route, as in `watch.jsonl`; all changes together give its standing."""

    at: str
    """Wall time."""
    workload: str
    kind: Kind = Field(alias="change")
    before: Step = Field(alias="from_step")
    after: Step = Field(alias="to_step")
    setting: dict[str, Any] = {}
    """The setting in force after it, as policy.toml writes one."""
    because: str
    evidence: tuple[Check, ...] = ()
    """The checks that caused it."""


class Standing(_Stored):
    """The part of a route's state that survives a restart."""

    workload: str
    step: Step = 0
    relapses: int = 0
    """Failed trials in a row; each doubles the quiet time."""
    trying: bool = False
    """On trial: after a step up, until the quiet time has passed."""
    barred: str = ""
    """Why it is off until another certificate; empty if it is not."""
    because: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class RouteState:
    """A standing and its timers, in monotonic nanoseconds of this process."""

    standing: Standing
    since_ns: int
    """When this step began, or the evidence was dropped."""
    quiet_ns: int
    """Since when no guard was crossed or without evidence."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """Since when each guard was crossed in every round."""
    fresh: Mapping[str, int] = field(default_factory=dict)
    """Time of the newest evidence of each guard."""


@dataclass(frozen=True, slots=True)
class RouteRules:
    """What decides about a route, in addition to its guards."""

    ladder: tuple[Setting, ...]
    """As Route.steps gives it."""
    watch: Watch
    switched: bool
    """The server accepts the setting per request, so a few answers can test a step up."""

    @property
    def plain(self) -> int:
        """Return the step of plain decoding, the last."""
        return len(self.ladder) - 1

    def quiet_s(self, standing: Standing) -> float:
        """Return the quiet time in seconds before the next step up, which is also the length of its trial."""
        doubled: float = self.watch.quiet_for * 2.0 ** min(standing.relapses, _MOST_DOUBLINGS)
        return min(self.watch.quiet_most, doubled)


def after_change(standing: Standing, change: RouteChange) -> Standing:
    """Return the standing of a route after one of its changes."""
    changes = {"step": change.after, "because": change.because, "at": change.at, "trying": change.kind == "try"}
    if change.kind == "settled":
        changes["relapses"] = 0
    elif change.kind != "try":
        changes["relapses"] = standing.relapses + standing.trying
    if change.kind == "barred":
        changes["barred"] = change.because
    return standing.model_copy(update=changes)


def start(standing: Standing, now_ns: int) -> RouteState:
    """Return the state at the start of a watch, or after the evidence was dropped: every timer starts now."""
    return RouteState(standing, now_ns, now_ns)


def after_round(
    state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now: Instant
) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Return the state after one round of guard results, and the changes.

    After a change of the step the caller drops the route's answers, which belong to another setting.
    """
    state = _run_timers(state, results, rules, now.now_ns)
    standing = state.standing
    if standing.barred:
        return state, ()
    move = _move_down(state, results, rules, now.now_ns) if standing.step < rules.plain else None
    move = move or _move_up(state, results, rules, now.now_ns)
    if move is None:
        return state, ()
    return _change_route(state, move, rules, now)


def bar(state: RouteState, rules: RouteRules, reason: str, now: Instant) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Turn a route off until another certificate: the policy has expired, or another model is serving."""
    if state.standing.barred:
        return state, ()
    return _change_route(state, _Move("barred", rules.plain, reason), rules, now)


def hold(state: RouteState, rules: RouteRules, reason: str, now: Instant) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Turn a route off for as long as the server differs from the certified conditions; its quiet time starts anew."""
    if state.standing.barred or state.standing.step >= rules.plain:
        return replace(state, quiet_ns=now.now_ns), ()
    return _change_route(state, _Move("off", rules.plain, reason), rules, now)


def after_edit(
    state: RouteState, before: RouteRules, rules: RouteRules, now: Instant
) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Return the state under an edited policy: at the step of the same setting, or off if that was removed."""
    setting = active_setting(state, before)
    step = step_of(setting, rules)
    if step == state.standing.step and setting in rules.ladder:
        return state, ()
    reason = "the policy was edited" + ("" if setting in rules.ladder else " and no longer lists the setting in force")
    return _change_route(state, _Move("off" if step == rules.plain else "down", step, reason), rules, now)


def active_setting(state: RouteState, rules: RouteRules) -> Setting:
    """Return the setting in force."""
    return rules.ladder[min(state.standing.step, rules.plain)]


def judged_setting(state: RouteState, rules: RouteRules) -> Setting:
    """Return the setting whose answers are judged: the one in force, or for a plain route the next one to try.

    If the server cannot be switched per request, or the route is barred, it is the one in force.
    """
    step = min(state.standing.step, rules.plain)
    trial = step == rules.plain and step > 0 and rules.switched and not state.standing.barred
    return rules.ladder[step - trial]


def step_of(setting: Setting | None, rules: RouteRules) -> int:
    """Return the step of *setting* on the ladder; plain decoding if it is not on it."""
    return rules.ladder.index(setting) if setting in rules.ladder else rules.plain


@dataclass(frozen=True, slots=True)
class _Move:
    kind: Kind
    step: int
    because: str
    evidence: tuple[Check, ...] = ()


def _run_timers(state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now_ns: int) -> RouteState:
    """Update the timers: since when each guard is crossed, its newest evidence, and the start of the quiet time."""
    failing, fresh = dict(state.failing), dict(state.fresh)
    for result in results:
        key = result.guard.name
        if result.outcome is Outcome.FAIL:
            failing.setdefault(key, max(state.since_ns, result.crossed_ns or now_ns))
        elif result.check.center is not None:  # missing evidence neither starts nor ends a crossing
            failing.pop(key, None)
        if result.fresh_ns is not None:
            fresh[key] = max(result.fresh_ns, fresh.get(key, state.since_ns))
    timed = replace(state, failing=failing, fresh=fresh)
    disturbed = any(result.outcome is Outcome.FAIL for result in results) or _missing(timed, results, rules, now_ns)
    return replace(timed, quiet_ns=now_ns) if disturbed else timed


def without_evidence(
    state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now_ns: int
) -> Iterator[tuple[float, float, GuardResult]]:
    """Yield, for each guard that is awake, its seconds without evidence and the seconds allowed."""
    for result in results:
        if not result.asleep:
            silent = (now_ns - state.fresh.get(result.guard.name, state.since_ns)) / 1e9
            yield silent, result.guard.missing_for or rules.watch.missing_for, result


def _missing(
    state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now_ns: int
) -> list[tuple[float, GuardResult]]:
    """Return the guards without evidence for longer than allowed, with their seconds without evidence."""
    silences = without_evidence(state, results, rules, now_ns)
    return [(silent, result) for silent, limit, result in silences if silent > limit]


def _move_down(state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now_ns: int) -> _Move | None:
    if missing := _missing(state, results, rules, now_ns):
        reasons = [
            f"{result.guard.metric}: no evidence for {show_seconds(silent)}: {_reason(result)}"
            for silent, result in missing
        ]
        return _Move("off", rules.plain, "; ".join(reasons), tuple(result.check for _, result in missing))
    unguarded = (now_ns - state.since_ns) / 1e9
    if all(result.asleep for result in results) and unguarded > rules.watch.missing_for:
        return _Move("off", rules.plain, f"no guard applies: no evidence for {show_seconds(unguarded)}")
    failing = [
        (result, (now_ns - state.failing[result.guard.name]) / 1e9)
        for result in results
        if result.outcome is Outcome.FAIL
    ]
    crossed = [(result, seconds) for result, seconds in failing if seconds >= result.guard.for_]
    if not crossed:
        return None
    reasons = [
        f"{result.guard.metric}: {_reason(result)}" + (f", for {show_seconds(seconds)}" if seconds else "")
        for result, seconds in crossed
    ]
    return _Move("down", state.standing.step + 1, "; ".join(reasons), tuple(result.check for result, _ in crossed))


def _reason(result: GuardResult) -> str:
    return result.check.because + (f" ({result.guard.why})" if result.guard.why else "")


def _move_up(state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now_ns: int) -> _Move | None:
    """Return a step up or the end of a trial, once every guard is kept after the quiet time."""
    standing, quiet = state.standing, (now_ns - state.quiet_ns) / 1e9
    awake = [result for result in results if not result.asleep]
    all_kept = all(result.outcome is Outcome.PASS and result.fresh_ns is not None for result in awake)
    if not awake or not all_kept or quiet < rules.quiet_s(standing):
        return None
    reason = f"every guard kept, none crossed for {show_seconds(quiet)}"
    evidence = tuple(result.check for result in awake)
    if standing.trying:
        return _Move("settled", standing.step, reason, evidence)
    if standing.step == 0:
        return None
    return _Move("try", min(standing.step, rules.plain) - 1, reason, evidence)


def _change_route(
    state: RouteState, move: _Move, rules: RouteRules, now: Instant
) -> tuple[RouteState, tuple[RouteChange, ...]]:
    standing = state.standing
    unsoaked = move.kind in {"down", "try"} and 0 < move.step < rules.plain
    change = RouteChange(
        at=stamp(now.wall), workload=standing.workload, kind=move.kind, before=standing.step, after=move.step,
        setting=setting_document(rules.ladder[move.step]), because=move.because + (UNSOAKED if unsoaked else ""),
        evidence=move.evidence,
    )  # fmt: skip
    new_standing = after_change(standing, change)
    if new_standing.step == standing.step:
        return replace(state, standing=new_standing), (change,)
    return start(new_standing, now.now_ns), (change,)


@dataclass(frozen=True, slots=True)
class LoggedRoutes:
    """What a log says of the routes of one certificate."""

    routes: Mapping[str, tuple[Standing, tuple[Setting, ...]]] = field(default_factory=dict)
    """The standing of each workload, and the ladder that the step refers to."""
    damage: str | None = None
    """What cannot be read, and may have turned a route off; None if nothing."""


def snapshot(verdict_sha256: str, standings: Mapping[str, Standing], rules: Mapping[str, RouteRules]) -> dict[str, Any]:
    """Return the standing of every route, with the ladder that its step refers to."""
    routes = [
        {"standing": document_of(standing), "steps": [dict(setting) for setting in rules[name].ladder]}
        for name, standing in standings.items()
    ]
    return {"verdict_sha256": verdict_sha256, "routes": routes}


def read_log(entries: Iterable[Mapping[str, Any]], verdict_sha256: str, *, is_new: bool = False) -> LoggedRoutes:
    """Return what *entries*, oldest first, say of this certificate; a log that *is_new* cannot say anything."""
    routes: dict[str, tuple[Standing, tuple[Setting, ...]]] = {}
    damage = None if is_new else "the log holds no state"
    for number, entry in enumerate(entries, start=1):
        try:
            if entry["kind"] in SNAPSHOTS:
                routes, damage = _routes_in(entry, verdict_sha256), None
            elif entry["kind"] == CHANGE:
                _apply_change(entry, routes)
            readable = entry["kind"] != DAMAGED
        except (ValueError, KeyError, TypeError, AttributeError):
            readable = False
        if not readable:
            damage = damage or f"line {number} of the log is damaged"
    return LoggedRoutes(routes, damage)


def _routes_in(entry: Mapping[str, Any], verdict_sha256: str) -> dict[str, tuple[Standing, tuple[Setting, ...]]]:
    """Return the routes of a snapshot; none if it is of another certificate. Raise for one that is damaged."""
    if not isinstance(entry["verdict_sha256"], str):
        raise TypeError("verdict_sha256 is not text")
    if entry["verdict_sha256"] != verdict_sha256:
        return {}
    routes = {}
    for route in entry["routes"]:
        standing = Standing.model_validate(route["standing"])
        routes[standing.workload] = standing, tuple(tuple(sorted(setting.items())) for setting in route["steps"])
    return routes


def _apply_change(entry: Mapping[str, Any], routes: dict[str, tuple[Standing, tuple[Setting, ...]]]) -> None:
    change = RouteChange.model_validate(entry)
    if change.workload in routes:
        standing, ladder = routes[change.workload]
        routes[change.workload] = after_change(standing, change), ladder


def restored_standing(
    name: str, rules: RouteRules, logged: LoggedRoutes, published: PublishedRoutes, at: str
) -> Standing:
    """Return where the route *name* continues: at the lower of the steps in its log and in the overlay.

    Off if neither can be read: a damaged log needs the overlay, and a log that does not know the route needs an overlay
    that is missing, of another certificate, or sound. On an edited ladder a step is that of the same setting.
    """
    logged_route = logged.routes.get(name)
    logged_standing = on_ladder(*logged_route, rules) if logged_route is not None else Standing(workload=name)
    setting, because = published.routes.get(name, (None, ""))
    if name in published.routes:
        step = rules.plain if setting is None else _published_step(setting, rules)
    elif logged.damage is not None or (logged_route is None and published.damage is not None):
        step, because = rules.plain, f"{logged.damage or published.damage}: off until every guard is kept again"
    else:
        return logged_standing
    if step <= logged_standing.step:
        return logged_standing
    return logged_standing.model_copy(update={"step": step, "trying": False, "because": because, "at": at})


def _published_step(setting: Setting, rules: RouteRules) -> int:
    """Return the step of a setting as the overlay writes one: without the knobs that have no value."""
    written = [tuple((knob, value) for knob, value in step if value is not None) for step in rules.ladder]
    return written.index(setting) if setting in written else rules.plain


def on_ladder(standing: Standing, before: tuple[Setting, ...], rules: RouteRules) -> Standing:
    """Return a standing on an edited ladder: the same setting if it is still a step, else plain decoding.

    So an edit never turns speculation on; it only allows a later step up.
    """
    setting = before[standing.step] if 0 <= standing.step < len(before) else None
    return standing.model_copy(update={"step": step_of(setting, rules)})


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
            standing = restored_standing(name, rules, logged, published, stamp(now.wall))
            self.states[name] = start(standing, now.now_ns)
        self._answers = {name: RecentAnswers(now.now_ns) for name in self.rules}

    def _rules(self, remembered: Iterable[str]) -> dict[str, RouteRules]:
        """Return the rules of the policy's routes, and of removed ones: they decode plainly and are remembered.

        So a route that was removed for a while comes back neither as certified nor without its bar.
        """
        names = dict.fromkeys([*(route.workload for route in self.policy.route), *remembered])
        return {name: RouteRules(self.policy.route_of(name).steps, self.policy.watch, self._switched) for name in names}

    def snapshot(self, verdict_sha256: str) -> dict[str, Any]:
        """Return the state from which a later watch continues."""
        return snapshot(verdict_sha256, self.standings, self.rules)

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
                self.states[name] = start(Standing(workload=name, step=rules.plain), now.now_ns)
                self._answers[name] = RecentAnswers(now.now_ns)
                continue
            self.states[name] = states[name]
            changes += self._set_state(name, *after_edit(states[name], before[name], rules, now))
        return changes

    def forget(self, now: Instant) -> None:
        """Drop the evidence from before a gap."""
        for answers in self._answers.values():
            answers.forget(now.now_ns)
        self.states = {name: start(state.standing, now.now_ns) for name, state in self.states.items()}

    def requests(self) -> list[RoundRequest]:
        """Return the requests of a round."""
        return [
            RoundRequest(
                name,
                judged_setting(self.states[name], self.rules[name]),
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
        canaries = guard_judgement.judge_guards(name, evidence, context, judged_setting(state, rules))
        results = (*canaries, *live)
        self.results[name] = results
        return self._set_state(name, *after_round(state, results, rules, now))

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
        return self._set_state(name, *bar(self.states[name], self.rules[name], reason, now))

    def hold(self, name: str, reason: str, now: Instant) -> tuple[RouteChange, ...]:
        """Turn one route off while the server contradicts the policy's conditions."""
        self.results[name] = ()
        return self._set_state(name, *hold(self.states[name], self.rules[name], reason, now))

    def _set_state(self, name: str, state: RouteState, changes: tuple[RouteChange, ...]) -> tuple[RouteChange, ...]:
        before = self.states[name]
        self.states[name] = state
        if state.standing.step != before.standing.step:
            self._answers[name].forget(state.since_ns)  # they belong to another setting
        return changes

    def overlay_route(self, name: str) -> OverlayRoute:
        """Return a route's entry in the overlay."""
        state = self.states[name]
        setting = active_setting(state, self.rules[name])
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
