"""The vigil over one route: a state, folded over its changes, that goes down on evidence and up on more of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.core.policy import Route, Watch
from gatekeeper.core.records import Setting
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Check, Outcome
from gatekeeper.deploy.watch.guards import Judgement

Kind = Literal["down", "off", "try", "settled", "barred"]
"""down: a guard was crossed, one rung. off: evidence went missing, plain decoding. try: a rung up, on probation.
settled: the probation is over; the rung is the same. barred: plain decoding until another certificate."""
UNSOAKED = "; this rung was not soaked, the guards decide"
"""Said of every rung between the certified one and plain decoding."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed for one route: what `watch.jsonl` keeps, and all that its standing is made of."""

    at: str
    """Wall time."""
    workload: str
    kind: Kind
    before: int
    """The rung before; 0 is the certified setting, the last rung is plain decoding."""
    after: int
    because: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    """The setting in force after it, as policy.toml writes one."""
    evidence: tuple[Mapping[str, Any], ...] = ()
    """The checks it rests on, as verdict.json writes checks."""

    def document(self) -> dict[str, Any]:
        """Return the change as watch.jsonl writes it."""
        return {
            "at": self.at,
            "workload": self.workload,
            "change": self.kind,
            "from_rung": self.before,
            "to_rung": self.after,
            "setting": dict(self.setting),
            "because": self.because,
            "evidence": [dict(check) for check in self.evidence],
        }


def change_of(document: Mapping[str, Any]) -> Change:
    """Read a change back; raise ValueError where it is none."""
    try:
        kind, rungs = document["change"], (document["from_rung"], document["to_rung"])
        if kind not in get_args(Kind) or any(type(rung) is not int or rung < 0 for rung in rungs):
            raise ValueError(f"no change of a route: {kind!r}, from {rungs[0]!r} to {rungs[1]!r}")
        words = (str(document["at"]), str(document["workload"]))
        evidence = tuple(document.get("evidence", ()))
        return Change(*words, kind, *rungs, str(document["because"]), document.get("setting", {}), evidence)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no change of a route: {error}") from error


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a route stands: all that outlives a restart."""

    workload: str
    rung: int = 0
    relapses: int = 0
    """How often in a row a rung up did not hold: each doubles the quiet time."""
    trying: bool = False
    """On probation: the rung was gone up to and has not held for its quiet time."""
    barred: str = ""
    """Why nothing but another certificate turns it on again."""
    because: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A standing and the timers that run on it, in monotonic nanoseconds of this process."""

    standing: Standing
    since_ns: int
    """When this rung was entered, or the evidence thrown away."""
    quiet_ns: int
    """Since when no guard was crossed and none lacked evidence."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """By guard: since when each look saw it crossed."""
    fresh: Mapping[str, int] = field(default_factory=dict)
    """By guard: when its newest evidence came."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a route's vigil goes by."""

    rungs: tuple[Setting, ...]
    """As Route.rungs gives them."""
    watch: Watch
    switched: bool
    """The server takes the setting with each request, so that a rung up can be tried by a few answers."""

    @property
    def plain(self) -> int:
        """Return the rung of plain decoding, the last."""
        return len(self.rungs) - 1

    def quiet_s(self, standing: Standing) -> float:
        """Return the quiet time before the next rung up, and for which it must hold."""
        doubled: float = self.watch.quiet_for * 2.0 ** min(standing.relapses, 64)
        return min(self.watch.quiet_most, doubled)


def rules(route: Route, watch: Watch, *, switched: bool) -> Rules:
    """Return the rules of *route*."""
    return Rules(route.rungs, watch, switched)


def after(standing: Standing, change: Change) -> Standing:
    """Return where a route stands after one change of its own."""
    moved = replace(standing, rung=change.after, because=change.because, at=change.at)
    if change.kind == "try":
        return replace(moved, trying=True)
    if change.kind == "settled":
        return replace(moved, trying=False, relapses=0)
    barred = change.because if change.kind == "barred" else standing.barred
    return replace(moved, trying=False, relapses=standing.relapses + standing.trying, barred=barred)


def fold(workload: str, changes: Iterable[Change]) -> Standing:
    """Return where a route stands after *changes*, oldest first; those of other workloads are passed over."""
    standing = Standing(workload)
    for change in changes:
        if change.workload == workload:
            standing = after(standing, change)
    return standing


def begin(standing: Standing, now_ns: int) -> State:
    """Return the state at the start of a watch: every timer begins now, nothing was seen."""
    return State(standing, now_ns, now_ns)


def woken(state: State, now_ns: int) -> State:
    """Return the state after a sleep or a clock that jumped: what was seen before counts no more."""
    return begin(state.standing, now_ns)


