"""What `gatekeeper try` prints."""

from gatekeeper.core.text import aligned
from gatekeeper.core.units import show, show_ratio
from gatekeeper.report.commands import Document
from gatekeeper.report.commands.try_slo_text import try_slo_text

ANSWERS = {"helps": "faster", "hurts": "slower", "unclear": "not decided"}


def try_text(document: Document, *, verbose: bool) -> str:
    """Return the answer in a sentence, the figures of each workload, what would decide those that are open, and next.

    *verbose* adds what the probe measured.
    """
    workloads = document["workloads"]
    lines = [document["sentence"], *(f"  {row}" for row in aligned([_row(*item) for item in workloads.items()]))]
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
