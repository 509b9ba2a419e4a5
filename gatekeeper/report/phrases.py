"""The phrases that all reports share: outcome signs, figures with intervals, and the sentences about a verdict."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import KNOB_NAMES, counted, describe_setting, last_part, listed
from gatekeeper.core.units import show, show_span
from gatekeeper.core.verdict import Check, Finding, Outcome, Transition, Verdict, WorkloadVerdict

if TYPE_CHECKING:  # so that a command which prints a line does without numpy
    from gatekeeper.report.data.page import PageData

GLYPHS = {"promoted": "✓", "graded_back": "↓", "failed": "✕", "unproven": "?", "interrupted": "‖"}
"""A sign beside every colour: neither has to be seen alone."""
CHECK_GLYPHS = {Outcome.PASS: "✓", Outcome.FAIL: "✕", Outcome.UNPROVEN: "?"}
MARKS = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.UNPROVEN: "unproven"}


def spaced(word: str) -> str:
    """Write a key such as graded_back as words."""
    return word.replace("_", " ")


def passed(checks: Sequence[Check]) -> int:
    """Count the checks that passed."""
    return sum(check.outcome is Outcome.PASS for check in checks)


def bound(check: Check) -> str:
    """Write an objective's bound: ≥ 1.16."""
    return f"{'≥' if check.bound == 'at_least' else '≤'} {show(check.threshold, check.unit)}"


def measured(check: Check) -> str:
    """Write what was measured, with its interval where it is one."""
    if check.center is None:
        return "not measured"
    if check.lo is not None and check.lo == check.hi:
        return show(check.center, check.unit)
    return show_span(check.center, check.lo, check.hi, check.unit)


def interval(figure: Mapping[str, Any], metric: str) -> str:
    """Write a measured figure of a metric with its interval; a share of what plain decoding takes is in percent."""
    if BY_NAME[metric].relative:
        return f"{figure['center']:+.1%} [{figure['lo']:+.1%}, {figure['hi']:+.1%}]"
    return show_span(figure["center"], figure["lo"], figure["hi"], BY_NAME[metric].unit)


def ratio(figure: Mapping[str, Any], center: str = "ratio", *, times: str = "") -> str:
    """Write a ratio to plain decoding, or of two settings, with its interval: 1.31x [1.22, 1.38]."""
    return f"{figure[center]:.2f}{times} [{figure['lo']:.2f}, {figure['hi']:.2f}]"


def step(transition: Transition, arrow: str = "→") -> str:
    """Write a step down the ladder: the setting before and after it."""
    return f"{describe_setting(transition.before)} {arrow} {describe_setting(transition.after)}"


def advised(finding: Finding) -> str:
    """Write what was found, and the advice where there is one."""
    return f"{finding.detail}; {finding.advice}" if finding.advice else finding.detail


def state(page: "PageData") -> str:
    """Return the outcome, or that there is none yet."""
    return "interrupted" if page.unfinished else page.verdict.outcome


def lede(page: "PageData") -> str:
    """Return what the outcome means, in a sentence or two."""
    verdict = page.verdict
    if page.unfinished:
        return (
            f"This run was interrupted {page.unfinished}. What it had measured is shown below, and none of it is a "
            "verdict. The same command with --resume --out RUN_DIR goes on."
        )
    speculating = [one.name for one in verdict.workloads if one.outcome == "promoted"]
    count = f"{len(speculating)} of {counted(len(verdict.workloads), 'workload')}"
    if verdict.outcome == "promoted":
        plainly = [one.name for one in verdict.workloads if one.outcome != "promoted"]
        verb = "decodes plainly, as it may" if len(plainly) == 1 else "decode plainly, as they may"
        rest = f"; {listed(plainly)} {verb}" if plainly else ""
        demo = " The soak was too short for a certificate: this is a demo." if verdict.grade == "demo" else ""
        return f"Safe to deploy policy.toml: every promise is proven. {count} may speculate{rest}.{demo}"
    if verdict.outcome == "unproven":
        return f"Nothing changes: the evidence does not suffice. {counted(len(page.gaps), 'thing')} not proven, below."
    broken = [one.name for one in verdict.workloads if one.outcome == "failed"]
    broken += ["the host"] if any(one.outcome is Outcome.FAIL for one in verdict.host_checks) else []
    if verdict.outcome == "failed":
        drafting = any(one.outcome == "failed" and one.setting.get("draft") for one in verdict.workloads)
        where = "A" if drafting else "Even with plain decoding a"
        return f"{where} promise is broken: {listed(broken)}. {count} may speculate."
    back = [one.name for one in verdict.workloads if one.required and one.outcome == "graded_back"]
    verb = "requires" if len(back) == 1 else "require"
    return f"{listed(back)} {verb} speculation and had to be graded back to plain decoding. {count} may speculate."


