"""What `gatekeeper plan` shows: the trials, the expected time and what cannot be proven; with --lint what is wrong."""

from collections.abc import Sequence

from gatekeeper.analysis.plan.complaints.complaint import Complaint, merge_complaints
from gatekeeper.core.text import describe_setting, show_count
from gatekeeper.core.units import show_bytes, show_memory, show_seconds
from gatekeeper.report.commands import JsonObject
from gatekeeper.report.shown_document import Document, Facts, Listing, Node, Table

WEIGHTS = {"never": "cannot be proven", "not-here": "not on this host", "weak": "note"}
STAGES = {
    "sweep": "sweep",
    "soak": "soak",
    "rest": "rest before and after the soak, for the power at rest",
    "plain_blocks": "plain blocks before, midway through and after the soak",
    "closing": "closing pass over the quality canaries",
}
STEPS = {"shrink-draft": "a shorter draft", "lighter-draft": "a lighter draft", "autoregressive": "plain decoding"}


def plan_document(forecast: JsonObject, following: Sequence[Node] = ()) -> Document:
    """Return the trials, the expected time, and what the plan cannot prove; at the end what is *following*."""
    # Here, because they bring numpy, which --version does without.
    from gatekeeper.analysis.follow_ups import FOLLOW_UPS  # noqa: PLC0415

    titles = STAGES | {follow_up.name: follow_up.title for follow_up in FOLLOW_UPS}
    trials = forecast["trials"]
    most = "at most " if forecast["stop"] == "early" else ""
    rows = [
        (f"  {trial['name']}", f"{trial['answers']} answers", describe_setting(trial["setting"])) for trial in trials
    ]
    facts = [
        (f"expected {titles[name]}", f"{(name == 'sweep' and most) or 'about '}{show_seconds(seconds)}")
        for name, seconds in forecast["expected_seconds"].items()
    ]
    facts += [
        (
            f"expected for a fallback to {STEPS[name]}",
            f"about {show_seconds(seconds)} more, if every workload needs it",
        )
        for name, seconds in forecast["expected_fallback_seconds"].items()
    ]
    lines = [forecast["assumption"]]
    if memory := forecast.get("memory"):
        lines += [_describe_memory(memory)]
    lines += [f"not comparable: {doubt}; for this machine: gatekeeper init" for doubt in forecast["doubts"]]
    total, least = (show_seconds(forecast[f"{which}_total_seconds"]) for which in ("expected", "least"))
    at_best = f", {least} if the sweep stops early and no follow-up with an 'if' is needed" if least != total else ""
    lines += [f"expected in total: about {total}{at_best}"]
    complaints = merge_complaints(Complaint(**complaint) for complaint in forecast["complaints"])
    # The worst is read first: it stands where the terminal ends.
    for weight in reversed(WEIGHTS):
        lines += [
            f"{WEIGHTS[weight]}: {complaint.about}: {complaint.message}; {complaint.hint}"
            for complaint in complaints
            if complaint.weight == weight
        ]
    headline = f"{forecast['slo']}: {len(trials)} trials, {most}{forecast['answers']} answers in the sweep"
    return Document("plan", headline, (Table(("", "", ""), rows), Facts(facts), Listing(lines), *following))


def coverage_hint(slo: str) -> str:
    """Return how to find out for which requests a certificate of *slo* would hold."""
    return f"how many of your own requests a certificate would cover: gatekeeper plan {slo} --log LOG"


def _describe_memory(memory: JsonObject) -> str:
    parts = (
        f"{part['part']} {show_bytes(part['bytes']) if part['bytes'] is not None else 'unknown'}"
        for part in memory["parts"]
    )
    available = f" of {show_memory(memory['here'])}" if memory["here"] is not None else ""
    return f"estimated memory: {' + '.join(parts)} = {show_bytes(memory['needed'])}{available}"


def lint_document(answer: JsonObject) -> Document:
    """Return what is wrong with each SLO file, and at the end in how many."""
    mistakes = [(file["slo"], mistake) for file in answer["files"] for mistake in file["wrong"]]
    lines = []
    for slo, mistake in mistakes:
        lines += [f"{slo}: {mistake['message'].removeprefix(f'{slo}: ')}", f"  hint: {mistake['hint']}"]
    wrong = len({slo for slo, _ in mistakes})
    last = f"{show_count(len(answer['files']), 'SLO file')}, {f'{wrong} with errors' if wrong else 'no errors'}"
    return Document("plan", "", (Listing((*lines, last)),))
