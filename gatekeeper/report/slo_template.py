"""An SLO file as gatekeeper proposes it: TOML with a comment beside whatever a reader may want to change."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.text import one_line
from gatekeeper.core.units import show_bytes

_COLUMN = 30
"""Where a comment begins beside its key."""


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
    """The metric that tells whether its answers are still right; None where nothing grades them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the file is written from."""

    path: str
    name: str
    schema: str
    version: str
    host: Mapping[str, Any]
    """The keys of `[host]` that are known."""
    backend: str
    target: ModelEntry
    drafts: tuple[ModelEntry, ...]
    workloads: tuple[WorkloadEntry, ...]
    first: int
    max_tokens: int
    thinks: bool
    """The target's template can think aloud."""
    headroom: float
    """Bytes that stay free."""
    lacks: Mapping[str, str]
    """Host metrics that this host cannot show, and why."""
    missing: tuple[str, ...] = ()
    """Commands that fetch or install what is not here yet."""


def render(proposed: Proposal) -> str:
    """Return the file's text."""
    lines = [*_head(proposed), *_subject(proposed), *_workloads(proposed), *_objectives(proposed)]
    return "\n".join(lines) + "\n"


def _head(proposed: Proposal) -> Iterator[str]:
    yield f"#:schema {proposed.schema}"
    yield f"# Proposed by gatekeeper {proposed.version} from what was found on this machine. The promises are a"
    yield "# beginning: say what you need instead. What it can not prove, and how long it takes, is shown by"
    yield f"#     gatekeeper plan {proposed.path}"
    if proposed.missing:
        yield "# Before that:"
        yield from (f"#     {command}" for command in proposed.missing)
    yield from ("schema = 1", f"name = {_quoted(proposed.name)}")
    yield from ('why = "Does a draft pay on this machine, for these kinds of work?"', "")
    if proposed.host:
        yield _beside("[host]", "a run on another machine proves nothing for this one")
        for key, value in proposed.host.items():
            yield _beside(f"{key} = {_quoted(value)}", "as sold: 2**30 bytes each" if key == "memory_gb" else "")
        yield ""


def _subject(proposed: Proposal) -> Iterator[str]:
    yield from ("[subject]", f"backend = {_quoted(proposed.backend)}")
    yield f"target = {_quoted(proposed.target.name)}  # {proposed.target.note}"
    yield _beside("drafts = [", "heaviest first; the same token map as the target's")
    yield from (f"  {_quoted(draft.name)},  # {draft.note}" for draft in proposed.drafts)
    yield from ("]", "", "[sampling]")
    yield _beside("temperature = 0.0", "greedy: only then can tokens be compared one by one")
    yield f"max_tokens = {proposed.max_tokens}"
    if proposed.thinks:
        yield _beside("thinking = false", "else it may use up max_tokens before it answers")
    yield ""


def _workloads(proposed: Proposal) -> Iterator[str]:
    yield "# Each kind of work gets its own verdict. Put your own prompts in the place of these."
    yield f"# first = {proposed.first}: more canaries prove more and take longer; a p95 needs 80, and a file has 96."
    yield '# speculation = "optional": plain decoding is fine; "required" blocks the deploy if the draft does not pay.'
    for workload in proposed.workloads:
        yield _beside("[[workload]]", workload.note)
        yield from (f"name = {_quoted(workload.name)}", f"tier = {_quoted(workload.tier)}")
        yield from (f"canaries = {_quoted(workload.canaries)}", f"first = {proposed.first}", 'speculation = "optional"')
        yield ""
    yield from ("[sweep]", "repeats = 1", _beside("budget = 24", "enough to choose by; the soak is what proves"))
    yield "num_draft_tokens = [2, 3, 4, 6]"
    if len(proposed.drafts) > 1:
        yield f"draft = [{', '.join(_quoted(draft.name) for draft in proposed.drafts)}]"
    yield from ("", "[sweep.default]", "num_draft_tokens = 3", "", "[soak]")
    yield _beside('duration = "600 s"', "less is graded demo; it goes on until there are answers enough")
    yield 'max_duration = "2 h"'
    yield _beside('profile = "steady"', '"desktop" holds memory as a browser and an IDE do')
    yield _beside("sentinel_share = 0.5", "every answer has a plain twin: the quickest way to a census")
    yield ""


def _objectives(proposed: Proposal) -> Iterator[str]:
    yield from _objective("throughput_ratio", "at_least = 1.16", "Below 1.16x a second model does not earn its memory.")
    claims = proposed.backend == "llama-server"
    yield from _objective(
        "acceptance_rate",
        "at_least = 0.5",
        "A draft that is wrong every other time is the wrong draft for this work.",
        *(['from = "claims"               # llama-server counts for itself'] if claims else []),
    )
    yield from _objective("token_agreement", "at_least = 1.0", "Greedy speculation is lossless; else it is broken.")
    yield from _objective(
        "error_rate", "at_most = 0.0", "An answer that fails is no answer, plain or speculating.", 'when = "always"'
    )
    for workload in proposed.workloads:
        if workload.quality is not None:
            named = f"workloads = [{_quoted(workload.name)}]"
            why = "Speed is not bought with wrong answers."
            yield from _objective(workload.quality, "at_least = 0.0", why, named)
    yield "# A bound in milliseconds takes a look at this machine first: gatekeeper probe, then for example"
    yield from ("# [[objective]]", '# metric = "itl_p95"', '# at_most = "45 ms"', '# why = "..."', "")
    free = f"at_least = {_quoted(show_bytes(proposed.headroom))}"
    for metric, bound, why in (
        ("memory_headroom", free, "An eighth of the memory stays free for everything else."),
        ("memory_pressure_critical", 'at_most = "60 s"', "Pressure red for longer makes every app stutter."),
        ("swapin_bytes", 'at_most = "200 MB"', "A machine that swaps is measured wrong, and used worse."),
        ("swap_growth", 'at_most = "200 MB"', "Swap that only grows ends in a machine that waits for its disk."),
        ("throttle_time", 'at_most = "0 s"', "A speed that was bought with heat is gone in an hour."),
    ):
        if metric in proposed.lacks:
            yield from (f"# {metric} is left out: {one_line(proposed.lacks[metric])}", "")
        else:
            yield from _objective(metric, bound, why)


def _objective(metric: str, bound: str, why: str, *more: str) -> Iterator[str]:
    yield from ("[[objective]]", f"metric = {_quoted(metric)}", bound, *more, f"why = {_quoted(why)}", "")


def _beside(line: str, comment: str) -> str:
    return f"{line.ljust(_COLUMN - 1)} # {comment}" if comment else line


def _quoted(value: Any) -> str:
    """Write a value as TOML; a string of JSON is one of TOML, but for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
