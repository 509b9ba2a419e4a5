"""What a watch tells people: a line when it begins, one for each look, one for each change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import acceptance_rate
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.core.records import Generation
from gatekeeper.core.text import describe_setting, quote
from gatekeeper.core.units import show, show_seconds
from gatekeeper.core.verdict import Outcome
from gatekeeper.deploy.watch import route_state
from gatekeeper.deploy.watch.guards import Judgement
from gatekeeper.deploy.watch.route_state import Change, Rules, Standing, State

Style = dict[str, Any]
"""How a terminal shows a line; plain text elsewhere."""

WARNING: Style = {"fg": "yellow"}
BAD: Style = {"fg": "red", "bold": True}
GOOD: Style = {"fg": "green"}
QUIET: Style = {}


def place(standing: Standing, rules: Rules) -> str:
    """Say where a route stands."""
    if standing.barred:
        return f"off for good: {standing.barred}"
    if len(rules.rungs) == 1:
        return "plain decoding, as the policy says"
    if standing.rung == 0:
        return "on trial as certified" if standing.trying else "as certified"
    where = (
        "plain decoding"
        if standing.rung == rules.plain
        else describe_setting(dict(rules.rungs[standing.rung]), whole=True)
    )
    return f"{'on trial with' if standing.trying else 'down to'} {where}"


def beginning(url: str, slo: str, standings: Mapping[str, Standing], rules: Mapping[str, Rules]) -> str:
    """Say what is watched, and why a route is not where it was certified."""
    said = []
    for name, one in standings.items():
        known = one.rung > 0 and not one.barred and one.because
        said.append(f"{name}: {place(one, rules[name])}{f' since {one.at}: {one.because}' if known else ''}")
    return f"watching {slo} at {url}: {'; '.join(said)}"


def cost(duty: float, interval: float) -> str:
    """Say what the watch may cost the server."""
    hour = show_seconds(duty * 3600)
    return f"canaries take at most {100 * duty:g} % of the server's time ({hour} an hour); looks every {interval:g} s"


def load(document: Mapping[str, Any]) -> str:
    """Say what the canaries took so far."""
    share, bound = document["share"], document["bound"]
    ahead = ", the first being asked ahead of its time" if share > bound else ""
    return f"load {100 * share:.2g} % of at most {100 * bound:g} %{ahead}"


def look(at: str, routes: Sequence[tuple[Standing, Rules, Sequence[Judgement]]], cost: Mapping[str, Any]) -> str:
    """Say where every route stands, and which of its guards are not kept."""
    said = []
    for standing, rules, judged in routes:
        doubts = "".join(f", {doubt}" for one in judged if (doubt := _doubt(one)) is not None)
        said.append(f"{standing.workload}: {place(standing, rules)}{doubts}")
    return f"{at[11:19]}Z {'; '.join(said)}; {load(cost)}"


def _doubt(one: Judgement) -> str | None:
    if one.asleep or one.outcome is Outcome.PASS:
        return None
    check = one.check
    if one.outcome is Outcome.UNPROVEN:
        return f"{check.metric} {'undecided' if one.fresh_ns is not None else 'not seen'}"
    value = "" if check.center is None else f" {show(check.center, check.unit)}"
    bound = f"{check.bound.replace('_', ' ')} {show(check.threshold, check.unit)}"
    return f"{check.metric}{value} is past {bound}"


def change(one: Change) -> tuple[str, Style]:
    """Say what changed and why, and how it is shown."""
    step = {
        "down": "down to",
        "off": "off:",
        "try": "tried again with",
        "settled": "settled on",
        "barred": "off for good:",
    }
    setting = describe_setting(dict(sorted(one.setting.items())), whole=True)
    style = GOOD if one.kind in {"try", "settled"} else BAD
    return f"{one.at[11:19]}Z {one.workload}: {step[one.kind]} {setting}: {one.because}", style


MUTE = {
    "mlx-server": "serve with `python -m gatekeeper.backends.mlx_tap` in the place of `python -m mlx_lm server`, or "
    "take that guard out of the policy",
}
"""By backend: what makes a server tell its acceptance that does not."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that did not change a route, but will if it goes on."""

    kind: str
    """fault: answers fail. answering: they no longer do. lacking: a guard finds no evidence."""
    text: str
    detail: dict[str, Any]

    @property
    def good(self) -> bool:
        """Tell whether it is good news."""
        return self.kind == "answering"


class Notices:
    """Says each thing once, until it is over."""

    def __init__(self, backend: str) -> None:
        """Give advice about the servers of *backend*."""
        self._backend = backend
        self._failing: set[str] = set()
        self._tells: dict[str, bool] = {}
        """By workload: whether any drafted answer told what was accepted."""
        self._told: set[tuple[str, str]] = set()

    def heard(self, one: Generation) -> Notice | None:
        """Take an answer in; say where the first of several fails, and where they come again."""
        name, fault = one.workload, one.answer.fault
        if fault is not None:
            new, why = name not in self._failing, quote(fault)
            self._failing.add(name)
            return Notice("fault", f"{name}: no answer: {why}", {"because": why}) if new else None
        if speculates(one.setting):
            told = (acceptance_rate(known.answer) for known in counted_or_claimed((one,))[0])
            self._tells[name] = self._tells.get(name, False) or any(share is not None for share in told)
        if name not in self._failing:
            return None
        self._failing.remove(name)
        return Notice("answering", f"{name}: it answers again", {})

    def lacking(self, state: State, judged: Sequence[Judgement], rules: Rules, now_ns: int) -> Iterator[Notice]:
        """Say which guards of a route that speculates find no evidence, and when that turns it off."""
        if state.standing.rung >= rules.plain:
            return
        name = state.standing.workload
        silences = list(route_state.silences(state, judged, rules, now_ns))
        if not silences:
            limit = rules.watch.missing_for
            yield from self._once(name, "", f"no guard watches it, so it is off after {show_seconds(limit)}", limit)
        for silent, limit, one in silences:
            metric, left = one.guard.metric, max(0.0, limit - silent)
            mute = metric == "acceptance_rate" and one.check.center is None and self._tells.get(name) is False
            if mute:
                said = f"this server tells nobody what it accepts, so the guard on {metric} turns speculation off in "
                said += f"{show_seconds(left)}: {MUTE.get(self._backend, 'take that guard out of the policy')}"
                yield from self._once(name, metric, said, left)
            elif silent > limit / 2:
                said = f"no evidence of {metric} for {show_seconds(silent)} ({one.check.because})"
                yield from self._once(name, metric, f"{said}: speculation is off in {show_seconds(left)} without", left)
            else:
                self._told.discard((name, metric))

    def _once(self, name: str, metric: str, said: str, left: float) -> Iterator[Notice]:
        if (name, metric) not in self._told:
            self._told.add((name, metric))
            detail = {"metric": metric or None, "off_in": round(left, 3), "because": said}
            yield Notice("lacking", f"{name}: {said}", detail)
