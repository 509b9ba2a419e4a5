"""What `gatekeeper certify --only sweep` shows."""

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.analysis.verdict.sweep_result import SweepConclusion
from gatekeeper.core.text import describe_setting
from gatekeeper.report.data.glossary import finding_title
from gatekeeper.report.run_document import tabulate_sweep
from gatekeeper.report.shown_document import Document, Facts, Listing, Node, Section


def sweep_document(conclusion: SweepConclusion) -> Document:
    """Return, per workload, what the sweep measured of each setting and what it chooses."""
    nodes: list[Node] = []
    for name, choice in conclusion.workloads.items():
        title = f"{name}: {describe_setting(setting_document(choice.setting))}; {choice.because}"
        nodes.append(Section(title, (tabulate_sweep(choice),)))
    findings = [
        f"{finding_title(finding.kind)}, {finding.about}: {finding.detail}; {finding.advice}"
        for finding in conclusion.findings
    ]
    return Document("sweep", "", (*nodes, Listing(findings), Facts((("run", conclusion.run),))))
