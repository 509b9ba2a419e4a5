"""A plan and a sweep's choices, as lines to read."""

from typing import Any

from gatekeeper.reports.plaintext import setting
from gatekeeper.terms.units import show_bytes, show_seconds

WEIGHTS = {"never": "can not be proven", "not-here": "not on this host", "weak": "note"}


def plan(document: dict[str, Any]) -> str:
    """Return the trials, the expected time, and what the plan can not prove."""
    trials = document["trials"]
    lines = [f"{document['slo']}: {len(trials)} trials, {document['answers']} answers in the sweep"]
    lines += [
        f"  {one['name']:<28} {one['answers']:>5} answers  {setting(one['setting'])}" for one in document["trials"]
    ]
    expected = document["expected_seconds"].items()
    lines += [f"expected {stage}: about {show_seconds(seconds)}" for stage, seconds in expected]
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
    here = f" of {show_bytes(memory['here'])}" if memory["here"] is not None else ""
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
