"""What a watch tells people: a line when it begins, one for each look, one for each change."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.terms.outcome import Outcome
from gatekeeper.terms.records import Setting
from gatekeeper.terms.units import show, show_seconds
from gatekeeper.verdict.guard import Judgement
from gatekeeper.verdict.vigil import Change, Rules, Standing

Style = dict[str, Any]
"""How a terminal shows a line; plain text elsewhere."""

WARNING: Style = {"fg": "yellow"}
BAD: Style = {"fg": "red", "bold": True}
GOOD: Style = {"fg": "green"}
QUIET: Style = {}


def knobs(setting: Setting) -> str:
    """Write a setting as people say it."""
    turned = dict(setting)
    if turned.get("draft") is None:
        return "plain decoding"
    others = ", ".join(f"{knob} {value}" for knob, value in turned.items() if knob != "draft")
    return f"{turned['draft']}{f' ({others})' if others else ''}"


def place(standing: Standing, rules: Rules) -> str:
    """Say where a route stands."""
    if standing.barred:
        return f"off for good: {standing.barred}"
    if len(rules.rungs) == 1:
        return "plain decoding, as the policy says"
    if standing.rung == 0:
        return "on trial as certified" if standing.trying else "as certified"
    where = "plain decoding" if standing.rung == rules.plain else knobs(rules.rungs[standing.rung])
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
    setting = knobs(tuple(sorted(one.setting.items())))
    style = GOOD if one.kind in {"try", "settled"} else BAD
    return f"{one.at[11:19]}Z {one.workload}: {step[one.kind]} {setting}: {one.because}", style
