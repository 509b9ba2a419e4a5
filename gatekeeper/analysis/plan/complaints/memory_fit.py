"""The memory fit: whether a target and its draft fit into a machine with the required headroom, as an estimate.

Nothing here is measured. Weights are the sizes of the files; the cache is computed from config.json; the rest is an
allowance. A pair that does not fit by this estimate would swap, and a soak would only show that.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.plan.complaints.complaint import Complaint, Weight
from gatekeeper.analysis.plan.request_costs import prompt_tokens
from gatekeeper.analysis.plan.sizes_by_name import bytes_by_name
from gatekeeper.core.canary import Canary
from gatekeeper.core.manifest import Model
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import BYTES, show_bytes, show_memory

SYSTEM = "system"
CERTAIN = ("target weights", "draft weights", "background")
"""Parts that are no allowance: the size of files, and what gatekeeper's own load holds."""
RUNTIME_BYTES = 1.0e9
"""Bytes for Python, the inference library, its buffers and gatekeeper: an allowance; 0.5 to 1 GB were measured."""
MACOS_BYTES = 3.0e9
"""Bytes that macOS itself holds: an allowance. A Mac mini with 32 GB that did little had 2.2 GB wired, and its system
services hold memory besides."""
LINUX_BYTES = 0.5e9
"""Bytes that a server's Linux itself holds: an allowance."""
DEFAULT_WIRED = 2 / 3
"""Share of a Mac's memory that the GPU may wire unless iogpu.wired_limit_mb says more. Apple documents none: Metal's
recommended working set was reported as 67 % of 16 GB and 84 % of 128 GB, so the smallest one seen is taken."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One part of the memory that is needed; None bytes where it cannot be estimated."""

    name: str
    bytes: float | None
    how: str
    wired: bool = False
    """The GPU holds it, so on a Mac it is wired."""


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The memory a run needs, in parts, and what the machines have."""

    parts: tuple[MemoryPart, ...]
    host_bytes: float | None
    """Bytes of this host; None if unknown."""
    slo_host_bytes: float | None
    """Bytes of the SLO's [host]; None where it has no memory_gb."""
    wired_limit: float | None = None
    """Bytes that the GPU of this host may wire; None where it is not a Mac, or unknown."""
    wired_limit_is_known: bool = False
    """It was read from the system; else it is the smallest default that was reported."""

    @property
    def needed(self) -> float:
        """Return the sum of the known parts."""
        return sum(part.bytes or 0.0 for part in self.parts)

    @property
    def needed_now(self) -> float:
        """Return what must be available before the run: the operating system holds its own share already."""
        return sum(part.bytes or 0.0 for part in self.parts if part.name != SYSTEM)

    @property
    def held(self) -> float:
        """Return what the run holds for certain, beside caches and allowances: the weights and the background load."""
        return sum(part.bytes or 0.0 for part in self.parts if part.name in CERTAIN)

    @property
    def wired(self) -> float:
        """Return the sum of the known parts that the GPU holds."""
        return sum(part.bytes or 0.0 for part in self.parts if part.wired)

    def document(self) -> dict[str, object]:
        """Return it as `plan --json` writes it."""
        parts = [{"part": part.name, "bytes": part.bytes, "how": part.how} for part in self.parts]
        return {
            "estimate": True,
            "parts": parts,
            "needed": self.needed,
            "here": self.host_bytes,
            "promised": self.slo_host_bytes,
            "wired": self.wired,
            "wired_limit": self.wired_limit,
            "wired_limit_estimated": self.wired_limit is not None and not self.wired_limit_is_known,
        }

    def text(self) -> str:
        """Write the parts and their sum."""
        sizes = [f"{part.name} {show_bytes(part.bytes)}" for part in self.parts if part.bytes]
        unknown = [f"{part.name} unknown" for part in self.parts if part.bytes is None]
        return f"{' + '.join((*sizes, *unknown))} = {show_bytes(self.needed)}"


