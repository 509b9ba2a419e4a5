"""The text of the SLO file that `init` writes: what is known of this machine, its models and the backend."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper import __version__, host
from gatekeeper.analysis.plan.complaints.memory_fit import (
    RUNTIME_BYTES,
    SMALL_VOCABULARY,
    MemoryFit,
    estimate_fit,
    system_share,
)
from gatekeeper.backends import facts_of
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core import canary, slo
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.manifest import Model
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.system import inputs
from gatekeeper.core.units import show_bytes, sold_gigabytes
from gatekeeper.report import slo_template
from gatekeeper.report.slo_template import ModelEntry, Proposal, WorkloadEntry
from gatekeeper.run.start.inspected_models import InspectedModel

FREE_SHARE = 1 / 8
"""The headroom that the file requires, as a share of the memory."""
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
    """By their name in an SLO file."""
    folder_backends: tuple[str, ...] = ()
    """Those installed here that load a pair of folders."""

    def text(self, pair: PairNames, missing: Sequence[str] = ()) -> str:
        """Return the file for *pair*; *missing* are the commands that must come first."""
        inspected = self.models.get(pair.target)
        model = inspected.model if inspected is not None else None
        little = model is not None and (model.vocabulary or SMALL_VOCABULARY) < SMALL_VOCABULARY
        template = (inspected.template if inspected is not None else None) or ""
        # A model that is not on this machine is assumed to be like those of the shipped pairs.
        tools, thinks = (True, True) if inspected is None else ("tools" in template, "enable_thinking" in template)
        work = LITTLE_WORK if little else tuple(workload for workload in WORK if tools or workload.name != "tools")
        memory = self.facts.get("memory_bytes") or 0
        facts = facts_of(pair.backend)
        sight = facts.sight or Sight.NOTHING
        other_backends = tuple(
            name for name in self.folder_backends if facts.loads == "folder" and name != pair.backend
        )
        return slo_template.render(
            Proposal(
                path=str(self.output),
                name=slo_name(self.output),
                schema=self._schema(),
                version=__version__,
                host=_host(self.facts),
                backend=pair.backend,
                target=self._entry(pair.target),
                drafts=tuple(map(self._entry, pair.drafts)),
                lighter=tuple(map(self._entry, pair.lighter)),
                workloads=work,
                first=24 if little else 26,
                max_tokens=160 if little else 256,
                thinks=thinks,
                headroom=memory * FREE_SHARE,
                lacks=self.lacks,
                missing=tuple(missing),
                peak=self._peak(pair),
                cold=Sight.COLD in sight,
                claims=Sight.ROUNDS not in sight,
                replays=not BY_NAME["replay_agreement"].unseen(sight),
                also_installed=other_backends,
                cache_defect=dialect_of(pair.backend).cache_defect if pair.backend in SERVERS else "",
            )
        )

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

    def _entry(self, name: str) -> ModelEntry:
        return ModelEntry(self._in_file(name), self._note(name))

    def _in_file(self, name: str) -> str:
        """Return a model's name in the file, to which paths are relative."""
        path, here = Path(name).expanduser(), Path.cwd()
        if not path.exists() or (path.is_absolute() and not path.is_relative_to(here)):
            return name
        relative = Path(os.path.relpath(here / path, os.path.realpath(self.output.parent))).as_posix()
        return relative if relative.startswith("../") else f"./{relative}"

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
    if facts.get("os"):
        keys["os"] = str(facts["os"]).split(".")[0]
    keys["power"] = "ac" if facts.get("power_source") == "ac" else "any"
    return keys
