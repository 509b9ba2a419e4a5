"""The summary in Markdown for a job's page on GitHub: tables, no charts, and no longer than GitHub allows."""

import re
from collections.abc import Sequence

from gatekeeper.core.text import counted, describe_setting, one_line
from gatekeeper.core.verdict import Check, Outcome
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow, measured
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.workload_summary import WorkloadSummary
from gatekeeper.report.outcome_signs import glyph_of, spaced

MOST_BYTES = 1_000_000
"""GitHub drops a step's summary above 1 MiB, all of it."""
LONGEST = 600
"""Characters of one cell."""


def render(page: PageData) -> str:
    """Return the summary; where it would be too long the passed checks are left out, then it is cut at the end."""
    for with_passed in (True, False):
        text = "\n\n".join(_blocks(page, with_passed=with_passed)) + "\n"
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES:
            return text.encode("utf-8", "replace").decode()
    short = text.encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore").rsplit("\n", 1)[0]
    return f"{short}\n\nCut off here: see `report.html` for the rest.\n"


def _blocks(page: PageData, *, with_passed: bool) -> list[str]:
    verdict, state, decided = page.verdict, phrases.state(page), page.decision
    until = f", valid until {readable_time(decided.valid_until)}" if decided.valid_until and not decided.demo else ""
    blocks = [
        f"## {glyph_of(state)} {plain(verdict.slo)}: {phrases.ended(page)}{' (demo)' if decided.demo else ''}",
        f"**{plain(decided.headline)}.**",
        *([plain(f"Why exit code {verdict.exit_code}: {decided.reason}")] if decided.reason else []),
    ]
    blocking = [row for row in decided.rows if row.blocking]
    if blocking:
        blocks += ["### Objectives that failed or are not proven", _rows(blocking)]
    blocks += [
        _glance(decided.workloads),
        f"Exit code {verdict.exit_code}, grade {verdict.grade}{until}, manifest `{verdict.manifest_sha256[:16]}`",
        *([f"Advice: {plain(decided.advice)}"] if decided.advice else []),
        f"Next: {plain(decided.next_step(slo=page.manifest.slo.name))}",
    ]
    blocks += [plain(blended)] if (blended := phrases.routing(verdict)) else []
    # The first table has the objectives, and what the exit code follows from the workloads.
    open_ones = {row.check.because for row in decided.rows} | {workload.because for workload in decided.workloads}
    if gaps := [gap for gap in page.gaps if gap.because not in open_ones]:
        rows = [(plain(gap.about), plain(gap.because), plain(gap.remedy)) for gap in gaps]
        blocks += ["### What was not proven", table(("What", "Because", "What to do"), rows)]
    if given_up := [row for row in decided.rows if not row.blocking]:
        blocks += ["### Objectives that settings given up did not meet", _rows(given_up)]
    groups = [(workload.name, workload.checks) for workload in verdict.workloads] + [("host", verdict.host_checks)]
    passed = [(name, check) for name, checks in groups for check in checks if check.outcome is Outcome.PASS]
    if passed and with_passed:
        blocks.append(f"<details><summary>{counted(len(passed), 'check')} passed</summary>")
        blocks += [_checks(passed), "</details>"]
    steps = [f"1. {plain(f'{step.workload}: {phrases.step(step)}, {step.because}')}" for step in verdict.transitions]
    blocks += ["### Steps down the fallback ladder", "\n".join(steps)] if steps else []
    findings = [
        f"- {plain(f'{finding_title(finding.kind)}, {finding.about}: {phrases.advised(finding)}')}"
        for finding in phrases.merged(verdict)
    ]
    blocks += ["### Findings", "\n".join(findings)] if findings else []
    return blocks


def _glance(workloads: Sequence[WorkloadSummary]) -> str:
    rows = [
        (
            f"**{plain(workload.name)}**",
            f"{glyph_of(workload.outcome)} {spaced(workload.outcome)}",
            plain(describe_setting(workload.setting)),
            plain(phrases.against_plain(workload.speed)),
            plain(phrases.tokens_per_second(workload.plain)),
            plain(phrases.tokens_per_second(workload.drafting)),
            phrases.checks_passed(workload) or "-",
            plain(workload.because),
        )
        for workload in workloads
    ]
    return table(("Workload", "Outcome", "Setting", "Against plain", "Plain", "Drafting", "Checks", "Why"), rows)


def _rows(rows: Sequence[ObjectiveRow]) -> str:
    return table(
        ("", "Workload", "Objective", "Measured", "Passes at", "Why this objective", "What to do"),
        [
            (
                f"{glyph_of(row.check.outcome.word)} {row.check.outcome.word}",
                plain(row.about),
                f"`{row.check.metric}` {phrases.bound(row.check)}",
                plain(phrases.row_measured(row)),
                plain(row.passes_at or "-"),
                plain(row.check.why),
                plain(row.remedy),
            )
            for row in rows
        ],
    )


def _checks(checks: Sequence[tuple[str, Check]]) -> str:
    rows = [
        (
            f"{glyph_of(check.outcome.word)} {check.outcome.word}",
            plain(name),
            f"`{check.metric}` {phrases.bound(check)}",
            plain(f"{measured(check)} {phrases.about(check)}".rstrip()),
            str(check.n),
            plain(check.because if check.outcome is not Outcome.PASS else check.why),
        )
        for name, check in checks
    ]
    return table(("", "Workload", "Objective", "Measured", "n", "Because"), rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Escape text for Markdown: one line, no markup, no table cell of its own, no kind of a finding."""
    flat = one_line(in_words(text))
    flat = flat if len(flat) <= LONGEST else f"{flat[:LONGEST]} …"
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#!|~@])", r"\\\1", flat)
