"""A plan, a probe and a sweep's choices, as lines to read."""

from typing import Any

from gatekeeper.reports.plaintext import setting
from gatekeeper.terms.units import show_bytes, show_memory, show_seconds

WEIGHTS = {"never": "can not be proven", "not-here": "not on this host", "weak": "note"}

STAGES = {
    "sweep": "sweep",
    "soak": "soak",
    "plain_blocks": "plain blocks before, midway and after it",
    "closing": "closing pass over the quality canaries",
    "near_ties": "near-ties, if every canary parts",
    "warm_cache": "warm cache",
    "first_tokens": "first tokens of the distribution check",
}


def plan(document: dict[str, Any]) -> str:
    """Return the trials, the expected time, and what the plan can not prove."""
    trials = document["trials"]
    most = "at most " if document["stop"] == "early" else ""
    lines = [f"{document['slo']}: {len(trials)} trials, {most}{document['answers']} answers in the sweep"]
    lines += [
        f"  {one['name']:<28} {one['answers']:>5} answers  {setting(one['setting'])}" for one in document["trials"]
    ]
    lines += [
        f"expected {STAGES[name]}: {(name == 'sweep' and most) or 'about '}{show_seconds(seconds)}"
        for name, seconds in document["expected_seconds"].items()
    ]
    lines += [f"expected in all: about {show_seconds(document['expected_total_seconds'])}"]
    lines += [f"({document['assumption']})", *(f"not comparable: {doubt}" for doubt in document["doubts"])]
    if memory := document.get("memory"):
        lines += [_memory(memory)]
    complaints = document["complaints"]
    lines += [f"{WEIGHTS[one['weight']]}: {one['about']}: {one['message']}; {one['hint']}" for one in complaints]
    return "\n".join(lines) + "\n"


def _memory(memory: dict[str, Any]) -> str:
    parts = (
        f"{one['part']} {show_bytes(one['bytes']) if one['bytes'] is not None else 'unknown'}"
        for one in memory["parts"]
    )
    here = f" of {show_memory(memory['here'])}" if memory["here"] is not None else ""
    return f"expected memory, an estimate: {' + '.join(parts)} = {show_bytes(memory['needed'])}{here}"


def choices(document: dict[str, Any]) -> str:
    """Return, per workload, what the sweep saw of each setting and what it chooses."""
    lines = []
    for name, choice in document["workloads"].items():
        lines.append(f"{name}: {setting(choice['setting'])}; {choice['because']}")
        for one in choice["settings"]:
            seen = f"{one['ratio']:.2f}x [{one['lo']:.2f}, {one['hi']:.2f}]" if one["ratio"] else one["because"]
            accepted = one["acceptance_rate"]
            rate = "" if accepted is None else f", acceptance {accepted:.2f}"
            lines.append(f"    {one['trial']:<28} {seen}{rate}, {one['n']} canaries")
    lines.append(f"run: {document['run']}")
    return "\n".join(lines) + "\n"


def probe(document: dict[str, Any]) -> str:
    """Return, per workload, if the draft helps, why, and what to do next."""
    lines = [f"{document['slo']}: {setting(document['setting'])}, {show_seconds(document['seconds'])}"]
    for name, one in document["workloads"].items():
        lines.append(f"{name}: {one['answer']}; {one['because']}")
        accepted, needed = one["acceptance_rate"], one["break_even_acceptance"]
        if accepted is not None and needed is not None:
            lines.append(f"    acceptance {accepted:.2f}, break-even {max(0.0, needed):.2f}")
        lines += [f"    why: {one['model']['because']}", f"    next: {one['next']}"]
    lines += [f"note: {note}" for note in document["notes"]]
    lines += [f"run: {document['run']}"] if document["run"] else []
    return "\n".join(lines) + "\n"
