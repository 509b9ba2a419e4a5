"""The evidence of a page: its sections in their order, steps down the ladder and findings among them."""

from gatekeeper.report import phrases
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.html import soak_charts
from gatekeeper.report.html.markup import Markup, el, note, section
from gatekeeper.report.html.sections.conversations_section import conversations
from gatekeeper.report.html.sections.energy_section import energies
from gatekeeper.report.html.sections.latency_section import latency_section
from gatekeeper.report.html.sections.manifest_section import manifest_section
from gatekeeper.report.html.sections.sweep_section import sweep_section


def sections(page: PageData) -> list[Markup]:
    """Return the sections that follow the objectives; those with nothing to show are left out."""
    verdict = page.verdict
    measured = (
        conversations(verdict),
        energies(verdict),
        sweep_section(page),
        latency_section(page),
        soak_charts.soaks(page),
    )
    return [part for part in (*measured, _transitions(page), _findings(page), manifest_section(page)) if part]


def _transitions(page: PageData) -> Markup | None:
    steps = [
        el(
            "li",
            el("strong", step.workload),
            f": {phrases.step(step)}",
            note(f"{in_words(step.because)} ({step.at[:19].replace('T', ' ')} UTC)"),
        )
        for step in page.verdict.transitions
    ]
    foreseen = page.progress is not None and not any(workload.checks for workload in page.verdict.workloads)
    return section("Fallback steps", el("ol", *steps, class_="events")) if steps and not foreseen else None


def _findings(page: PageData) -> Markup | None:
    findings = [
        el(
            "li",
            el("strong", f"{finding_title(finding.kind)}, {finding.about}"),
            f": {finding.detail}",
            note(finding.advice) if finding.advice else None,
        )
        for finding in phrases.merged(page.verdict)
    ]
    return section("Findings", el("ul", *findings, class_="events")) if findings else None
