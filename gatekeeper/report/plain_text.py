"""The verdict as plain lines for logs and pipes, and in one line for a mail or a title."""

import json
import shlex

from gatekeeper.analysis.verdict.remedies import remedy
from gatekeeper.core.policy import Policy
from gatekeeper.core.text import counted, describe_setting, one_line, printable
from gatekeeper.core.verdict import Check, Outcome, Verdict, WorkloadVerdict
from gatekeeper.report.phrases import MARKS, account, against_plain, interval, routing, spaced, step

FIGURES = {
    "throughput_ratio": "ratio",
    "answer_throughput_ratio": "whole-answer ratio",
    "acceptance_rate": "acceptance",
    "ttft_delta": "TTFT delta",
    "decode_throughput": "decode",
    "itl_p95": "token p95",
    "itl_p99": "token p99",
}
"""The metrics that a person looks for first, with their labels."""
LONGEST = 160
"""Characters of a reason in the one-line report; a longer one is cut."""


def render(verdict: Verdict) -> str:
    """Return the verdict: the outcome, then each workload with its figures and its checks."""
    lines = [f"{verdict.slo}: {spaced(verdict.outcome)} (exit code {verdict.exit_code}, grade {verdict.grade})"]
    incomplete = bool(verdict.incomplete)
    if incomplete:
        lines.append(f"  not proven: {verdict.incomplete}")
    for workload in verdict.workloads:
        lines += ["", f"  {workload.name}: {spaced(workload.outcome)}, {describe_setting(workload.setting)}"]
        seen = workload.measured
        figures = [f"{name} {interval(seen[metric], metric)}" for metric, name in FIGURES.items() if seen.get(metric)]
        lines += [f"    {'; '.join(figures)}"] if figures else []
        lines += [f"    {line}" for line in account(workload.choice)]
        lines += _check_lines(workload.checks, incomplete=incomplete)
        if workload.outcome != "promoted":
            lines.append(f"    because {workload.because}")
    if verdict.host_checks:
        lines += ["", "  host", *_check_lines(verdict.host_checks, incomplete=incomplete)]
    if blended := routing(verdict):
        lines += ["", f"  {blended}"]
    for one in verdict.transitions:
        lines += ["", f"  {one.workload}: {step(one, '->')} ({one.because})"]
    for finding in verdict.findings:
        lines += ["", f"  {spaced(finding.kind)}, {finding.about}: {finding.detail}"]
        lines += [f"    {finding.advice}"] if finding.advice else []
    return printable("\n".join(lines)) + "\n"


def _check_lines(checks: tuple[Check, ...], *, incomplete: bool) -> list[str]:
    lines = []
    for check in checks:
        lines.append(f"    {MARKS[check.outcome]:<8} {check.metric}: {check.because}")
        lines += [f"             {line}" for line in explanation(check, incomplete=incomplete)]
    return lines


def explanation(check: Check, *, incomplete: bool) -> list[str]:
    """Return why the objective of a check that does not pass was set, and what would prove an unproven one.

    What would prove it is left out for an *incomplete* run, where it is always the rest of the run.
    """
    if check.outcome is Outcome.PASS:
        return []
    unproven = check.outcome is Outcome.UNPROVEN and not incomplete
    return [f"why this objective: {check.why}", *([f"what would prove it: {remedy(check)}"] if unproven else [])]


def conditions(policy: Policy) -> str:
    """Return the conditions under which a policy holds, and how its servers were launched; empty where it has none."""
    known = policy.conditions
    if known is None:
        return ""
    context = f"prompts of at most {known.longest_prompt} tokens, " if known.longest_prompt else ""
    sampled = known.sampling.model_dump(exclude_none=True)
    lines = ["", "  certified under these conditions"]
    lines.append(f"    server      {known.backend} with {known.target}{f' at {known.url}' if known.url else ''}")
    lines.append(f"    sampling    {', '.join(f'{name} {value:g}' for name, value in sampled.items())}")
    lines.append(f"    context     {context}answers of at most {known.max_tokens} tokens")
    lines.append(f"    load        at most {counted(known.concurrency, 'request')} at once")
    lines.append(f"    cache       prompt cache {known.prompt_cache}")
    lines += [f"    requests    carry {json.dumps(known.request)}"] if known.request else []
    for one in policy.launch:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in one.environment.items())
        about = ", ".join(one.workloads) or "plain"
        lines.append(f"    launch      {about}: {variables}{shlex.join(one.command)}")
    return printable("\n".join(lines)) + "\n"


def render_line(verdict: Verdict) -> str:
    """Return the outcome, the exit code, then each workload with its speed against plain decoding or its reason."""
    demo = "" if verdict.grade == "certification" else f", {verdict.grade}"
    head = f"{verdict.slo}: {spaced(verdict.outcome)} (exit code {verdict.exit_code}{demo})"
    parts = [f"not proven: {_short(verdict.incomplete)}"] if verdict.incomplete else []
    parts += [_in_short(one) for one in verdict.workloads]
    parts += [
        f"host {MARKS[one.outcome]}: {_short(one.because)}"
        for one in verdict.host_checks
        if one.outcome is not Outcome.PASS
    ]
    return one_line(f"{head}: {'; '.join(parts)}" if parts else head) + "\n"


def _in_short(one: WorkloadVerdict) -> str:
    if one.outcome == "promoted":
        return f"{one.name} {against_plain(one)} against plain decoding"
    if one.outcome == "graded_back" and not one.required:
        return f"drafting off for {one.name} (optional)"
    return f"{one.name} {spaced(one.outcome)}: {_short(one.because)}"


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 4]} ..."
