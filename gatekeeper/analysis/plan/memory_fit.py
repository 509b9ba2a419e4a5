"""The memory fit: whether a target and its draft fit into a machine with the required headroom, as an estimate.

Nothing here is measured. Weights are the files' bytes; the cache is counted from config.json; the rest is allowance. A
pair that does not fit by this estimate would swap, and hours of soak would say no more than that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.plan.preflight import Complaint, Weight
from gatekeeper.core.canary import Canary
from gatekeeper.core.manifest import Model
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import BYTES, show_bytes, show_memory

RUNTIME_BYTES = 1.0e9
"""Bytes for Python, the inference library, its buffers, and gatekeeper: an allowance, seen between 0.5 and 1 GB."""
CHARACTERS_PER_TOKEN = 3.0
"""Characters a token, on the safe side: English has about four, code and other languages fewer."""
SMALL_VOCABULARY = 10_000
"""Below this a tokenizer hardly joins characters, and one token a character is the safe side."""
TEMPLATE_TOKENS = 64
"""Tokens that a chat template may add around the messages."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One share of the memory that is needed; None bytes where it cannot be estimated."""

    name: str
    bytes: float | None
    how: str


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """What the run needs, in parts, against what the machines have."""

    parts: tuple[MemoryPart, ...]
    host_bytes: float | None
    """Bytes of this host; None where they are not known."""
    slo_host_bytes: float | None
    """Bytes of the host the SLO is made for; None where it names none."""

    @property
    def needed(self) -> float:
        """Return the sum of the parts that are known."""
        return sum(part.bytes or 0.0 for part in self.parts)

    def document(self) -> dict[str, Any]:
        """Return it as `plan --json` writes it."""
        parts = [{"part": part.name, "bytes": part.bytes, "how": part.how} for part in self.parts]
        return {
            "estimate": True,
            "parts": parts,
            "needed": self.needed,
            "here": self.host_bytes,
            "promised": self.slo_host_bytes,
        }

    def text(self) -> str:
        """Write the parts and their sum."""
        known = [f"{part.name} {show_bytes(part.bytes)}" for part in self.parts if part.bytes]
        unknown = [f"{part.name} unknown" for part in self.parts if part.bytes is None]
        return f"{' + '.join((*known, *unknown))} = {show_bytes(self.needed)}"


def estimate_fit(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    target: Model | None,
    drafts: Sequence[Model],
    *,
    background: float,
    memory: float | None,
    shares_process: bool,
) -> MemoryFit | None:
    """Estimate what the heaviest pair needs with the headroom and the profile's *background*; None without a target.

    The cache holds the longest canary and its answer once for each of the soak's streams. Where the arms cannot share
    a process, plain decoding's own one comes on top midway in the soak; headroom is not judged then, so that the larger
    of the two counts.
    """
    if target is None:
        return None
    pairs: list[tuple[MemoryPart, ...]] = [()]
    pairs += [(_weights("draft", draft), _cache("draft", draft, slo, canaries)) for draft in drafts]
    heaviest = max(pairs, key=lambda parts: sum(part.bytes or 0.0 for part in parts))
    floor = max(
        (one.threshold for one in slo.host_objectives if (one.metric, one.bound) == ("memory_headroom", "at_least")),
        default=0.0,
    )
    parts = [
        _weights("target", target),
        _cache("target", target, slo, canaries),
        *heaviest,
        MemoryPart("runtime", RUNTIME_BYTES, "allowance for Python and the inference library"),
        MemoryPart("background", background, "memory that the soak profile holds"),
        _process_or_headroom(target, floor, shares_process=shares_process),
    ]
    named = slo.host.memory_gb
    slo_host_bytes = named * BYTES["GiB"] if named is not None else None  # vendors write GB and mean GiB
    return MemoryFit(tuple(part for part in parts if part.bytes != 0), memory, slo_host_bytes)


def _process_or_headroom(target: Model, floor: float, *, shares_process: bool) -> MemoryPart:
    if not shares_process and target.bytes > floor:
        return MemoryPart(
            "target weights again", float(target.bytes), "plain decoding has its own process beside this one"
        )
    return MemoryPart("headroom", floor, "floor promised by a memory_headroom objective")


def _weights(role: str, model: Model) -> MemoryPart:
    return MemoryPart(f"{role} weights", float(model.bytes), f"size of the files of {model.name}")


def _cache(role: str, model: Model, slo: Slo, canaries: Mapping[str, Sequence[Canary]]) -> MemoryPart:
    """Count keys and values: two of layers x kv heads x head size for every token of every stream."""
    name = f"{role} cache"
    shape = model.shape
    if shape is None:
        return MemoryPart(name, None, f"config.json of {model.name} does not name layers, heads and their size")
    tokens = longest_tokens(slo, canaries, model.vocabulary)
    streams = slo.soak.concurrency
    size = 2.0 * shape.layers * shape.kv_heads * shape.head_dim * shape.value_bytes * tokens * streams
    how = (
        f"2 x {shape.layers} layers x {shape.kv_heads} heads x {shape.head_dim} x {shape.value_bytes} B x about "
        f"{tokens} tokens x {streams} streams"
    )
    return MemoryPart(
        name, size, how if shape.every_layer else f"{how}: an upper estimate, not every layer keeps every token"
    )


def longest_tokens(slo: Slo, canaries: Mapping[str, Sequence[Canary]], vocabulary: int | None) -> int:
    """Return the tokens of the longest canary with its whole answer, estimated from its characters."""
    swept = max(slo.sweep.max_tokens, default=0)
    return max(
        (
            prompt_tokens(canary, vocabulary) + max(canary.max_tokens or slo.sampling.max_tokens, swept)
            for mine in canaries.values()
            for canary in mine
        ),
        default=0,
    )


def prompt_tokens(canary: Canary, vocabulary: int | None) -> int:
    """Return the tokens of a prompt with its tools, estimated from its characters, on the safe side."""
    each = 1.0 if vocabulary is not None and vocabulary < SMALL_VOCABULARY else CHARACTERS_PER_TOKEN
    tools = json.dumps(canary.tools, ensure_ascii=False) if canary.tools else ""
    return round((len(json.dumps(canary.messages, ensure_ascii=False)) + len(tools)) / each) + TEMPLATE_TOKENS


def complaints(seen: MemoryFit | None) -> list[Complaint]:
    """Complain where the pair cannot fit: `never` for the host the SLO names, `not-here` for this one alone."""
    if seen is None:
        return []
    needs = "by estimate the pair needs"
    hosts: tuple[tuple[Weight, float | None, str], ...] = (
        ("never", seen.slo_host_bytes, "[host]"),
        ("not-here", seen.host_bytes, "this host"),
    )
    for weight, have, whose in hosts:
        if have is not None and seen.needed > have:
            message = f"{needs} {seen.text()}, more than the {show_memory(have)} of {whose}"
            return [Complaint(weight, "memory", message, _save(seen.needed - have))]
    if seen.host_bytes is None:
        message = f"{needs} {seen.text()}; this host does not tell its memory"
        return [Complaint("weak", "memory", message, "compare it yourself")]
    if any(part.bytes is None for part in seen.parts):
        return [Complaint("weak", "memory", f"{needs} at least {seen.text()}", "what is unknown comes on top")]
    return []


def _save(over: float) -> str:
    ways = "a smaller or lower-bit pair, a lower headroom floor, or a lighter soak profile"
    return f"save {show_bytes(over)}: take {ways}"
