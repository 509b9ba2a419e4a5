"""The summary in Markdown for a job's page on GitHub: tables, no charts, and no longer than GitHub allows."""

import re
from collections.abc import Sequence

from gatekeeper.core.text import counted, describe_setting, one_line
from gatekeeper.core.verdict import Check, Outcome
from gatekeeper.report import phrases
from gatekeeper.report.data.page import PageData

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
    verdict, state = page.verdict, phrases.state(page)
    blocks = [
        f"## {phrases.GLYPHS[state]} {plain(verdict.slo)}: {phrases.spaced(state)}",
        plain(phrases.lede(page)),
        f"Exit code {verdict.exit_code}, grade {verdict.grade}, manifest `{verdict.manifest_sha256[:16]}`",
        _glance(page),
    ]
    blocks += [plain(blended)] if (blended := phrases.routing(verdict)) else []
    if page.gaps:
        rows = [(plain(one.about), plain(one.because), plain(one.remedy)) for one in page.gaps]
        blocks += ["### What was not proven", table(("What", "Because", "What would prove it"), rows)]
    groups = [(one.name, one.checks) for one in verdict.workloads] + [("host", verdict.host_checks)]
    open_checks = [(name, one) for name, checks in groups for one in checks if one.outcome is not Outcome.PASS]
    passed = [(name, one) for name, checks in groups for one in checks if one.outcome is Outcome.PASS]
    if open_checks:
        blocks += ["### Checks that did not pass", _checks(open_checks)]
    if passed and with_passed:
        blocks.append(f"<details><summary>{counted(len(passed), 'check')} passed</summary>")
        blocks += [_checks(passed), "</details>"]
    steps = [f"1. {plain(f'{one.workload}: {phrases.step(one)}, {one.because}')}" for one in verdict.transitions]
    blocks += ["### Steps down the fallback ladder", "\n".join(steps)] if steps else []
    findings = [
        f"- {plain(f'{phrases.spaced(one.kind)}, {one.about}: {phrases.advised(one)}')}" for one in verdict.findings
    ]
    blocks += ["### Findings", "\n".join(findings)] if findings else []
    return blocks


def _glance(page: PageData) -> str:
    rows = []
    for one in page.verdict.workloads:
        speed = "not measured"
        if (seen := phrases.speed(one)) is not None:
            center, lo, hi, source = seen
            speed = f"**{center:.2f}x** {plain(f'[{lo:.2f}, {hi:.2f}] {source}')}"
        passed = phrases.passed(one.checks)
        outcome = f"{phrases.GLYPHS[one.outcome]} {phrases.spaced(one.outcome)}"
        setting, why = plain(describe_setting(one.setting)), plain(one.because)
        rows.append((f"**{plain(one.name)}**", outcome, setting, speed, f"{passed}/{len(one.checks)}", why))
    return table(("Workload", "Outcome", "Setting", "Against plain", "Checks", "Why"), rows)


def _checks(checks: Sequence[tuple[str, Check]]) -> str:
    rows = [
        (
            f"{phrases.CHECK_GLYPHS[check.outcome]} {check.outcome.word}",
            plain(name),
            f"`{check.metric}` {phrases.bound(check)}",
            plain(f"{phrases.measured(check)} {phrases.about(check)}".rstrip()),
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
    """Escape text for Markdown: one line, no markup, no table cell of its own."""
    flat = one_line(text)
    flat = flat if len(flat) <= LONGEST else f"{flat[:LONGEST]} …"
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#!|~@])", r"\\\1", flat)