def step(
    state: State, seen: Sequence[Judgement], rules: Rules, *, now_ns: int, at: str
) -> tuple[State, tuple[Change, ...]]:
    """Return the state after one look, and what changed, if anything did.

    After a change of the rung the caller throws the route's answers away: they are of another setting.
    """
    state = _noticed(state, seen, rules, now_ns)
    standing = state.standing
    if standing.barred:
        return state, ()
    turn = _turn_down(state, seen, rules, now_ns) if standing.rung < rules.plain else None
    turn = turn or _turn_up(state, seen, rules, now_ns)
    if turn is None:
        return state, ()
    return _changed(state, turn, rules, now_ns, at)


def bar(state: State, rules: Rules, why: str, *, now_ns: int, at: str) -> tuple[State, tuple[Change, ...]]:
    """Turn a route off until another certificate: the policy is over, or another model answers."""
    if state.standing.barred:
        return state, ()
    return _changed(state, _Turn("barred", rules.plain, why), rules, now_ns, at)


def amended(state: State, before: Rules, now: Rules, *, now_ns: int, at: str) -> tuple[State, tuple[Change, ...]]:
    """Return the state under an edited policy: at the rung of the same setting, or off where that is gone."""
    setting = before.rungs[min(state.standing.rung, before.plain)]
    rung = now.rungs.index(setting) if setting in now.rungs else now.plain
    if rung == state.standing.rung and setting in now.rungs:
        return state, ()
    why = "the policy was edited" + ("" if setting in now.rungs else ", and the setting in force is gone")
    return _changed(state, _Turn("off" if rung == now.plain else "down", rung, why), now, now_ns, at)


def in_force(state: State, rules: Rules) -> Setting:
    """Return the setting in force."""
    return rules.rungs[min(state.standing.rung, rules.plain)]


def to_judge(state: State, rules: Rules) -> Setting:
    """Return the setting whose answers tell: the one in force, or while plain the one that a way up would try.

    Where the server can not be switched per request, or the route is barred, it is the one in force.
    """
    rung = min(state.standing.rung, rules.plain)
    trial = rung == rules.plain and rung > 0 and rules.switched and not state.standing.barred
    return rules.rungs[rung - trial]


@dataclass(frozen=True, slots=True)
class _Turn:
    kind: Kind
    rung: int
    because: str
    evidence: tuple[Check, ...] = ()


def _noticed(state: State, seen: Sequence[Judgement], rules: Rules, now_ns: int) -> State:
    """Run the timers: since when each guard is crossed, when each last had evidence, since when all is quiet."""
    failing, fresh = dict(state.failing), dict(state.fresh)
    for one in seen:
        key = one.guard.name
        if one.outcome is Outcome.FAIL:
            failing.setdefault(key, now_ns)
        elif one.check.center is not None:  # what is missing neither crosses nor clears
            failing.pop(key, None)
        if one.fresh_ns is not None:
            fresh[key] = max(one.fresh_ns, fresh.get(key, state.since_ns))
    noticed = replace(state, failing=failing, fresh=fresh)
    loud = any(one.outcome is Outcome.FAIL for one in seen) or _lacking(noticed, seen, rules, now_ns)
    return replace(noticed, quiet_ns=now_ns) if loud else noticed


def silences(
    state: State, seen: Sequence[Judgement], rules: Rules, now_ns: int
) -> Iterator[tuple[float, float, Judgement]]:
    """Yield for each guard that is awake for how many seconds it had no evidence, and for how many it may."""
    for one in seen:
        if not one.asleep:
            silent = (now_ns - state.fresh.get(one.guard.name, state.since_ns)) / 1e9
            yield silent, one.guard.missing_for or rules.watch.missing_for, one


def _lacking(state: State, seen: Sequence[Judgement], rules: Rules, now_ns: int) -> list[tuple[float, Judgement]]:
    """Return the guards whose evidence is missing for longer than they allow, and for how many seconds."""
    return [(silent, one) for silent, limit, one in silences(state, seen, rules, now_ns) if silent > limit]


def _turn_down(state: State, seen: Sequence[Judgement], rules: Rules, now_ns: int) -> _Turn | None:
    if missing := _lacking(state, seen, rules, now_ns):
        said = [f"{one.guard.metric}: no evidence for {show_seconds(silent)}: {_why(one)}" for silent, one in missing]
        return _Turn("off", rules.plain, "; ".join(said), tuple(one.check for _, one in missing))
    unguarded = (now_ns - state.since_ns) / 1e9
    if all(one.asleep for one in seen) and unguarded > rules.watch.missing_for:
        return _Turn("off", rules.plain, f"nothing guards it: no evidence for {show_seconds(unguarded)}")
    crossed = [one for one in seen if one.outcome is Outcome.FAIL and _held(one, state, now_ns)]
    if not crossed:
        return None
    said = [f"{one.guard.metric}: {_why(one)}, for {show_seconds(_crossed_s(one, state, now_ns))}" for one in crossed]
    return _Turn("down", state.standing.rung + 1, "; ".join(said), tuple(one.check for one in crossed))


