"""What stands behind a decision, as plain lines, and the decision in one line for a mail or a title."""

import json
import shlex
from collections.abc import Iterable

from gatekeeper.analysis.remedies import remedy
from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.policy import Policy
from gatekeeper.core.text import describe_setting, one_line, printable_error, show_count
from gatekeeper.core.units import show_number
from gatekeeper.report.data.decision import Decision, readable_time
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow
from gatekeeper.report.outcome_signs import MARKS, write_as_words
from gatekeeper.report.phrases import (
    cached_context,
    interval,
    merge_findings,
    prompt_speeds,
    routing,
    step,
    swept_settings,
)

FIGURES = {
    "throughput_ratio": "ratio",
    "answer_throughput_ratio": "whole-answer ratio",
    "acceptance_rate": "acceptance",
    "ttft_delta": "TTFT delta",
    "decode_throughput": "decode",
    "itl_p50": "token median",
    "itl_p95": "token p95",
    "itl_p99": "token p99",
    "plain_itl_p95": "token p95 plainly",
    "plain_itl_p99": "token p99 plainly",
}
"""The metrics that a person looks for first, with their labels."""
LONGEST = 160
"""Characters of a reason in the one-line report; a longer one is cut."""


def render(decision: Decision, policy: Policy | None = None) -> str:
    """Return what stands behind a decision: the figures and checks of each workload and of settings given up.

    The conditions of the *policy* follow, where there is one. The decision itself is the last screen of a run.
    """
    verdict = decision.verdict
    incomplete = bool(verdict.incomplete)
    paragraphs = [_workload_lines(workload, decision.rows, incomplete=incomplete) for workload in verdict.workloads]
    host = [row for row in decision.rows if row.about == "host" and row.abandoned]
    if verdict.host_checks or host:
        paragraphs.append(["host", *_check_lines(verdict.host_checks, incomplete=incomplete), *_given_up(host)])
    if blended := routing(verdict):
        paragraphs.append([blended])
    paragraphs += [[f"{down.workload}: {step(down, '->')} ({down.because})"] for down in verdict.transitions]
    for finding in merge_findings(verdict):
        advice = [f"  {finding.advice}"] if finding.advice else []
        paragraphs.append([f"{finding_title(finding.kind)}, {finding.about}: {finding.detail}", *advice])
    if policy is not None and (certified := conditions(policy)):
        paragraphs.append(certified)
    return "\n".join(printable_error(in_words("\n".join(lines))) + "\n" for lines in paragraphs)


def _workload_lines(workload: WorkloadVerdict, rows: Iterable[ObjectiveRow], *, incomplete: bool) -> list[str]:
    """Return the figures and checks of a workload, and of its settings that were given up."""
    lines = [f"{workload.name}: {write_as_words(workload.outcome)}, {describe_setting(workload.setting)}"]
    judged = {check.metric for check in workload.checks if check.center is not None}
    figures = [
        f"{name} {interval(figure, metric.removeprefix('plain_'))}"
        for metric, name in FIGURES.items()
        if metric not in judged and (figure := workload.measured.figures.get(metric)) is not None
    ]
    if figures:
        lines.append(f"  measured, for prompts like these: {'; '.join(figures)}")
    if prompts := prompt_speeds(workload.measured):
        lines.append(f"  prompts: {prompts}")
    lines += [f"  {cached_context(context)}" for context in workload.measured.contexts]
    lines += [f"  {line}" for line in swept_settings(workload.choice)]
    lines += _check_lines(workload.checks, incomplete=incomplete)
    lines += _given_up(row for row in rows if row.about == workload.name and row.abandoned)
    if workload.outcome is not WorkloadOutcome.PROMOTED:
        lines.append(f"  because {workload.because}")
    return lines


def _given_up(rows: Iterable[ObjectiveRow]) -> list[str]:
    """Return the objectives that settings given up did not meet, each with every setting that was tried."""
    lines = []
    for row in rows:
        for setting, check in row.tried:
            with_it = f"with {describe_setting(setting)}"
            lines.append(f"  {MARKS[check.outcome]:<8} {check.metric}: {check.because}; {with_it}, given up")
        lines += [f"           passes at {row.passes_at}"] if row.passes_at else []
        lines.append(f"           why this objective: {row.check.why}")
    return lines


def _check_lines(checks: tuple[Check, ...], *, incomplete: bool) -> list[str]:
    lines = []
    for check in checks:
        lines.append(f"  {MARKS[check.outcome]:<8} {check.metric}: {check.because}")
        lines += [f"           {line}" for line in explanation(check, incomplete=incomplete)]
    return lines


def explanation(check: Check, *, incomplete: bool) -> list[str]:
    """Return why the objective of a check that does not pass was set, and what to do about an unproven one.

    What to do is left out for an *incomplete* run, where it is always the rest of the run.
    """
    if check.outcome is Outcome.PASS:
        return []
    unproven = check.outcome is Outcome.UNPROVEN and not incomplete
    return [f"why this objective: {check.why}", *([f"what to do: {remedy(check)}"] if unproven else [])]


def conditions(policy: Policy) -> list[str]:
    """Return the conditions under which a policy holds, and how its servers were launched."""
    certified = policy.conditions
    context = f"prompts of at most {certified.longest_prompt} tokens, " if certified.longest_prompt else ""
    sampled = certified.sampling.model_dump(exclude_none=True)
    rows = [
        ("server", f"{certified.backend} with {certified.target}{f' at {certified.url}' if certified.url else ''}"),
        ("sampling", ", ".join(f"{name} {show_number(value, 6)}" for name, value in sampled.items())),
        ("context", f"{context}answers of at most {certified.max_tokens} tokens"),
        ("load", f"at most {show_count(certified.concurrency, 'request')} at once"),
        ("cache", f"prompt cache {certified.prompt_cache}"),
        *([("requests", f"carry {json.dumps(certified.request)}")] if certified.request else []),
    ]
    for launch in policy.launch:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in launch.environment.items())
        about = ", ".join(launch.workloads) or "plain"
        rows.append(("launch", f"{about}: {variables}{shlex.join(launch.command)}"))
    return ["measured under these conditions", *(f"  {name:<11} {text}" for name, text in rows)]


def render_line(decision: Decision) -> str:
    """Return outcome, exit code and decision in one line, with the reason where the exit code is not 0."""
    verdict = decision.verdict
    demo = "" if verdict.grade == "certification" else f", {verdict.grade}"
    head = f"{verdict.slo}: {decision.outcome} (exit code {verdict.exit_code}{demo})"
    parts = [decision.headline]
    if verdict.incomplete:
        parts.append(f"not proven: {_short(verdict.incomplete)}")
    elif decision.reason:
        parts.append(_short(decision.reason))
    elif decision.valid_until and not decision.demo:
        parts.append(f"valid until {readable_time(decision.valid_until)}")
    return one_line(f"{head}: {'; '.join(parts)}") + "\n"


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 4]} ..."
