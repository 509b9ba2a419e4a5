"""The memory fit: whether a target and its draft fit into a machine with the required headroom, as an estimate.

Nothing here is measured. Weights are the sizes of the files; the cache is computed from config.json; the rest is an
allowance. A pair that does not fit by this estimate would swap, and a soak would only show that.
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
"""Bytes for Python, the inference library, its buffers and gatekeeper: an allowance; 0.5 to 1 GB were measured."""
CHARACTERS_PER_TOKEN = 3.0
"""Characters per token, a cautious value: English has about four, code and other languages fewer."""
SMALL_VOCABULARY = 10_000
"""Smaller vocabularies hardly join characters; the cautious value is then one character per token."""
TEMPLATE_TOKENS = 64
"""Tokens that a chat template may add around the messages."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One part of the memory that is needed; None bytes where it cannot be estimated."""

    name: str
    bytes: float | None
    how: str


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The memory a run needs, in parts, and what the machines have."""

    parts: tuple[MemoryPart, ...]
    host_bytes: float | None
    """Bytes of this host; None if unknown."""
    slo_host_bytes: float | None
    """Bytes of the SLO's [host]; None where it has no memory_gb."""

    @property
    def needed(self) -> float:
        """Return the sum of the known parts."""
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

    The cache holds the longest canary and its answer once for each of the soak's streams. Where the arms cannot share a
    process, plain decoding's process is added midway in the soak; headroom is not judged then, so the larger of the two
    counts.
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
        return MemoryPart("target weights again", float(target.bytes), "plain decoding runs in a process of its own")
    return MemoryPart("headroom", floor, "required by the objective on memory_headroom")


def _weights(role: str, model: Model) -> MemoryPart:
    return MemoryPart(f"{role} weights", float(model.bytes), f"size of the files of {model.name}")


def _cache(role: str, model: Model, slo: Slo, canaries: Mapping[str, Sequence[Canary]]) -> MemoryPart:
    """Count keys and values: 2 x layers x kv heads x head size for every token of every stream."""
    name = f"{role} cache"
    shape = model.shape
    if shape is None:
        return MemoryPart(name, None, f"config.json of {model.name} lacks layers, heads or their size")
    tokens = longest_tokens(slo, canaries, model.vocabulary)
    streams = slo.soak.concurrency
    size = 2.0 * shape.layers * shape.kv_heads * shape.head_dim * shape.value_bytes * tokens * streams
    how = (
        f"2 x {shape.layers} layers x {shape.kv_heads} heads x {shape.head_dim} x {shape.value_bytes} B x about "
        f"{tokens} tokens x {streams} streams"
    )
    return MemoryPart(
        name, size, how if shape.every_layer else f"{how}: an upper bound, because some layers keep fewer tokens"
    )


def longest_tokens(slo: Slo, canaries: Mapping[str, Sequence[Canary]], vocabulary: int | None) -> int:
    """Return the tokens of the longest canary and its answer, estimated from its characters."""
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
    """Return the tokens of a prompt with its tools, a cautious estimate from its characters."""
    each = 1.0 if vocabulary is not None and vocabulary < SMALL_VOCABULARY else CHARACTERS_PER_TOKEN
    tools = json.dumps(canary.tools, ensure_ascii=False) if canary.tools else ""
    return round((len(json.dumps(canary.messages, ensure_ascii=False)) + len(tools)) / each) + TEMPLATE_TOKENS


def complaints(seen: MemoryFit | None) -> list[Complaint]:
    """Complain if the pair does not fit: `never` on the SLO's [host], `not-here` on this host alone."""
    if seen is None:
        return []
    needs = "the pair needs an estimated"
    hosts: tuple[tuple[Weight, float | None, str], ...] = (
        ("never", seen.slo_host_bytes, "[host]"),
        ("not-here", seen.host_bytes, "this host"),
    )
    for weight, have, whose in hosts:
        if have is not None and seen.needed > have:
            message = f"{needs} {seen.text()}; {whose} has {show_memory(have)}"
            return [Complaint(weight, "memory", message, _save(seen.needed - have))]
    if seen.host_bytes is None:
        message = f"{needs} {seen.text()}; the memory of this host is unknown"
        return [Complaint("weak", "memory", message, "compare the two yourself")]
    if any(part.bytes is None for part in seen.parts):
        return [Complaint("weak", "memory", f"{needs} {seen.text()}", "add what is unknown, and compare it yourself")]
    return []


def _save(over: float) -> str:
    ways = "a smaller or lower-bit pair, a lower memory_headroom objective, or a lighter soak profile"
    return f"reduce it by {show_bytes(over)}: {ways}"
