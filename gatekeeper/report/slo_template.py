"""The SLO file that gatekeeper proposes: TOML with a comment wherever a reader may want to change something."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.text import one_line
from gatekeeper.core.units import show_bytes

_COLUMN = 30
"""The column at which a comment after a key begins."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model as the file names it."""

    name: str
    note: str
    """Its size, quantisation and place, for the reader."""


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A workload with its canary file."""

    name: str
    tier: str
    canaries: str
    note: str
    quality: str | None = None
    """The metric for correct answers; None where they are not graded."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the file is made from."""

    path: str
    name: str
    schema: str | None
    """Path of the schema for editors, relative to the file."""
    version: str
    host: Mapping[str, Any]
    """The keys of `[host]` that are known."""
    backend: str
    target: ModelEntry
    drafts: tuple[ModelEntry, ...]
    lighter: tuple[ModelEntry, ...]
    """Further drafts, written as comments: each makes the sweep and the ladder longer."""
    workloads: tuple[WorkloadEntry, ...]
    first: int
    max_tokens: int
    thinks: bool
    """The target's chat template has a thinking mode."""
    headroom: float
    """Bytes that stay free."""
    lacks: Mapping[str, str]
    """Host metrics that cannot be measured on this host, and why."""
    peak: float | None
    """Bytes that the system may hold at most; None where the sizes of the models are not known."""
    cold: bool
    """The first token's time can be measured: no prompt comes from a cache."""
    claims: bool
    """Acceptance is counted by the server alone."""
    replays: bool
    """Each token can be held against the target's choice in the pass that verified it."""
    also_installed: tuple[str, ...]
    """Other backends that are installed and load the same files."""
    cache_defect: str
    """What is known to be wrong with answers from its prompt cache, which is proposed off then; empty: nothing."""
    missing: tuple[str, ...] = ()
    """Commands that download or install what is missing."""


def render(proposed: Proposal) -> str:
    """Return the file's text."""
    lines = [*_head(proposed), *_subject(proposed), *_workloads(proposed), *_objectives(proposed)]
    return "\n".join(lines) + "\n"


def _head(proposed: Proposal) -> Iterator[str]:
    if proposed.schema is not None:
        yield f"#:schema {proposed.schema}"
    yield f"# Proposed by gatekeeper {proposed.version} for this machine. The objectives are a starting point: change"
    yield "# them to what you need. To see how long a run takes and what it cannot prove:"
    yield f"#     gatekeeper plan {proposed.path}"
    if proposed.missing:
        yield "# First:"
        yield from (f"#     {command}" for command in proposed.missing)
    yield from ("schema = 1", f"name = {_quoted(proposed.name)}")
    yield from ('why = "Does a draft help on this machine, for these workloads?"', "")
    if proposed.host:
        yield _commented("[host]", "a run on another machine proves nothing for this one")
        for key, value in proposed.host.items():
            yield _commented(f"{key} = {_quoted(value)}", "as sold: 2**30 bytes each" if key == "memory_gb" else "")
        yield ""


def _subject(proposed: Proposal) -> Iterator[str]:
    comment = (
        f"installed as well: {', '.join(proposed.also_installed)}; certify the one that you deploy"
        if proposed.also_installed
        else ""
    )
    yield from ("[subject]", _commented(f"backend = {_quoted(proposed.backend)}", comment))
    yield f"target = {_quoted(proposed.target.name)}  # {proposed.target.note}"
    yield _commented("drafts = [", "heaviest first; they share the target's token map")
    yield from (f"  {_quoted(draft.name)},  # {draft.note}" for draft in proposed.drafts)
    if proposed.lighter:
        yield "  # Lighter ones, for a fallback: name them here and, to sweep them as well, in sweep.draft. Each"
        yield "  # takes a fifth more time or so, which plan shows."
        yield from (f"  # {_quoted(draft.name)},  # {draft.note}" for draft in proposed.lighter)
    yield "]"
    if proposed.cache_defect:
        yield _commented('prompt_cache = "off"', "measured and launched with the switch that turns it off;")
        yield _commented("", f"{proposed.cache_defect};")
        yield _commented("", '"as-deployed" checks whether yours does')
    yield from ("", "[sampling]")
    yield _commented("temperature = 0.0", "greedy: needed to compare token by token")
    yield f"max_tokens = {proposed.max_tokens}"
    if proposed.thinks:
        yield _commented("thinking = false", "thinking can use up max_tokens before the answer")
    yield ""


