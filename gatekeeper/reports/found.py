"""What was found on a machine, for a terminal: the checkup as a table, and what a proposal was made from."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.terms.units import show_bytes, show_memory

_HEADS = {"package": "packages", "program": "programs on PATH", "host": "host telemetry"}


def checkup(document: Mapping[str, Any]) -> str:
    """Return the table of `gatekeeper doctor`, and below it each fix once, with what it is for."""
    lines = [versions(document["versions"]).rstrip()]
    fixes: dict[str, list[str]] = {}
    for kind, head in _HEADS.items():
        mine = [one for one in document["items"] if one["kind"] == kind]
        rows = [("" if one["found"] else "missing", one["what"], one["needed_for"], one["found"] or "") for one in mine]
        lines += ["", head, *_aligned(rows)]
        for one in mine:
            if one["fix"]:
                fixes.setdefault(one["fix"], []).append(one["needed_for"])
    if fixes:
        lines += ["", "to do, where you want it"]
        for fix, uses in fixes.items():
            lines += [f"  for {', '.join(uses)}:", f"      {fix}"]
    return "\n".join(lines) + "\n"


def versions(known: Mapping[str, str | None]) -> str:
    """Return a line for each version, our own first."""
    return "".join(f"{name} {told or 'not found'}\n" for name, told in known.items())


def proposal(document: Mapping[str, Any]) -> str:
    """Return what `gatekeeper init` found, chose and wrote."""
    machine, pair = document["host"], document["pair"]
    lines = [f"machine: {machine['chip'] or 'unknown chip'}, {_memory(machine)}"]
    lines += [f"backends: {', '.join(_backend(name, there) for name, there in document['backends'].items())}"]
    models = document["models"]
    lines += [
        f"models: {len(models)}" if models else "models: none in the caches of Hugging Face, LM Studio and Ollama"
    ]
    rows = [(one["name"], one["shelf"], show_bytes(one["bytes"]) if one["bytes"] else "", _says(one)) for one in models]
    lines += _aligned(rows)
    names = f"{pair['target']} with {', '.join(pair['drafts'])}"
    if document["here"]:
        seen = document["memory"]
        lines += [f"pair, for {pair['backend']}: {names}"]
        if seen is not None and machine["available"]:
            lines += [f"    needs about {show_bytes(seen['needed'])}, headroom promised included"]
    else:
        lines += ["no two of them make a pair that fits beside what runs now"] if models else []
        lines += [f"pair proposed for a machine of this size, for {pair['backend']}: {names}"]
    lines += [f"left out, for this host can not show it: {name}" for name in document["left_out"]]
    lines += [f"wrote {document['written']}"]
    lines += [f"first: {command}" for command in document["do_first"]]
    lines += [f"next: {document['next']}"]
    return "\n".join(lines) + "\n"


def _memory(machine: Mapping[str, Any]) -> str:
    if not machine["memory_bytes"]:
        return "memory unknown"
    free = f", {show_bytes(machine['available'])} of it to be had now" if machine["available"] else ""
    return f"{show_memory(machine['memory_bytes'])}{free}"


def _backend(name: str, there: bool) -> str:
    return name if there else f"{name} (not installed)"


def _says(one: Mapping[str, Any]) -> str:
    return f"left out: {one['left_out']}" if one["left_out"] else f"{one['quantisation']}, for {one['backend']}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    return [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
