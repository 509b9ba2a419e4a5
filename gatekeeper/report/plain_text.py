"""The verdict as plain lines for logs and pipes, and in one line for a mail or a title."""

import json
import shlex
from collections.abc import Iterable

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome
from gatekeeper.analysis.verdict.unproven import remedy
from gatekeeper.core.policy import Policy
from gatekeeper.core.text import counted, describe_setting, one_line, printable_error
from gatekeeper.core.verdict import Check, Outcome
from gatekeeper.report.data.decision import Decision, readable_time
from gatekeeper.report.data.objective_rows import ObjectiveRow
from gatekeeper.report.phrases import MARKS, account, interval, merged, prompt_speeds, routing, spaced, step

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


def render(decision: Decision) -> str:
    """Return the decision, then each workload with its figures, its checks and those of the settings given up."""
    verdict = decision.verdict
    lines = [f"{verdict.slo}: {spaced(verdict.outcome)} (exit code {verdict.exit_code}, grade {verdict.grade})"]
    lines.append(f"  {decision.headline}")
    incomplete = bool(verdict.incomplete)
    if incomplete:
        lines.append(f"  not proven: {verdict.incomplete}")
    elif decision.reason:
        lines.append(f"  why exit code {verdict.exit_code}: {decision.reason}")
    for workload in verdict.workloads:
        lines += ["", f"  {workload.name}: {spaced(workload.outcome)}, {describe_setting(workload.setting)}"]
        measured = workload.measured.figures
        figures = [
            f"{name} {interval(measured[metric], metric)}" for metric, name in FIGURES.items() if metric in measured
        ]
        lines += [f"    {'; '.join(figures)}"] if figures else []
        lines += [f"    prompts: {prompts}"] if (prompts := prompt_speeds(workload.measured)) else []
        lines += [f"    {line}" for line in account(workload.choice)]
        lines += _check_lines(workload.checks, incomplete=incomplete)
        lines += _given_up(row for row in decision.rows if row.about == workload.name and row.abandoned)
        if workload.outcome is not WorkloadOutcome.PROMOTED:
            lines.append(f"    because {workload.because}")
    host = [row for row in decision.rows if row.about == "host" and row.abandoned]
    if verdict.host_checks or host:
        lines += ["", "  host", *_check_lines(verdict.host_checks, incomplete=incomplete), *_given_up(host)]
    if blended := routing(verdict):
        lines += ["", f"  {blended}"]
    for transition in verdict.transitions:
        lines += ["", f"  {transition.workload}: {step(transition, '->')} ({transition.because})"]
    for finding in merged(verdict):
        lines += ["", f"  {spaced(finding.kind)}, {finding.about}: {finding.detail}"]
        lines += [f"    {finding.advice}"] if finding.advice else []
    return printable_error("\n".join(lines)) + "\n"


def _given_up(rows: Iterable[ObjectiveRow]) -> list[str]:
    """Return the objectives that settings given up did not meet, each with every setting that was tried."""
    lines = []
    for row in rows:
        for setting, check in row.tried:
            with_it = f"with {describe_setting(setting)}"
            lines.append(f"    {MARKS[check.outcome]:<8} {check.metric}: {check.because}; {with_it}, given up")
        lines += [f"             passes at {row.passes_at}"] if row.passes_at else []
        lines.append(f"             why this objective: {row.check.why}")
    return lines


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
    certified = policy.conditions
    if certified is None:
        return ""
    context = f"prompts of at most {certified.longest_prompt} tokens, " if certified.longest_prompt else ""
    sampled = certified.sampling.model_dump(exclude_none=True)
    lines = ["", "  certified under these conditions"]
    lines.append(
        f"    server      {certified.backend} with {certified.target}{f' at {certified.url}' if certified.url else ''}"
    )
    lines.append(f"    sampling    {', '.join(f'{name} {value:g}' for name, value in sampled.items())}")
    lines.append(f"    context     {context}answers of at most {certified.max_tokens} tokens")
    lines.append(f"    load        at most {counted(certified.concurrency, 'request')} at once")
    lines.append(f"    cache       prompt cache {certified.prompt_cache}")
    lines += [f"    requests    carry {json.dumps(certified.request)}"] if certified.request else []
    for launch in policy.launch:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in launch.environment.items())
        about = ", ".join(launch.workloads) or "plain"
        lines.append(f"    launch      {about}: {variables}{shlex.join(launch.command)}")
    return printable_error("\n".join(lines)) + "\n"


def render_line(decision: Decision) -> str:
    """Return outcome, exit code and decision in one line, with the reason where the exit code is not 0."""
    verdict = decision.verdict
    demo = "" if verdict.grade == "certification" else f", {verdict.grade}"
    head = f"{verdict.slo}: {spaced(verdict.outcome)} (exit code {verdict.exit_code}{demo})"
    parts = [decision.headline]
    if verdict.incomplete:
        parts.append(f"not proven: {_short(verdict.incomplete)}")
    elif decision.reason:
        parts.append(_short(decision.reason))
    elif decision.valid_until:
        parts.append(f"valid until {readable_time(decision.valid_until)}")
    return one_line(f"{head}: {'; '.join(parts)}") + "\n"


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 4]} ..."
