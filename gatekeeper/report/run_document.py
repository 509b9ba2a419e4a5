"""What is shown of a run beside its charts: as a summary in Markdown, as the evidence behind a decision, as a line."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.policy import Policy
from gatekeeper.core.text import describe_setting, one_line, printable_error, show_count
from gatekeeper.core.units import show_number
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import Decision, readable_time
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow, show_measurement
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.requirements import Requirement, open_requirements
from gatekeeper.report.data.workload_summary import WorkloadSummary
from gatekeeper.report.document_markdown import render_markdown
from gatekeeper.report.document_text import render_text
from gatekeeper.report.outcome_signs import write_as_words
from gatekeeper.report.shown_document import (
    Chart,
    Code,
    Command,
    Content,
    Document,
    Facts,
    Fold,
    Listing,
    Node,
    Note,
    Remarks,
    Section,
    Sign,
    Strong,
    Table,
)

Row = tuple[Content, ...]
Draw = Callable[[Check], str]
"""Draws the interval of a check against its bound."""
MOST_BYTES = 1_000_000
"""GitHub drops a step's summary above 1 MiB, all of it."""
MOST_OF_REASON = 160
"""Characters of a reason in the one-line report; a longer one is cut."""
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


def render_summary(page: PageData) -> str:
    """Return the Markdown; where it would be too long the passed checks are left out, then it is cut at the end."""
    for with_passed in (True, False):
        text = render_markdown(run_document(page, with_passed=with_passed))
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES:
            return text.encode("utf-8", "replace").decode()
    short = text.encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore").rsplit("\n", 1)[0]
    return f"{short}\n\nCut off here: see `report.html` for the rest.\n"


def render_evidence(decision: Decision, policy: Policy | None = None) -> str:
    """Return as text what stands behind a decision, and the conditions of its *policy*, where there is one.

    The decision itself is the last screen of a run.
    """
    blocking = blocking_section(decision)
    nodes = [*([blocking] if blocking else []), *_evidence(decision), *([fold_conditions(policy)] if policy else [])]
    return printable_error(in_words(render_text(Document("report", "", nodes))))


def render_line(decision: Decision) -> str:
    """Return outcome, exit code and decision in one line, with the reason where the exit code is not 0."""
    verdict = decision.verdict
    demo = "" if verdict.grade == "certification" else f", {verdict.grade}"
    head = f"{verdict.slo}: {decision.outcome} (exit code {verdict.exit_code}{demo})"
    parts = [decision.headline]
    if verdict.incomplete:
        parts.append(f"not proven: {_shorten(verdict.incomplete)}")
    elif decision.reason:
        parts.append(_shorten(decision.reason))
    elif decision.valid_until and not decision.demo:
        parts.append(f"valid until {readable_time(decision.valid_until)}")
    return one_line(f"{head}: {'; '.join(parts)}") + "\n"


def _shorten(reason: str) -> str:
    return reason if len(reason) <= MOST_OF_REASON else f"{reason[: MOST_OF_REASON - 4]} ..."


def run_document(page: PageData, *, with_passed: bool = True) -> Document:
    """Return the summary of a run without its charts; *with_passed*: the checks that passed, too."""
    verdict, decision = page.verdict, page.decision
    until = decision.valid_until
    valid = f", valid until {readable_time(until)}" if until and not decision.demo else ""
    why = f"Why exit code {verdict.exit_code}: {decision.reason}" if decision.reason else ""
    nodes = (
        blocking_section(decision, open_requirements(decision, page.unfinished)),
        _workloads(decision.workloads),
        Note(
            (
                f"Exit code {verdict.exit_code}, grade {verdict.grade}{valid}, manifest",
                Code(verdict.manifest_sha256[:16]),
            )
        ),
        Note(f"Advice: {decision.advice}") if decision.advice else None,
        Command(decision.next_step(slo=page.manifest.slo.name)),
        gaps_section(page),
        *_evidence(decision, with_passed=with_passed),
    )
    return Document(
        "report",
        f"{verdict.slo}: {phrases.describe_state(page)}{' (demo)' if decision.demo else ''}",
        [node for node in nodes if node is not None],
        [Strong(f"{decision.headline}."), *([why] if why else [])],
        phrases.state(page),
    )


def _evidence(decision: Decision, *, with_passed: bool = True) -> Iterator[Node]:
    """Yield what was measured beside the objectives that block, and what happened."""
    verdict = decision.verdict
    if blended := phrases.routing(verdict):
        yield Note(blended)
    parts = (
        given_up_section(decision),
        _fold_passed_checks(verdict) if with_passed else None,
        *map(_fold_measurements, verdict.workloads),
        steps_section(verdict),
        findings_section(verdict),
    )
    yield from (part for part in parts if part is not None)


def _fold_measurements(workload: WorkloadVerdict) -> Node:
    """Return how a workload ended, its figures that no check has, and its sweep."""
    judged = {check.metric for check in workload.checks if check.center is not None}
    figures = [
        f"{label} {phrases.figure(figure, metric.removeprefix('plain_'))}"
        for metric, label in FIGURES.items()
        if metric not in judged and (figure := workload.measured.figures.get(metric)) is not None
    ]
    lines = [f"because {workload.because}"] if workload.outcome is not WorkloadOutcome.PROMOTED else []
    lines += [f"measured, for prompts like these: {'; '.join(figures)}"] if figures else []
    if prompts := phrases.prompt_speeds(workload.measured):
        lines.append(f"prompts: {prompts}")
    lines += map(phrases.cached_context, workload.measured.contexts)
    title = f"{workload.name}: {write_as_words(workload.outcome)}, {describe_setting(workload.setting)}"
    return Fold(title, (Listing(lines), *([tabulate_sweep(workload.choice)] if workload.choice is not None else [])))


