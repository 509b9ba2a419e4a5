"""What `gatekeeper try` prints, of a pair of models or of an SLO file."""

from gatekeeper.core.text import align_columns, describe_setting
from gatekeeper.core.units import show, show_ratio, show_seconds
from gatekeeper.report.commands import Document

ANSWERS = {"helps": "faster", "hurts": "slower", "unclear": "not decided"}


def try_text(document: Document, *, verbose: bool) -> str:
    """Return the answer in a sentence, the figures of each workload, what would decide those that are open, and next.

    *verbose* adds what the probe measured.
    """
    workloads = document["workloads"]
    lines = [document["sentence"], *(f"  {row}" for row in align_columns([_row(*item) for item in workloads.items()]))]
    lines += try_slo_text(document).splitlines() if verbose else []
    open_steps = dict.fromkeys(workload["next"] for workload in workloads.values() if workload["answer"] == "unclear")
    lines += [f"to decide: {step}" for step in open_steps]
    lines += ["to write an SLO file for this pair and this machine, which can be certified:"]
    lines += [f"next: {document['next']}"]
    return "\n".join(lines) + "\n"


def _row(name: str, workload: Document) -> tuple[str, ...]:
    """Return the figures of a workload, also those that do not decide."""
    ratio, plain, drafting = (workload[key] for key in ("ratio", "plain_tok_s", "drafting_tok_s"))
    rough = f"{drafting / plain:.2f}x, of too few answers for an interval" if plain and drafting else "no ratio"
    speeds = f"{show(plain, 'tok/s')} plain, {show(drafting, 'tok/s')} with draft" if plain and drafting else ""
    acceptance = workload["acceptance_rate"]
    return (
        name,
        ANSWERS[workload["answer"]],
        rough if ratio is None else show_ratio(ratio, workload["lo"], workload["hi"]),
        speeds,
        "" if acceptance is None else f"acceptance {acceptance:.2f}",
    )


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
