"""What `gatekeeper try SLO` prints."""

from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import show_seconds
from gatekeeper.report.commands import Document


def try_slo_text(document: Document) -> str:
    """Return, per workload, whether the draft helps, and what to do next."""
    lines = [f"{document['slo']}: {describe_setting(document['setting'])}, {show_seconds(document['seconds'])}"]
    for name, workload in document["workloads"].items():
        lines.append(f"{name}: {workload['answer']}; {workload['because']}")
        if workload["acceptance_rate"] is not None:
            lines.append(f"    acceptance {workload['acceptance_rate']:.2f}")
        lines.append(f"    next: {workload['next']}")
    lines += [f"note: {note}" for note in document["notes"]]
    lines += [f"run: {document['run']}"] if document["run"] else []
    return "\n".join(lines) + "\n"