def speed(workload: WorkloadVerdict, page: "PageData") -> tuple[float, float, float, str] | None:
    """Return the ratio to plain decoding with its bounds, and where it was seen.

    It is the soak's; of a plain route, that of the last setting that was soaked, or else the best that was swept.
    """
    for metric, name in (("throughput_ratio", "decoding"), ("answer_throughput_ratio", "whole answers")):
        if seen := workload.measured.get(metric):
            return seen["center"], seen["lo"], seen["hi"], f"{name}, in the soak"
    for one in page.distributions:
        if one.workload == workload.name and one.ratio is not None:
            return *one.ratio, f"with {describe_setting(one.setting)}, in {one.source}"
    if (best := _best(workload)) is None:
        return None
    return best["ratio"], best["lo"], best["hi"], f"the best of the sweep: {best['trial']}"


def against_plain(workload: WorkloadVerdict) -> str:
    """Write the speed against plain decoding: of the soak, or, for a plain route, the best the sweep saw."""
    for metric in ("throughput_ratio", "answer_throughput_ratio"):
        if seen := workload.measured.get(metric):
            return ratio(seen, "center")
    best = _best(workload)
    return f"{best['ratio']:.2f} (sweep)" if best is not None else "-"


def _best(workload: WorkloadVerdict) -> Mapping[str, Any] | None:
    tried = [one for one in workload.choice.get("settings", ()) if one["ratio"]]
    return max(tried, key=lambda one: float(one["ratio"]), default=None)


def account(choice: Mapping[str, Any]) -> list[str]:
    """Say why the setting wins or loses, what each knob does, and where concurrency reverses it: a line each.

    Where plain decoding was chosen, the account is of the best setting.
    """
    explained = [one for one in choice.get("settings", ()) if one.get("model")]
    chosen = {knob: value for knob, value in choice.get("setting", {}).items() if value is not None}
    mine = [one for one in explained if chosen and chosen.items() <= one["setting"].items()]
    about = (mine or sorted(explained, key=lambda one: -(one["ratio"] or 0.0)))[:1]
    lines = [f"why, {one['trial']}: {one['model']['because']}" for one in about]
    if effects := choice.get("effects"):
        lines.append("knobs: " + "; ".join(_effect(one) for one in effects))
    if turned := choice.get("concurrency"):
        lines.append(f"concurrency: {turned['says']}")
    return lines


def _effect(one: Mapping[str, Any]) -> str:
    """Write a knob's main effect: the value that moves most, with its interval, against the default."""
    known = [value for value in one["values"] if value["factor"]]
    most = max(known, key=lambda value: max(value["factor"], 1 / value["factor"]), default=None)
    name = KNOB_NAMES.get(one["knob"], one["knob"])
    if most is None:
        return f"{name}: {one['says']}"
    contrast = f"{last_part(most['value'])} against {last_part(one['default'])} is {ratio(most, 'factor', times='x')}"
    return f"{name}: {one['says']}, {contrast}"


def routing(verdict: Verdict) -> str:
    """Write what the routes gain against one setting for all; empty where the sweep cannot say."""
    seen = verdict.routing
    if "gain" not in seen:
        return f"routing: {seen['because']}" if seen else ""
    mix = show(seen["policy_throughput"], "tok/s")
    gain = ratio(seen["gain"], "center", times="x")
    return f"routing: {mix} of the mix, {gain} of {seen['best_static']['trial']} for all; {seen['says']}"
