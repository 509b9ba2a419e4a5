"""The verdict as plain lines, for logs and pipes."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.analysis.verdict.remedies import remedy
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import KNOB_NAMES, describe_setting, last_part, printable
from gatekeeper.core.units import show, show_span
from gatekeeper.core.verdict import Check, Outcome, Verdict, WorkloadVerdict

MARKS = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.UNPROVEN: "unproven"}


def render(verdict: Verdict) -> str:
    """Return the verdict: the outcome, then each workload with its figures and the promises it does not keep."""
    lines = [f"{verdict.slo}: {verdict.outcome} (exit code {verdict.exit_code}, grade {verdict.grade})"]
    if verdict.incomplete:
        lines.append(f"  not proven: {verdict.incomplete}")
    for workload in verdict.workloads:
        lines += ["", headline(workload)]
        lines += [f"    {figures(workload)}"] if figures(workload) else []
        lines += [f"    {line}" for line in account(workload)]
        lines += check_lines(workload.checks, incomplete=bool(verdict.incomplete))
        if workload.outcome != "promoted":
            lines.append(f"    because {workload.because}")
    if verdict.host_checks:
        lines += ["", "  host", *check_lines(verdict.host_checks, incomplete=bool(verdict.incomplete))]
    if blended := routing(verdict):
        lines += ["", f"  {blended}"]
    for step in verdict.transitions:
        lines += [
            "",
            f"  {step.workload}: {describe_setting(step.before)} -> {describe_setting(step.after)} ({step.because})",
        ]
    for finding in verdict.findings:
        lines += ["", f"  {finding.kind}, {finding.about}: {finding.detail}"]
        lines += [f"    {finding.advice}"] if finding.advice else []
    return printable("\n".join(lines)) + "\n"


def account(workload: WorkloadVerdict) -> list[str]:
    """Say why the setting wins or loses, what each knob does, and where concurrency turns it round: a line each."""
    return account_lines(workload.choice)


def account_lines(choice: Mapping[str, Any]) -> list[str]:
    """Write a sweep's account of its choice; of the best setting where plain decoding was chosen."""
    told = [one for one in choice.get("settings", ()) if one.get("model")]
    chosen = {knob: value for knob, value in choice.get("setting", {}).items() if value is not None}
    mine = [one for one in told if chosen and chosen.items() <= one["setting"].items()]
    about = (mine or sorted(told, key=lambda one: -(one["ratio"] or 0.0)))[:1]
    lines = [f"why, {one['trial']}: {one['model']['because']}" for one in about]
    if effects := choice.get("effects"):
        lines.append("knobs: " + "; ".join(effect(one) for one in effects))
    if turned := choice.get("concurrency"):
        lines.append(f"concurrency: {turned['says']}")
    return lines


def effect(one: Mapping[str, Any]) -> str:
    """Write a knob's main effect: the value that moves most, with its interval, against the default."""
    known = [value for value in one["values"] if value["factor"]]
    most = max(known, key=lambda value: max(value["factor"], 1 / value["factor"]), default=None)
    name = KNOB_NAMES.get(one["knob"], one["knob"])
    if most is None:
        return f"{name}: {one['says']}"
    figures = f"{most['factor']:.2f}x [{most['lo']:.2f}, {most['hi']:.2f}]"
    return f"{name}: {one['says']}, {last_part(most['value'])} against {last_part(one['default'])} is {figures}"


def routing(verdict: Verdict) -> str:
    """Write what the routes win against one setting for all; empty where the sweep can not say."""
    seen = verdict.routing
    if "gain" not in seen:
        return f"routing: {seen['because']}" if seen else ""
    gain, static = seen["gain"], seen["best_static"]
    figures = f"{gain['center']:.2f}x [{gain['lo']:.2f}, {gain['hi']:.2f}]"
    policy = show(seen["policy_throughput"], "tok/s")
    return f"routing: {policy} of the mix, {figures} of {static['trial']} for all; {seen['says']}"


def headline(workload: WorkloadVerdict) -> str:
    """Name a workload, what it ends in and its setting."""
    return f"  {workload.name}: {workload.outcome.replace('_', ' ')}, {describe_setting(workload.setting)}"


def against_plain(workload: WorkloadVerdict) -> str:
    """Write the speed against plain decoding: of the soak, or, for a plain route, the best the sweep saw."""
    for metric in ("throughput_ratio", "answer_throughput_ratio"):
        if seen := workload.measured.get(metric):
            return f"{seen['center']:.2f} [{seen['lo']:.2f}, {seen['hi']:.2f}]"
    swept = [float(one["ratio"]) for one in workload.choice.get("settings", ()) if one["ratio"]]
    return f"{max(swept):.2f} (sweep)" if swept else "-"


def interval(measured: Mapping[str, Any], metric: str, unit: str) -> str:
    """Write a measured figure with its interval, or nothing."""
    seen = measured.get(metric)
    if not seen:
        return ""
    if BY_NAME[metric].relative:
        return f"{seen['center']:+.1%} [{seen['lo']:+.1%}, {seen['hi']:+.1%}]"
    return show_span(seen["center"], seen["lo"], seen["hi"], unit)


def figures(workload: WorkloadVerdict) -> str:
    """Write the figures a person looks for first."""
    found = []
    for metric, name, unit in (
        ("throughput_ratio", "ratio", "1"),
        ("answer_throughput_ratio", "whole-answer ratio", "1"),
        ("acceptance_rate", "acceptance", "1"),
        ("ttft_delta", "TTFT delta", "1"),
        ("decode_throughput", "decode", "tok/s"),
    ):
        if written := interval(workload.measured, metric, unit):
            found.append(f"{name} {written}")
    return "; ".join(found)


def check_lines(checks: tuple[Check, ...], *, incomplete: bool = False) -> list[str]:
    """Write each promise; one that is not kept with the reason it was made for, an open one with what would prove it.

    Of an *incomplete* run that is always the same: its rest.
    """
    lines = []
    for check in checks:
        lines.append(f"    {MARKS[check.outcome]:<8} {check.metric}: {check.because}")
        if check.outcome is not Outcome.PASS:
            lines.append(f"             why: {check.why}")
        if check.outcome is Outcome.UNPROVEN and not incomplete:
            lines.append(f"             what would prove it: {remedy(check)}")
    return lines
