"""Counters as servers expose them to Prometheus: one `name{labels} value` a line."""

import re

from gatekeeper.backends.dialects.dialect import Counters

_LINE = re.compile(r"(?m)^([a-zA-Z_:][\w:]*)(?:\{([^}\n]*)\})?[ \t]+([-+.\deEnaifNI]+)")


def total(text: str, name: str) -> int | None:
    """Return a counter summed over its labels; None where it does not occur, or is no count."""
    values = [value for found, _, value in _LINE.findall(text) if found == name]
    try:
        return int(sum(float(value) for value in values)) if values else None
    except (ValueError, OverflowError):
        return None


def by_position(text: str, name: str) -> tuple[int, ...]:
    """Return a counter by its label `position`, from 0 on; empty where a position is missing."""
    found: dict[int, int] = {}
    for written, labels, value in _LINE.findall(text):
        position = re.search(r'position="(\d+)"', labels)
        if written == name and position is not None:
            found[int(position.group(1))] = found.get(int(position.group(1)), 0) + int(float(value))
    return tuple(found[at] for at in range(len(found))) if found.keys() == set(range(len(found))) else ()


def spec_decode(text: str | None, prefix: str) -> Counters | None:
    """Return the speculative counters that vLLM named and llama-server took over; None where there are none."""
    if text is None:
        return None
    drafted = total(text, f"{prefix}spec_decode_num_draft_tokens_total")
    if drafted is None:
        return None
    return Counters(
        drafted=drafted,
        accepted=total(text, f"{prefix}spec_decode_num_accepted_tokens_total"),
        rounds=total(text, f"{prefix}spec_decode_num_drafts_total"),
        accepted_by_position=by_position(text, f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"),
    )
