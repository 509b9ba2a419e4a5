"""What `gatekeeper certify --only sweep` prints."""

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.analysis.verdict.sweep_result import SweepConclusion
from gatekeeper.core.judgement import Missing
from gatekeeper.core.text import describe_setting
from gatekeeper.report.data.glossary import finding_title
from gatekeeper.report.phrases import ratio


def sweep_text(conclusion: SweepConclusion) -> str:
    """Return, per workload, what the sweep measured of each setting and what it chooses."""
    lines = []
    for name, choice in conclusion.workloads.items():
        lines.append(f"{name}: {describe_setting(setting_document(choice.setting))}; {choice.because}")
        for result in choice.results:
            speed = result.ratio.because if isinstance(result.ratio, Missing) else ratio(result.ratio.round_figures())
            rate = "" if result.acceptance is None else f", acceptance {result.acceptance:.2f}"
            lines.append(f"    {result.trial.name:<28} {speed}{rate}, {result.ratio.n} canaries")
    lines += [
        f"{finding_title(finding.kind)}, {finding.about}: {finding.detail}; {finding.advice}"
        for finding in conclusion.findings
    ]
    lines.append(f"run: {conclusion.run}")
    return "\n".join(lines) + "\n"