def _why(one: Judgement) -> str:
    return one.check.because + (f" ({one.guard.why})" if one.guard.why else "")


def _crossed_s(one: Judgement, state: State, now_ns: int) -> float:
    return (now_ns - state.failing[one.guard.name]) / 1e9


def _held(one: Judgement, state: State, now_ns: int) -> bool:
    return _crossed_s(one, state, now_ns) >= one.guard.for_


def _turn_up(state: State, seen: Sequence[Judgement], rules: Rules, now_ns: int) -> _Turn | None:
    """Return a rung up, or the end of a probation: only after the quiet time, and with every guard kept."""
    standing, quiet = state.standing, (now_ns - state.quiet_ns) / 1e9
    awake = [one for one in seen if not one.asleep]
    kept = all(one.outcome is Outcome.PASS and one.fresh_ns is not None for one in awake)
    if not awake or not kept or quiet < rules.quiet_s(standing):
        return None
    said = f"quiet for {show_seconds(quiet)}, every guard kept"
    evidence = tuple(one.check for one in awake)
    if standing.trying:
        return _Turn("settled", standing.rung, said, evidence)
    if standing.rung == 0:
        return None
    return _Turn("try", min(standing.rung, rules.plain) - 1, said, evidence)


def _changed(state: State, turn: _Turn, rules: Rules, now_ns: int, at: str) -> tuple[State, tuple[Change, ...]]:
    standing = state.standing
    unsoaked = turn.kind in {"down", "try"} and 0 < turn.rung < rules.plain
    change = Change(
        at,
        standing.workload,
        turn.kind,
        standing.rung,
        turn.rung,
        turn.because + (UNSOAKED if unsoaked else ""),
        setting_document(rules.rungs[turn.rung]),
        tuple(check.document() for check in turn.evidence),
    )
    moved = after(standing, change)
    return (replace(state, standing=moved) if moved.rung == standing.rung else begin(moved, now_ns)), (change,)


SNAPSHOTS = frozenset({"begun", "policy", "state"})
"""Entries that tell where every route stands; what came before them need not be known."""
CHANGE = "change"

Standings = dict[str, Standing]
Known = dict[str, tuple[Standing, tuple[Setting, ...]]]
"""By workload: where its route stands, and the ladder that its rung counts on."""


def snapshot(verdict_sha256: str, standings: Mapping[str, Standing], rules: Mapping[str, Rules]) -> dict[str, Any]:
    """Return where every route stands, with the ladder that its rung counts on."""
    routes = [
        {"standing": asdict(standing), "rungs": [dict(rung) for rung in rules[name].rungs]}
        for name, standing in standings.items()
    ]
    return {"verdict_sha256": verdict_sha256, "routes": routes}


def known(entries: Iterable[Mapping[str, Any]], verdict_sha256: str) -> Known:
    """Return what *entries*, oldest first, tell of this certificate's routes; what can not be read is passed over."""
    known: Known = {}
    for entry in entries:
        if entry["kind"] in SNAPSHOTS:
            known = _told(entry) if entry.get("verdict_sha256") == verdict_sha256 else {}
        elif entry["kind"] == CHANGE:
            _follow(entry, known)
    return known


def restored(known: Known, rules: Mapping[str, Rules]) -> Standings:
    """Return where each route stands: one that nothing is *known* of begins as certified."""
    return {name: moved(*known[name], one) if name in known else Standing(name) for name, one in rules.items()}


def _told(entry: Mapping[str, Any]) -> Known:
    names = {field.name for field in fields(Standing)}
    found = {}
    for route in entry.get("routes") or ():
        try:
            standing = Standing(**{key: value for key, value in route["standing"].items() if key in names})
            rungs = tuple(tuple(sorted(rung.items())) for rung in route["rungs"])
        except (KeyError, TypeError, AttributeError):
            continue
        found[standing.workload] = standing, rungs
    return found


def _follow(entry: Mapping[str, Any], known: Known) -> None:
    try:
        change = change_of(entry)
    except ValueError:
        return
    if change.workload in known:
        standing, rungs = known[change.workload]
        known[change.workload] = after(standing, change), rungs


def moved(standing: Standing, before: tuple[Setting, ...], rules: Rules) -> Standing:
    """Return a standing on an edited ladder: the same setting where it is still a rung, else plain decoding.

    So an edit never turns anything on; it opens a way up.
    """
    setting = before[standing.rung] if 0 <= standing.rung < len(before) else None
    rung = rules.rungs.index(setting) if setting in rules.rungs else rules.plain
    return standing if rung == standing.rung else replace(standing, rung=rung)
