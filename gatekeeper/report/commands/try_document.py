"""What `gatekeeper try` shows, of a pair of models or of an SLO file."""

from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import show, show_ratio, show_seconds
from gatekeeper.report.commands import JsonObject
from gatekeeper.report.shown_document import Command, Document, Listing, Node, Note, Section, Table

ANSWERS = {"helps": "faster", "hurts": "slower", "unclear": "not decided"}


def try_pair_document(answer: JsonObject, *, verbose: bool) -> Document:
    """Return the answer in a sentence, the figures of each workload, what would decide those that are open, and next.

    *verbose* adds what the probe measured.
    """
    workloads = answer["workloads"]
    rows = [_list_figures(name, workload) for name, workload in workloads.items()]
    open_steps = dict.fromkeys(workload["next"] for workload in workloads.values() if workload["answer"] == "unclear")
    nodes: list[Node] = [Table(("",) * 5, rows)]
    if verbose:
        measured = try_slo_document(answer)
        nodes.append(Section(measured.headline, measured.nodes))
    else:
        nodes.append(Listing([f"note: {note}" for note in answer["notes"]]))
    nodes += [Listing([f"to decide: {step}" for step in open_steps])]
    nodes += [Note("to write an SLO file for this pair and this machine, which can be certified:")]
    return Document("try", answer["sentence"], (*nodes, Command(answer["next"])))


def _list_figures(name: str, workload: JsonObject) -> tuple[str, ...]:
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


def try_slo_document(answer: JsonObject) -> Document:
    """Return, per workload, whether the draft helps, and what to do next."""
    nodes: list[Node] = []
    for name, workload in answer["workloads"].items():
        acceptance = workload["acceptance_rate"]
        figures = [] if acceptance is None else [f"acceptance {acceptance:.2f}"]
        title = f"{name}: {workload['answer']}; {workload['because']}"
        nodes.append(Section(title, (Listing(figures), Command(workload["next"]))))
    remarks = [f"note: {note}" for note in answer["notes"]] + ([f"run: {answer['run']}"] if answer["run"] else [])
    headline = f"{answer['slo']}: {describe_setting(answer['setting'])}, {show_seconds(answer['seconds'])}"
    return Document("try", headline, (*nodes, Listing(remarks)))
