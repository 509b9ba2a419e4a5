"""The text of the SLO file that `init` writes: what is known of this machine, its models and the backend."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper import __version__, host
from gatekeeper.analysis.plan.complaints.memory_fit import (
    RUNTIME_BYTES,
    MemoryFit,
    estimate_fit,
    system_share,
)
from gatekeeper.analysis.plan.request_costs import SMALL_VOCABULARY
from gatekeeper.backends import facts_of
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core import canary, slo
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.manifest import Model
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.reasons import CERTIFICATION
from gatekeeper.core.system import inputs
from gatekeeper.core.text import one_line
from gatekeeper.core.units import show_bytes, sold_gigabytes
from gatekeeper.run.start.inspected_models import InspectedModel

_COLUMN = 30
"""The column at which a comment after a key begins."""
FREE_SHARE = 1 / 8
"""The headroom that the file requires, as a share of the memory."""


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A workload with its canary file."""

    name: str
    tier: str
    canaries: str
    note: str
    quality: str | None = None
    """The metric for correct answers; None where they are not graded."""


WORK = (
    WorkloadEntry("json", "medium", "json", "strict JSON: predictable, so a draft helps here first", "json_pass_delta"),
    WorkloadEntry("code", "short", "code", "short functions", "task_pass_delta"),
    WorkloadEntry("tools", "medium", "tools", "exact tool calls", "tool_call_pass_delta"),
)
"""Three, so that a run takes about an hour."""
LITTLE_WORK = (
    WorkloadEntry("json", "short", "little/json", "JSON for the little pair", "json_pass_delta"),
    WorkloadEntry("code", "short", "little/code", "code for the little pair", "task_pass_delta"),
    WorkloadEntry("random", "short", "little/random", "unpredictable on purpose: plain decoding is expected to win"),
)
"""For a vocabulary so small that it would split the canaries of WORK into characters."""

FIRST, LITTLE_FIRST = 26, 24
"""Canaries of a workload."""
SOLD = 0.06
"""The share of a machine's memory that kernel and firmware may reserve."""


@dataclass(frozen=True, slots=True)
class PairNames:
    """A pair by its names in the SLO file."""

    backend: str
    target: str
    drafts: tuple[str, ...]
    lighter: tuple[str, ...] = ()
    """Further drafts, which the file names in a comment."""


