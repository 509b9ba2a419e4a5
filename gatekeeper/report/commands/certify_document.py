"""What `gatekeeper certify --only sweep` shows."""

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.analysis.verdict.sweep_result import SweepConclusion
from gatekeeper.core.judgement import Missing
from gatekeeper.core.text import describe_setting
from gatekeeper.report.data.glossary import finding_title
from gatekeeper.report.phrases import ratio
from gatekeeper.report.shown_document import Document, Facts, Listing, Node, Section, Table


def sweep_document(conclusion: SweepConclusion) -> Document:
    """Return, per workload, what the sweep measured of each setting and what it chooses."""
    nodes: list[Node] = []
    for name, choice in conclusion.workloads.items():
        title = f"{name}: {describe_setting(setting_document(choice.setting))}; {choice.because}"
        nodes.append(Section(title, (Table(("", "", "", ""), list(map(_describe_result, choice.results))),)))
    findings = [
        f"{finding_title(finding.kind)}, {finding.about}: {finding.detail}; {finding.advice}"
        for finding in conclusion.findings
    ]
    return Document("sweep", "", (*nodes, Listing(findings), Facts((("run", conclusion.run),))))


def _describe_result(result: SettingResult) -> tuple[str, ...]:
    speed = result.ratio.because if isinstance(result.ratio, Missing) else ratio(result.ratio.round_figures())
    acceptance = "" if result.acceptance is None else f"acceptance {result.acceptance:.2f}"
    return result.trial.name, speed, acceptance, f"{result.ratio.n} canaries"
