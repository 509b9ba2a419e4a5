"""What is shown of a run beside its charts: the objectives, what is open, the steps down the ladder, the findings."""

from collections.abc import Sequence

from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.text import describe_setting, show_count
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow, show_measurement
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.requirements import Requirement, open_requirements
from gatekeeper.report.data.workload_summary import WorkloadSummary
from gatekeeper.report.shown_document import (
    Code,
    Command,
    Content,
    Document,
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


def run_document(page: PageData, *, with_passed: bool = True) -> Document:
    """Return the summary of a run without its charts; *with_passed*: the checks that passed, too."""
    verdict, decision = page.verdict, page.decision
    until = decision.valid_until
    valid = f", valid until {readable_time(until)}" if until and not decision.demo else ""
    why = f"Why exit code {verdict.exit_code}: {decision.reason}" if decision.reason else ""
    blocking = [row for row in decision.rows if row.blocking]
    given_up = [row for row in decision.rows if not row.blocking]
    blended = phrases.routing(verdict)
    nodes = (
        _objectives("What failed or is not proven", blocking, open_requirements(decision, page.unfinished)),
        _workloads(decision.workloads),
        Note(
            (
                f"Exit code {verdict.exit_code}, grade {verdict.grade}{valid}, manifest",
                Code(verdict.manifest_sha256[:16]),
            )
        ),
        Note(f"Advice: {decision.advice}") if decision.advice else None,
        Command(decision.next_step(slo=page.manifest.slo.name)),
        Note(blended) if blended else None,
        gaps_section(page, with_grade=True),
        _objectives("Objectives that settings given up did not meet", given_up),
        _fold_passed_checks(page) if with_passed else None,
        steps_section(page),
        findings_section(page),
    )
    return Document(
        "report",
        f"{verdict.slo}: {phrases.describe_state(page)}{' (demo)' if decision.demo else ''}",
        [node for node in nodes if node is not None],
        [Strong(f"{decision.headline}."), *([why] if why else [])],
        phrases.state(page),
    )


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


def _objectives(title: str, objectives: Sequence[ObjectiveRow], required: Sequence[Requirement] = ()) -> Section | None:
    heads = ("", "Workload", "Objective", "Measured", "Passes at", "Why this objective", "What to do")
    rows: list[Row] = [
        (
            Sign(row.check.outcome.word),
            row.about,
            (Code(row.check.metric), phrases.bound(row.check)),
            phrases.row_measured(row),
            row.passes_at or "-",
            row.check.why,
            row.remedy,
        )
        for row in objectives
    ]
    for each in required:
        name = (Code(each.name), each.rule)
        rows.append((Sign(each.outcome.word), each.about or "run", name, each.shown, "-", each.reason, each.remedy))
    return Section(title, (Table(heads, rows),)) if rows else None


def _fold_passed_checks(page: PageData) -> Node | None:
    verdict = page.verdict
    groups = [(workload.name, workload.checks) for workload in verdict.workloads] + [("host", verdict.host_checks)]
    passed = [(name, check) for name, checks in groups for check in checks if check.outcome is Outcome.PASS]
    heads = ("", "Workload", "Objective", "Measured", "n", "Because")
    rows = [_passed_row(name, check) for name, check in passed]
    return Fold(f"{show_count(len(passed), 'check')} passed", (Table(heads, rows),)) if rows else None


def _passed_row(name: str, check: Check) -> Row:
    value = f"{show_measurement(check)} {phrases.about(check)}".rstrip()
    return Sign(check.outcome.word), name, (Code(check.metric), phrases.bound(check)), value, str(check.n), check.why


def gaps_section(page: PageData, *, with_grade: bool = False) -> Section | None:
    """Return what was not proven, and what would prove it; None where that stands elsewhere, or nothing is open.

    *with_grade*: what the grade lacks as well, which a page says in its first line.
    """
    # The tables of objectives have these, and the workloads say why they are open.
    shown = {workload.because for workload in page.decision.workloads}
    shown |= {row.check.because for row in page.decision.rows} if with_grade else set()
    rows: list[Row] = [
        (Strong(gap.about), in_words(gap.because), gap.remedy)
        for gap in page.gaps
        if gap.because not in shown and gap.about != ("the run" if with_grade else "the grade")
    ]
    table = Table(("What", "Because", "What to do"), rows, "gaps")
    return Section("What was not proven", (table,), name="open") if rows else None


def steps_section(page: PageData) -> Section | None:
    """Return the steps down the fallback ladder; none of a run under way that has judged nothing yet."""
    steps: list[Content] = [
        (
            Strong(f"{step.workload}:"),
            phrases.step(step),
            Remarks((f"{in_words(step.because)} ({step.at[:19].replace('T', ' ')} UTC)",)),
        )
        for step in page.verdict.transitions
    ]
    foreseen = page.progress is not None and not any(workload.checks for workload in page.verdict.workloads)
    return Section("Fallback steps", (Listing(steps, ordered=True),)) if steps and not foreseen else None


def findings_section(page: PageData) -> Section | None:
    """Return what was found, each with its advice."""
    findings: list[Content] = [
        (
            Strong(f"{finding_title(finding.kind)}, {finding.about}:"),
            finding.detail,
            Remarks((finding.advice,) if finding.advice else ()),
        )
        for finding in phrases.merge_findings(page.verdict)
    ]
    return Section("Findings", (Listing(findings),)) if findings else None