@dataclass(frozen=True, slots=True)
class SloWriter:
    """Writes the file *output*."""

    output: Path
    facts: Mapping[str, Any]
    lacks: Mapping[str, str]
    models: Mapping[str, InspectedModel]
    """The models by their name in an SLO file."""
    folder_backends: tuple[str, ...] = ()
    """Those installed here that load a pair of folders."""

    def text(self, pair: PairNames, missing: Sequence[str] = ()) -> str:
        """Return the file for *pair*; *missing* are the commands that must come first."""
        lines = [*self._head(missing), *self._subject(pair), *self._workloads(pair), *self._objectives(pair)]
        return "\n".join(lines) + "\n"

    def _head(self, missing: Sequence[str]) -> Iterator[str]:
        if (schema := self._schema()) is not None:
            yield f"#:schema {schema}"
        yield f"# Proposed by gatekeeper {__version__} for this machine. The objectives are a starting point: change"
        yield "# them to what you need. To see how long a run takes and what it cannot prove:"
        yield f"#     gatekeeper plan {self.output}"
        if missing:
            yield "# First:"
            yield from (f"#     {command}" for command in missing)
        yield from ("schema = 1", f"name = {_quote_value(slo_name(self.output))}")
        yield from ('why = "Does a draft help on this machine, for these workloads?"', "")
        yield _add_comment("[host]", "a run on another machine proves nothing for this one")
        for key, value in _host(self.facts).items():
            yield _add_comment(
                f"{key} = {_quote_value(value)}", "as sold: 2**30 bytes each" if key == "memory_gb" else ""
            )
        yield ""

    def _subject(self, pair: PairNames) -> Iterator[str]:
        loads_folders = facts_of(pair.backend).loads == "folder"
        others = [name for name in self.folder_backends if loads_folders and name != pair.backend]
        comment = f"installed as well: {', '.join(others)}; certify the one that you deploy" if others else ""
        yield from ("[subject]", _add_comment(f"backend = {_quote_value(pair.backend)}", comment))
        yield f"target = {self._model(pair.target)}  # {self._note(pair.target)}"
        yield _add_comment("drafts = [", "heaviest first; they share the target's token map")
        yield from (f"  {self._model(draft)},  # {self._note(draft)}" for draft in pair.drafts)
        if pair.lighter:
            yield "  # Lighter ones, for a fallback: name them here and, to sweep them as well, in sweep.draft. Each"
            yield "  # takes a fifth more time or so, which plan shows."
            yield from (f"  # {self._model(draft)},  # {self._note(draft)}" for draft in pair.lighter)
        yield "]"
        if defect := dialect_of(pair.backend).cache_defect if pair.backend in SERVERS else "":
            yield _add_comment('prompt_cache = "off"', "measured and launched with the switch that turns it off;")
            yield _add_comment("", f"{defect};")
            yield _add_comment("", '"as-deployed" checks whether yours does')
        yield from ("", "[sampling]")
        yield _add_comment("temperature = 0.0", "greedy: needed to compare token by token")
        yield f"max_tokens = {160 if self._is_little(pair) else 256}"
        if self._template_has("enable_thinking", pair):
            yield _add_comment("thinking = false", "thinking can use up max_tokens before the answer")
        yield ""

    def _workloads(self, pair: PairNames) -> Iterator[str]:
        first = LITTLE_FIRST if self._is_little(pair) else FIRST
        about = "Its canaries are the fixed prompts that are measured: use your own."
        yield f"# Each workload gets its own verdict. {about}"
        yield f"# first = {first}: more canaries prove more and take longer; a p95 needs 80, a file has 96."
        yield '# speculation = "optional": plain decoding is fine; "required": no deploy unless the draft helps.'
        for workload in self._work(pair):
            yield _add_comment("[[workload]]", workload.note)
            yield from (f"name = {_quote_value(workload.name)}", f"tier = {_quote_value(workload.tier)}")
            yield from (f"canaries = {_quote_value(workload.canaries)}", f"first = {first}", 'speculation = "optional"')
            yield ""
        yield from ("[sweep]", "repeats = 1")
        yield _add_comment("budget = 8", "enough to choose a setting; the soak proves it")
        yield _add_comment("num_draft_tokens = [2, 4]", "each further length takes some minutes")
        if len(pair.drafts) > 1:
            yield f"draft = [{', '.join(map(self._model, pair.drafts))}]"
        if pair.lighter:
            yield f"# draft = [{', '.join(map(self._model, (*pair.drafts, *pair.lighter)))}]"
        yield from ("", "[sweep.default]", "num_draft_tokens = 4", "", "[soak]")
        yield _add_comment(
            f'duration = "{CERTIFICATION}"', "less is graded demo; the soak continues until it has enough answers"
        )
        yield 'max_duration = "2 h"'
        yield _add_comment('profile = "steady"', '"desktop" holds memory as a browser and an IDE do')
        yield _add_comment("baseline_share = 0.5", "each speculative request is paired with a plain one")
        yield ""

    def _objectives(self, pair: PairNames) -> Iterator[str]:
        sight = facts_of(pair.backend).sight or Sight.NOTHING
        why = "Below 1.16x a second model is not worth its memory."
        yield from _objective("throughput_ratio", "at_least = 1.16", why)
        yield from _objective(
            "acceptance_rate",
            "at_least = 0.5",
            "A draft with half of its tokens rejected is the wrong draft for this workload.",
            *(['from = "claims"               # as the server reports it'] if Sight.ROUNDS not in sight else []),
        )
        if Sight.COLD in sight:
            yield from _objective(
                "ttft_delta",
                "at_most = 0.08",
                "A reader waits for the first token, and the draft reads the prompt too.",
                _add_comment('or_with = "warm-up"', "a later first token needs a warm-up, then required by the policy"),
            )
        if not BY_NAME["replay_agreement"].find_missing_sight(sight):
            why = "Each token is the target's own choice in the pass that verified it; else the engine is broken."
            yield from _objective("replay_agreement", "at_least = 1.0", why)
        else:
            yield "# The words of the answers: what this backend shows of the target decides, without an objective."
            yield ""
        yield from _objective(
            "error_rate", "at_most = 0.0", "No request may fail, with or without a draft.", 'when = "always"'
        )
        for workload in self._work(pair):
            if workload.quality is not None:
                limit = f"workloads = [{_quote_value(workload.name)}]"
                why = "Speculation must not make answers worse."
                yield from _objective(workload.quality, "at_least = 0.0", why, limit)
        yield "# For a bound in milliseconds, measure this machine first with gatekeeper try. For example:"
        yield from ("# [[objective]]", '# metric = "itl_p95"', '# at_most = "45 ms"', '# why = "..."', "")
        if (peak := self._peak(pair)) is not None and "footprint_peak" not in self.lacks:
            most = f"at_most = {_quote_value(show_bytes(peak))}"
            why = "Weights, caches and Python; more is a leak or another model."
            yield from _objective("footprint_peak", most, why)
        free = f"at_least = {_quote_value(show_bytes((self.facts.get('memory_bytes') or 0) * FREE_SHARE))}"
        for metric, bound, why in (
            ("memory_headroom", free, "An eighth of the memory stays free for everything else."),
            ("memory_pressure_critical", 'at_most = "60 s"', "Longer critical pressure makes every app stutter."),
            ("footprint_growth", 'at_most = "300 MB/h"', "Memory that grows without bound ends a server within days."),
            ("swapin_bytes", 'at_most = "200 MB"', "Swapping makes measurements wrong and the machine slow."),
            (
                "swap_growth",
                'at_most = "200 MB"',
                "Swap that keeps growing ends with a machine that waits for its disk.",
            ),
            ("throttle_time", 'at_most = "0 s"', "A throttled machine does not keep this speed."),
        ):
            if metric in self.lacks:
                yield from (f"# {metric} is left out: {one_line(self.lacks[metric])}", "")
            else:
                yield from _objective(metric, bound, why)

    def _template_has(self, word: str, pair: PairNames) -> bool:
        """Return whether the target's chat template has *word*; one that is not on this machine is assumed to."""
        inspected = self.models.get(pair.target)
        return inspected is None or word in (inspected.template or "")

    def _is_little(self, pair: PairNames) -> bool:
        inspected = self.models.get(pair.target)
        vocabulary = inspected.model.vocabulary if inspected is not None and inspected.model is not None else None
        return (vocabulary or SMALL_VOCABULARY) < SMALL_VOCABULARY

    def _work(self, pair: PairNames) -> Sequence[WorkloadEntry]:
        if self._is_little(pair):
            return LITTLE_WORK
        return [workload for workload in WORK if workload.name != "tools" or self._template_has("tools", pair)]

    def _peak(self, pair: PairNames) -> float | None:
        """Return the most that the pair may hold: its weights and a quarter more, and a gigabyte; None if unknown."""
        models = [self.models[name].model for name in (pair.target, pair.drafts[0]) if name in self.models]
        sizes = [model.bytes for model in models if model is not None]
        return 1.25 * sum(sizes) + RUNTIME_BYTES if len(sizes) == 2 else None

    def fit(self, text: str, target: Model, drafts: Sequence[Model], available: float | None) -> MemoryFit | None:
        """Estimate what the file's pair needs, against the memory that is *available* now."""
        proposed = slo.parse(text, str(self.output))
        base = self.output.parent.resolve()
        canaries = {
            workload.name: canary.parse(
                inputs.find_canaries(workload.canaries, base).read_text(encoding="utf-8"), workload.name
            )
            for workload in proposed.workload
        }
        shares = facts_of(proposed.subject.backend).switches
        system = system_share(proposed, self.facts.get("platform"))
        return estimate_fit(
            proposed, canaries, target, drafts, background=0.0, memory=available, shares_process=shares, system=system,
            wired_limit=host.wired_limit(self.facts),
        )  # fmt: skip

    def _model(self, name: str) -> str:
        """Write a model's name, to which paths are relative, as TOML."""
        path, here = Path(name).expanduser(), Path.cwd()
        if not path.exists() or (path.is_absolute() and not path.is_relative_to(here)):
            return _quote_value(name)
        relative = Path(os.path.relpath(here / path, os.path.realpath(self.output.parent))).as_posix()
        return _quote_value(relative if relative.startswith("../") else f"./{relative}")

    def _note(self, name: str) -> str:
        inspected = self.models.get(name)
        if inspected is None or inspected.model is None:
            return "not on this machine yet"
        return f"{show_bytes(inspected.model.bytes)}, {inspected.model.quantisation}; {inspected.stored.store}"

    def _schema(self) -> str | None:
        """Return the path of the schema for editors; an installation's is left out, because it is elsewhere in CI."""
        path, base = inputs.shipped_folder("slos") / "slo.schema.json", self.output.parent.resolve()
        together = base.is_relative_to(path.parent.parent.resolve())
        return Path(os.path.relpath(path.resolve(), base)).as_posix() if together else None


def slo_name(output: Path) -> str:
    """Return the name of an SLO in the file *output*."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", output.stem).strip("-._") or "this-host"


def _host(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `[host]` that are known on this machine."""
    keys: dict[str, Any] = {}
    if facts.get("chip"):
        keys["chip"] = facts["chip"]
    if facts.get("memory_bytes"):
        have = sold_gigabytes(facts["memory_bytes"])
        keys["memory_gb"] = round(have) if abs(round(have) - have) < SOLD * have else round(have, 1)
    keys["power"] = "ac" if facts.get("power_source") == "ac" else "any"
    return keys


def _objective(metric: str, bound: str, why: str, *more: str) -> Iterator[str]:
    yield from ("[[objective]]", f"metric = {_quote_value(metric)}", bound, *more, f"why = {_quote_value(why)}", "")


def _add_comment(line: str, comment: str) -> str:
    return f"{line.ljust(_COLUMN - 1)} # {comment}" if comment else line


def _quote_value(value: Any) -> str:
    """Write a value as TOML; a JSON string is a TOML string, except for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