def estimate_fit(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    target: Model | None,
    drafts: Sequence[Model],
    *,
    background: float,
    memory: float | None,
    shares_process: bool,
    system: float = 0.0,
    wired_limit: float | None = None,
) -> MemoryFit | None:
    """Estimate what the heaviest pair needs with the headroom and the profile's *background*; None without a target.

    The cache holds the longest canary and its answer once for each of the soak's streams. Where the arms cannot share a
    process, plain decoding's process is added midway in the soak; headroom is not judged then, so the larger of the two
    counts. *system* is what the operating system holds itself. *wired_limit* is what the system says that the GPU may
    wire; where it says nothing, the default is estimated for a Mac.
    """
    if target is None:
        return None
    pairs: list[tuple[MemoryPart, ...]] = [()]
    pairs += [(_weights("draft", draft), _cache("draft", draft, slo, canaries)) for draft in drafts]
    heaviest = max(pairs, key=lambda parts: sum(part.bytes or 0.0 for part in parts))
    parts = [
        _weights("target", target),
        _cache("target", target, slo, canaries),
        *heaviest,
        MemoryPart("runtime", RUNTIME_BYTES, "allowance for Python and the inference library"),
        MemoryPart(SYSTEM, system, "allowance for the operating system itself"),
        MemoryPart("background", background, "memory that the soak profile holds"),
        _process_or_headroom(target, floor_of(slo), shares_process=shares_process),
    ]
    memory_gb = slo.host.memory_gb
    slo_host_bytes = memory_gb * BYTES["GiB"] if memory_gb is not None else None  # vendors write GB and mean GiB
    mac = (slo.host.chip or "").startswith("Apple")
    sizes = [size for size in (memory, slo_host_bytes) if size is not None]
    limit = wired_limit or (DEFAULT_WIRED * min(sizes) if mac and sizes else None)
    nonzero = tuple(part for part in parts if part.bytes != 0)
    return MemoryFit(nonzero, memory, slo_host_bytes, limit, wired_limit_is_known=wired_limit is not None)


def system_share(slo: Slo, platform: str | None) -> float:
    """Return the allowance for the operating system of the SLO's [host], or of this *platform* where it names none."""
    mac = slo.host.chip.startswith("Apple") if slo.host.chip is not None else platform == "macos"
    return MACOS_BYTES if mac else LINUX_BYTES


def needed_by_names(slo: Slo, background: float) -> float:
    """Return what must be available before a run whose models are not here yet: weights by their names, no caches."""
    target, drafts = bytes_by_name(slo.subject.target), map(bytes_by_name, slo.subject.drafts)
    weights = (target or 0.0) + max((size or 0.0 for size in drafts), default=0.0)
    return weights + RUNTIME_BYTES + background + floor_of(slo)


def floor_of(slo: Slo) -> float:
    """Return the bytes that must stay free by the objective on memory_headroom; 0 without one."""
    headroom = [objective for objective in slo.host_objectives if objective.metric == "memory_headroom"]
    return max((objective.threshold for objective in headroom if objective.bound == "at_least"), default=0.0)


def _process_or_headroom(target: Model, floor: float, *, shares_process: bool) -> MemoryPart:
    if not shares_process and target.bytes > floor:
        how = "plain decoding runs in a process of its own"
        return MemoryPart("target weights again", float(target.bytes), how, wired=True)
    return MemoryPart("headroom", floor, "required by the objective on memory_headroom")


def _weights(role: str, model: Model) -> MemoryPart:
    return MemoryPart(f"{role} weights", float(model.bytes), f"size of the files of {model.name}", wired=True)


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
    how = how if shape.every_layer else f"{how}: an upper bound, because some layers keep fewer tokens"
    return MemoryPart(name, size, how, wired=True)


def longest_tokens(slo: Slo, canaries: Mapping[str, Sequence[Canary]], vocabulary: int | None) -> int:
    """Return the tokens of the longest canary and its answer, estimated from its characters."""
    swept = max(slo.sweep.max_tokens, default=0)
    return max(
        (
            prompt_tokens(canary, vocabulary) + max(canary.max_tokens or slo.sampling.max_tokens, swept)
            for workload_canaries in canaries.values()
            for canary in workload_canaries
        ),
        default=0,
    )