def _workloads(proposed: Proposal) -> Iterator[str]:
    yield "# Each workload gets its own verdict. Its canaries are the fixed prompts that are measured: use your own."
    yield f"# first = {proposed.first}: more canaries prove more and take longer; a p95 needs 80, a file has 96."
    yield '# speculation = "optional": plain decoding is fine; "required": no deploy unless the draft helps.'
    for workload in proposed.workloads:
        yield _commented("[[workload]]", workload.note)
        yield from (f"name = {_quoted(workload.name)}", f"tier = {_quoted(workload.tier)}")
        yield from (f"canaries = {_quoted(workload.canaries)}", f"first = {proposed.first}", 'speculation = "optional"')
        yield ""
    yield from ("[sweep]", "repeats = 1", _commented("budget = 8", "enough to choose a setting; the soak proves it"))
    yield _commented("num_draft_tokens = [2, 4]", "each further length takes some minutes")
    if len(proposed.drafts) > 1:
        yield f"draft = [{', '.join(_quoted(draft.name) for draft in proposed.drafts)}]"
    if proposed.lighter:
        yield f"# draft = [{', '.join(_quoted(draft.name) for draft in (*proposed.drafts, *proposed.lighter))}]"
    yield from ("", "[sweep.default]", "num_draft_tokens = 4", "", "[soak]")
    yield _commented('duration = "600 s"', "less is graded demo; the soak continues until it has enough answers")
    yield 'max_duration = "2 h"'
    yield _commented('profile = "steady"', '"desktop" holds memory as a browser and an IDE do')
    yield _commented("sentinel_share = 0.5", "each speculative request is paired with a plain one")
    yield ""


def _objectives(proposed: Proposal) -> Iterator[str]:
    yield from _objective("throughput_ratio", "at_least = 1.16", "Below 1.16x a second model is not worth its memory.")
    yield from _objective(
        "acceptance_rate",
        "at_least = 0.5",
        "A draft with half of its tokens rejected is the wrong draft for this workload.",
        *(['from = "claims"               # as the server reports it'] if proposed.claims else []),
    )
    if proposed.cold:
        yield from _objective(
            "ttft_delta",
            "at_most = 0.08",
            "A reader waits for the first token, and the draft reads the prompt too.",
            _commented('or_with = "warm-up"', "a later first token needs a warm-up, then required by the policy"),
        )
    if proposed.replays:
        why = "Each token is the target's own choice in the pass that verified it; else the engine is broken."
        yield from _objective("replay_agreement", "at_least = 1.0", why)
    else:
        yield "# The words of the answers: what this backend shows of the target decides, without an objective."
        yield ""
    yield from _objective(
        "error_rate", "at_most = 0.0", "No request may fail, with or without a draft.", 'when = "always"'
    )
    for workload in proposed.workloads:
        if workload.quality is not None:
            limit = f"workloads = [{_quoted(workload.name)}]"
            why = "Speculation must not make answers worse."
            yield from _objective(workload.quality, "at_least = 0.0", why, limit)
    yield "# For a bound in milliseconds, measure this machine first with gatekeeper try. For example:"
    yield from ("# [[objective]]", '# metric = "itl_p95"', '# at_most = "45 ms"', '# why = "..."', "")
    if proposed.peak is not None and "footprint_peak" not in proposed.lacks:
        most = f"at_most = {_quoted(show_bytes(proposed.peak))}"
        yield from _objective("footprint_peak", most, "Weights, caches and Python; more is a leak or another model.")
    free = f"at_least = {_quoted(show_bytes(proposed.headroom))}"
    for metric, bound, why in (
        ("memory_headroom", free, "An eighth of the memory stays free for everything else."),
        ("memory_pressure_critical", 'at_most = "60 s"', "Longer critical pressure makes every app stutter."),
        ("footprint_growth", 'at_most = "300 MB/h"', "Memory that grows without bound ends a server within days."),
        ("swapin_bytes", 'at_most = "200 MB"', "Swapping makes measurements wrong and the machine slow."),
        ("swap_growth", 'at_most = "200 MB"', "Swap that keeps growing ends with a machine that waits for its disk."),
        ("throttle_time", 'at_most = "0 s"', "A throttled machine does not keep this speed."),
    ):
        if metric in proposed.lacks:
            yield from (f"# {metric} is left out: {one_line(proposed.lacks[metric])}", "")
        else:
            yield from _objective(metric, bound, why)


def _objective(metric: str, bound: str, why: str, *more: str) -> Iterator[str]:
    yield from ("[[objective]]", f"metric = {_quoted(metric)}", bound, *more, f"why = {_quoted(why)}", "")


def _commented(line: str, comment: str) -> str:
    return f"{line.ljust(_COLUMN - 1)} # {comment}" if comment else line


def _quoted(value: Any) -> str:
    """Write a value as TOML; a JSON string is a TOML string, except for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
