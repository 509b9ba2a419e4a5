"""What `gatekeeper plan` prints: the trials, the expected time and what cannot be proven; with --lint what is wrong."""

from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import show_bytes, show_memory, show_seconds
from gatekeeper.report.commands import Document

WEIGHTS = {"never": "cannot be proven", "not-here": "not on this host", "weak": "note"}
STAGES = {
    "sweep": "sweep",
    "soak": "soak",
    "plain_blocks": "plain blocks before, midway through and after the soak",
    "closing": "closing pass over the quality canaries",
}
STEPS = {"shrink-draft": "a shorter draft", "lighter-draft": "a lighter draft", "autoregressive": "plain decoding"}


def plan_text(document: Document) -> str:
    """Return the trials, the expected time, and what the plan cannot prove."""
    from gatekeeper.analysis.passes import FINAL_PASSES, PASSES  # noqa: PLC0415 (brings numpy, which --version does without)

    titles = STAGES | {after.key: after.title for after in PASSES} | {final.name: final.title for final in FINAL_PASSES}
    trials = document["trials"]
    most = "at most " if document["stop"] == "early" else ""
    lines = [f"{document['slo']}: {len(trials)} trials, {most}{document['answers']} answers in the sweep"]
    lines += [
        f"  {trial['name']:<28} {trial['answers']:>5} answers  {describe_setting(trial['setting'])}" for trial in trials
    ]
    lines += [
        f"expected {titles[name]}: {(name == 'sweep' and most) or 'about '}{show_seconds(seconds)}"
        for name, seconds in document["expected_seconds"].items()
    ]
    total, least = (show_seconds(document[f"{which}_total_seconds"]) for which in ("expected", "least"))
    at_best = f", {least} if the sweep stops early and no pass with an 'if' is needed" if least != total else ""
    lines += [f"expected in total: about {total}{at_best}"]
    lines += [
        f"expected for a fallback to {STEPS[name]}: about {show_seconds(seconds)} more, if every workload needs it"
        for name, seconds in document["expected_fallback_seconds"].items()
    ]
    lines += [document["assumption"], *(f"not comparable: {doubt}" for doubt in document["doubts"])]
    if memory := document.get("memory"):
        lines += [_memory(memory)]
    lines += [
        f"{WEIGHTS[complaint['weight']]}: {complaint['about']}: {complaint['message']}; {complaint['hint']}"
        for complaint in document["complaints"]
    ]
    return "\n".join(lines) + "\n"


def _memory(memory: Document) -> str:
    parts = (
        f"{part['part']} {show_bytes(part['bytes']) if part['bytes'] is not None else 'unknown'}"
        for part in memory["parts"]
    )
    available = f" of {show_memory(memory['here'])}" if memory["here"] is not None else ""
    return f"estimated memory: {' + '.join(parts)} = {show_bytes(memory['needed'])}{available}"


def lint_text(document: Document) -> str:
    """Return what is wrong with each SLO file, and nothing of those where nothing is."""
    mistakes = [(file["slo"], mistake) for file in document["files"] for mistake in file["wrong"]]
    return "".join(
        f"{slo}: {mistake['message'].removeprefix(f'{slo}: ')}\n  hint: {mistake['hint']}\n"
        for slo, mistake in mistakes
    )
