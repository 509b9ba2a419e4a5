"""The state of one route: it steps down the fallback ladder when a guard is crossed, and up after a quiet time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.core.clock import Instant, stamp
from gatekeeper.core.policy import Watch
from gatekeeper.core.records import Setting
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Check, Outcome
from gatekeeper.live.guards.guard_judgement import GuardResult

Kind = Literal["down", "off", "try", "settled", "barred"]
"""down: a guard was crossed, one step down. off: evidence is missing, plain decoding. try: a step up, on trial.
settled: the trial ended at the same step. barred: plain decoding until another certificate."""
UNSOAKED = "; this step was not soaked: the guards decide"
"""Added for every step between the certified setting and plain decoding."""
_MOST_DOUBLINGS = 64


Step = Annotated[int, Field(ge=0, strict=True)]
"""A step of the ladder: 0 is the certified setting, the last is plain decoding."""


class _Stored(BaseModel):
    """A part of an entry of watch.jsonl; keys of the entry around it are ignored."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    def document(self) -> dict[str, Any]:
        """Return it as watch.jsonl writes it."""
        return self.model_dump(by_alias=True)


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
    evidence: tuple[dict[str, Any], ...] = ()
    """The checks that caused it, as verdict.json writes checks."""


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
    """By guard: since when it was crossed in every round."""
    fresh: Mapping[str, int] = field(default_factory=dict)
    """By guard: time of its newest evidence."""


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
    return _changed(state, move, rules, now)


def bar(state: RouteState, rules: RouteRules, reason: str, now: Instant) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Turn a route off until another certificate: the policy has expired, or another model is serving."""
    if state.standing.barred:
        return state, ()
    return _changed(state, _Move("barred", rules.plain, reason), rules, now)


def hold(state: RouteState, rules: RouteRules, reason: str, now: Instant) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Turn a route off for as long as the server differs from the certified conditions; its quiet time starts anew."""
    if state.standing.barred or state.standing.step >= rules.plain:
        return replace(state, quiet_ns=now.now_ns), ()
    return _changed(state, _Move("off", rules.plain, reason), rules, now)


def after_edit(
    state: RouteState, before: RouteRules, rules: RouteRules, now: Instant
) -> tuple[RouteState, tuple[RouteChange, ...]]:
    """Return the state under an edited policy: at the step of the same setting, or off if that was removed."""
    setting = active_setting(state, before)
    step = step_of(setting, rules)
    if step == state.standing.step and setting in rules.ladder:
        return state, ()
    reason = "the policy was edited" + ("" if setting in rules.ladder else " and no longer lists the setting in force")
    return _changed(state, _Move("off" if step == rules.plain else "down", step, reason), rules, now)


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


def _changed(
    state: RouteState, move: _Move, rules: RouteRules, now: Instant
) -> tuple[RouteState, tuple[RouteChange, ...]]:
    standing = state.standing
    unsoaked = move.kind in {"down", "try"} and 0 < move.step < rules.plain
    change = RouteChange(
        at=stamp(now.wall), workload=standing.workload, kind=move.kind, before=standing.step, after=move.step,
        setting=setting_document(rules.ladder[move.step]), because=move.because + (UNSOAKED if unsoaked else ""),
        evidence=tuple(check.document() for check in move.evidence),
    )  # fmt: skip
    new_standing = after_change(standing, change)
    if new_standing.step == standing.step:
        return replace(state, standing=new_standing), (change,)
    return start(new_standing, now.now_ns), (change,)