def complaints(fit: MemoryFit | None) -> list[Complaint]:
    """Complain if the pair does not fit: `never` on the SLO's [host], `not-here` on this host alone."""
    if fit is None:
        return []
    needs = "the pair needs an estimated"
    hosts: tuple[tuple[Weight, float | None, str], ...] = (
        ("never", fit.slo_host_bytes, "[host]"),
        ("not-here", fit.host_bytes, "this host"),
    )
    for weight, have, whose in hosts:
        if have is not None and fit.needed > have:
            message = f"{needs} {fit.text()}; {whose} has {show_memory(have)}"
            ways = "a smaller or lower-bit pair, a lower memory_headroom objective, or a lighter soak profile"
            return [Complaint(weight, "memory", message, f"reduce it by {show_bytes(fit.needed - have)}: {ways}")]
    if fit.wired_limit is not None and fit.wired > fit.wired_limit:
        return [_beyond_wired(fit, fit.wired_limit)]
    if fit.host_bytes is None:
        message = f"{needs} {fit.text()}; the memory of this host is unknown"
        return [Complaint("weak", "memory", message, "compare the two yourself")]
    if any(part.bytes is None for part in fit.parts):
        return [Complaint("weak", "memory", f"{needs} {fit.text()}", "add what is unknown, and compare it yourself")]
    return []


def short_now(
    needed: float,
    free: float | None,
    holders: Callable[[], str],
    *,
    floor: float = 0.0,
    held: float = 0.0,
    easier: Callable[[], str] = str,
) -> list[Complaint]:
    """Complain where less memory is *free* now than is *needed* with the headroom; *holders* hold most of the rest.

    It ends the run where the *floor* cannot be kept beside what the run is certain to hold; *easier* is a command whose
    floor can be, empty where there is none. The headroom that the samples show counts what the system could reclaim, so
    macOS itself is not counted again.
    """
    if free is None or max(needed, floor + held) <= free:
        return []
    if floor > 0 and floor + held > free:
        taken = f"; weights and background load take {show_bytes(held)} of it, which leaves" if held else ","
        message = f"{show_bytes(free)} can be had now{taken} less than the {show_bytes(floor)} of memory_headroom"
        possible_floor = _rounded_down(free - held)
        line = f'write at_least = "{show_bytes(possible_floor)}" for memory_headroom in the SLO'
        way_on = easier() or (line if possible_floor > 0 else "use a smaller pair, or a lighter profile in [soak]")
        hint = f"close programs, most is held by {holders()}; to go on all the same: {way_on}"
        return [Complaint("not-here", "free memory", message, hint)]
    message = f"{show_bytes(free)} can be had now, and the run needs {show_bytes(needed)} of it with its headroom"
    hint = f"close programs before the soak ends below its objective; most is held by {holders()}"
    return [Complaint("weak", "free memory", message, hint)]


def _rounded_down(size: float) -> float:
    """Return a size in half gigabytes: what is free changes from minute to minute."""
    return math.floor(size / 0.5e9) * 0.5e9


def mapped_weights(slo: Slo, target: Model | None) -> list[Complaint]:
    """Complain that a Mac counts the weights of a mapped file as memory that can be had, where headroom is judged."""
    if target is None or all(objective.metric != "memory_headroom" for objective in slo.host_objectives):
        return []
    size = show_bytes(float(target.bytes))
    message = (
        f"the server maps its file of {size}: while the GPU is idle a Mac may count that as free, not as the server's"
    )
    hint = (
        'start it with args = ["--load-mode", "none"] (before b10884 "--no-mmap"), here and where it is deployed; or '
        f"raise the bound by {size}, for footprint_peak lower it"
    )
    return [Complaint("weak", "objective memory_headroom", message, hint)]


def _beyond_wired(fit: MemoryFit, limit: float) -> Complaint:
    """Complain that the GPU cannot hold the pair: `not-here` by a limit that was read, a note by an estimated one."""
    megabytes = math.ceil(1.1 * fit.wired / BYTES["MiB"])
    hint = f"raise the limit: sudo sysctl iogpu.wired_limit_mb={megabytes}; or use a smaller or lower-bit pair"
    need = f"the GPU must hold an estimated {show_bytes(fit.wired)} of weights and caches"
    if fit.wired_limit_is_known:
        return Complaint("not-here", "memory", f"{need}; this host lets it wire {show_bytes(limit)}", hint)
    return Complaint("weak", "memory", f"{need}; macOS may let it wire no more than {show_bytes(limit)}", hint)