def tabulate_sweep(choice: Choice) -> Table:
    """Return each setting of a sweep with what it measured."""
    rows: list[Row] = [
        (
            describe_setting(dict(result.trial.setting)),
            phrases.swept_speed(result),
            "-" if result.acceptance is None else f"{result.acceptance:.2f}",
            str(result.ratio.n),
        )
        for result in choice.results
    ]
    return Table(("Setting in the sweep", "Against plain", "Acceptance", "Canaries"), rows)


def fold_conditions(policy: Policy) -> Node:
    """Return the conditions under which a policy holds, and how its servers were launched."""
    certified = policy.conditions
    context = f"prompts of at most {certified.longest_prompt} tokens, " if certified.longest_prompt else ""
    sampled = certified.sampling.model_dump(exclude_none=True)
    facts = [
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
        facts.append(("launch", f"{about}: {variables}{shlex.join(launch.command)}"))
    return Fold("measured under these conditions", (Facts(facts),))


def _workloads(workloads: Sequence[WorkloadSummary]) -> Node:
    heads = ("Workload", "Outcome", "Setting", "Against plain", "Plain", "Drafting", "Checks", "Why")
    rows: list[Row] = [
        (
            Strong(workload.name),
            Sign(workload.outcome),
            describe_setting(workload.setting),
            phrases.against_plain(workload.speed),
            phrases.tokens_per_second(workload.plain),
            phrases.tokens_per_second(workload.drafting),
            phrases.checks_passed(workload) or "-",
            workload.because,
        )
        for workload in workloads
    ]
    return Table(heads, rows)


def blocking_section(
    decision: Decision, required: Sequence[Requirement] = (), draw: Draw | None = None
) -> Section | None:
    """Return the objectives and *required* conditions that the exit code follows from; None where all are met.

    A page has them with their intervals, which *draw* draws.
    """
    rows = [row for row in decision.rows if row.blocking]
    return _objectives("What failed or is not proven", rows, required, draw)


def given_up_section(decision: Decision, draw: Draw | None = None) -> Section | None:
    """Return the objectives that only settings which were given up did not meet; None without one."""
    rows = [row for row in decision.rows if not row.blocking]
    return _objectives("Objectives that settings given up did not meet", rows, draw=draw)


def _objectives(
    title: str,
    objectives: Sequence[ObjectiveRow],
    required: Sequence[Requirement] = (),
    draw: Draw | None = None,
) -> Section | None:
    heads = ("Outcome", "Workload", "Objective", "Passes at", "Measured", "Why this objective", "What to do")
    rows: list[Row] = [
        (
            Sign(row.check.outcome.word),
            row.about,
            (Code(row.check.metric), phrases.bound(row.check)),
            row.passes_at or "-",
            _show_measured(row, draw),
            Remarks((row.check.why,)),
            Remarks((row.remedy,)),
        )
        for row in objectives
    ]
    for each in required:
        name, remarks = (Code(each.name), each.rule), (Remarks((each.reason,)), Remarks((each.remedy,)))
        rows.append((Sign(each.outcome.word), each.about or "run", name, "-", each.shown, *remarks))
    return Section(title, (Table(heads, rows),)) if rows else None


def _show_measured(row: ObjectiveRow, draw: Draw | None) -> Content:
    """Return what was measured in words, and on a page its interval against the bound."""
    words = phrases.row_measured(row)
    return words if draw is None or row.check.center is None else (words, Chart(partial(draw, row.check)))


def _fold_passed_checks(verdict: Verdict) -> Node | None:
    groups = [(workload.name, workload.checks) for workload in verdict.workloads] + [("host", verdict.host_checks)]
    passed = [(name, check) for name, checks in groups for check in checks if check.outcome is Outcome.PASS]
    heads = ("Outcome", "Workload", "Objective", "Measured", "n", "Why this objective")
    rows = [_passed_row(name, check) for name, check in passed]
    return Fold(f"{show_count(len(passed), 'check')} passed", (Table(heads, rows),)) if rows else None


def _passed_row(name: str, check: Check) -> Row:
    value = f"{show_measurement(check)} {phrases.about(check)}".rstrip()
    return Sign(check.outcome.word), name, (Code(check.metric), phrases.bound(check)), value, str(check.n), check.why


def gaps_section(page: PageData) -> Section | None:
    """Return what was not proven, and what would prove it; None where that stands elsewhere, or nothing is open."""
    # The tables of objectives have these, and the workloads say why they are open.
    shown = {workload.because for workload in page.decision.workloads}
    shown |= {row.check.because for row in page.decision.rows}
    rows: list[Row] = [
        (Strong(gap.about), in_words(gap.because), gap.remedy)
        for gap in page.gaps
        if gap.because not in shown and gap.about != "the run"
    ]
    table = Table(("What", "Because", "What to do"), rows, "gaps")
    return Section("What was not proven", (table,), name="open") if rows else None


def steps_section(verdict: Verdict) -> Section | None:
    """Return the steps down the fallback ladder; None without one."""
    steps: list[Content] = [
        (
            Strong(f"{step.workload}:"),
            phrases.step(step),
            Remarks((f"{in_words(step.because)} ({step.at[:19].replace('T', ' ')} UTC)",)),
        )
        for step in verdict.transitions
    ]
    return Section("Fallback steps", (Listing(steps, ordered=True),)) if steps else None


def findings_section(verdict: Verdict) -> Section | None:
    """Return what was found, each with its advice."""
    findings: list[Content] = [
        (
            Strong(f"{finding_title(finding.kind)}, {finding.about}:"),
            finding.detail,
            Remarks((finding.advice,) if finding.advice else ()),
        )
        for finding in phrases.merge_findings(verdict)
    ]
    return Section("Findings", (Listing(findings),)) if findings else None
