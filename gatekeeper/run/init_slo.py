"""`gatekeeper init`: an SLO file for this machine, from its chip, memory, backends and the models found on it."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gatekeeper import __version__, host
from gatekeeper.analysis.plan.draft_pairs import LocalModel, ModelPair, model_pairs
from gatekeeper.analysis.plan.memory_fit import SMALL_VOCABULARY, MemoryFit, estimate_fit
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.models import artifacts, gguf, locate
from gatekeeper.backends.models.locate import FoundModel
from gatekeeper.core import canary, slo
from gatekeeper.core.errors import ExitCode, GatekeeperError, InputError
from gatekeeper.core.manifest import Model
from gatekeeper.core.system import inputs
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.units import show_bytes, sold_gigabytes
from gatekeeper.report import slo_template
from gatekeeper.report.slo_template import ModelEntry, Proposal, WorkloadEntry

FREE_SHARE = 1 / 8
"""The headroom that the file requires, as a share of the memory."""
MACHINES = ("m4-16gb", "m4-24gb", "m5-pro-48gb", "m2-ultra-64gb", "m3-ultra-512gb")
"""The shipped SLO files for one machine each, by its memory; their model pairs are public."""
WORK = (
    WorkloadEntry("json", "medium", "json", "strict JSON: predictable, so a draft helps here first", "json_pass_delta"),
    WorkloadEntry("code", "short", "code", "short functions", "task_pass_delta"),
    WorkloadEntry("tools", "medium", "tools", "exact tool calls", "tool_call_pass_delta"),
    WorkloadEntry("chat", "short", "chat", "free prose, hard to predict; not graded"),
)
LITTLE_WORK = (
    WorkloadEntry("json", "short", "little/json", "JSON for the little pair", "json_pass_delta"),
    WorkloadEntry("code", "short", "little/code", "code for the little pair", "task_pass_delta"),
    WorkloadEntry("random", "short", "little/random", "unpredictable on purpose: plain decoding is expected to win"),
)
"""For a vocabulary so small that it would split the canaries of WORK into characters."""


_SOLD = 0.06
"""The share of a machine's memory that kernel and firmware may reserve."""
CLOSE = "close programs that use memory: the pair is installed, but does not fit into the available memory"


class _NoHashes:
    """A hash cache that hashes nothing: choosing a pair reads headers and token maps, never gigabytes of weights."""

    def sha256(self, path: Path) -> str:
        """Return no digest."""
        del path
        return ""


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """One model of a cache, and whether it can be used."""

    found: FoundModel
    path: Path
    backend: str
    model: Model | None
    template: str | None
    unfit: str | None
    """Why it cannot be part of a pair; None where it can."""

    def document(self) -> dict[str, Any]:
        """Return its entry in `init --json`."""
        return {
            "name": self.found.name,
            "shelf": self.found.store,
            "path": str(self.path),
            "backend": self.backend,
            "bytes": self.model.bytes if self.model is not None else None,
            "quantisation": self.model.quantisation if self.model is not None else None,
            "left_out": self.unfit,
        }


def propose(output: Path, *, force: bool) -> tuple[dict[str, Any], ExitCode]:
    """Write an SLO file for this machine to *output*; return what was found and chosen, and the exit code.

    The code is 0 where a pair is on this machine, 3 where a model has to be downloaded or a backend to be installed
    first. A file that exists is an InputError without *force*.
    """
    if output.exists() and not force:
        raise _exists(output)
    facts = host.conditions()
    readings, lacks = host.survey()
    free = readings["memory_headroom"].value
    memory = facts.get("memory_bytes")
    available = float(free) if isinstance(free, int | float) else memory
    found = [inspect_model(one) for one in locate.all_models()]
    missing = missing_backends()
    writer = _SloWriter(output, facts, lacks, {one.model.name: one for one in found if one.model is not None})
    chosen = _choose(writer, found, missing, available)
    text, pair, seen, commands = chosen if chosen is not None else _to_download(writer, missing, memory)
    _write(output, text, force=force)
    document = {
        "schema": 1,
        "written": str(output),
        "host": {"chip": facts.get("chip"), "os": facts.get("os"), "memory_bytes": memory, "available": available},
        "backends": {name: name not in missing for name in ("mlx", "llama-server")},
        "models": [one.document() for one in found],
        "pair": {"backend": pair.backend, "target": pair.target, "drafts": list(pair.drafts)},
        "here": chosen is not None,
        "memory": seen.document() if seen is not None else None,
        "left_out": {metric: why for metric, why in lacks.items() if f"# {metric} is left out" in text},
        "do_first": list(commands),
        "next": f"gatekeeper plan {output}",
    }
    return document, ExitCode.OK if chosen is not None and not commands else ExitCode.UNPROVEN


def missing_backends() -> dict[str, str]:
    """Return the backends that are not installed, with the command that installs them."""
    missing = {}
    if find_spec("mlx_lm") is None:
        missing["mlx"] = 'pip install "gatekeeper[mlx]"'
    server = dialect_of("llama-server")
    if shutil.which(server.program[0]) is None:
        missing["llama-server"] = server.install
    return missing


def inspect_model(one: FoundModel) -> InspectedModel:
    """Read what identifies a model, and why it cannot be part of a pair."""
    path, backend = one.path, "mlx" if one.path.is_dir() else "llama-server"
    try:
        if one.store == "Ollama":
            path = locate.ollama_layers(one.path, one.name)["model"]
        model = artifacts.freeze(one.name if one.store == "Hugging Face" else str(path), path, _NoHashes())
        if path.is_dir():
            template = artifacts.chat_template(path, one.name)
        else:
            template = gguf.read_header(path, one.name).keys.get("tokenizer.chat_template")
        unfit = _unfit(model, path)
    except InputError as error:
        return InspectedModel(one, path, backend, None, None, error.message)
    except Exception as error:  # noqa: BLE001 (one odd model in a cache must not hide the others)
        return InspectedModel(one, path, backend, None, None, f"cannot be read: {type(error).__name__}: {error}")
    return InspectedModel(one, path, backend, model, template, unfit)


def _unfit(model: Model, path: Path) -> str | None:
    if model.tokens_sha256 is None:
        return "it has no token map, so its vocabulary is unknown"
    if model.shape is None:
        return "the size of its attention cache cannot be estimated"
    if not model.shape.every_layer:
        return "not every layer caches every token, so rejected tokens may not be removable"
    if path.is_dir() and (foreign := artifacts.foreign_quantisation(path, model.name)):
        return f"its quantisation {foreign} is made for other engines"
    return None


@dataclass(frozen=True, slots=True)
class _SloWriter:
    """Writes the file for a pair of models on this machine."""

    output: Path
    facts: Mapping[str, Any]
    lacks: Mapping[str, str]
    found: Mapping[str, InspectedModel]
    """By their name in an SLO file."""

    def text(self, pair: "_PairNames", missing: Sequence[str] = ()) -> str:
        """Write the file for *pair*."""
        inspected = self.found.get(pair.target)
        model = inspected.model if inspected is not None else None
        little = model is not None and (model.vocabulary or SMALL_VOCABULARY) < SMALL_VOCABULARY
        template = (inspected.template if inspected is not None else None) or ""
        # A model that is not on this machine is assumed to be like those of the shipped pairs.
        tools, thinks = (True, True) if inspected is None else ("tools" in template, "enable_thinking" in template)
        work = LITTLE_WORK if little else tuple(one for one in WORK if tools or one.name != "tools")
        memory = self.facts.get("memory_bytes") or 0
        return slo_template.render(
            Proposal(
                path=str(self.output),
                name=re.sub(r"[^A-Za-z0-9_.-]+", "-", self.output.stem).strip("-._") or "this-host",
                schema=self._schema(),
                version=__version__,
                host=_host(self.facts),
                backend=pair.backend,
                target=ModelEntry(pair.target, self._note(pair.target)),
                drafts=tuple(ModelEntry(name, self._note(name)) for name in pair.drafts),
                workloads=work,
                first=24 if little else 48,
                max_tokens=160 if little else 256,
                thinks=thinks,
                headroom=memory * FREE_SHARE,
                lacks=self.lacks,
                missing=tuple(missing),
            )
        )

    def fit(self, text: str, target: Model, drafts: Sequence[Model], available: float | None) -> MemoryFit | None:
        """Estimate what the file's pair needs, against the memory that is *available* now."""
        proposed = slo.parse(text, str(self.output))
        base = self.output.parent.resolve()
        canaries = {
            one.name: canary.parse(inputs.find_canaries(one.canaries, base).read_text(encoding="utf-8"), one.name)
            for one in proposed.workload
        }
        shares = proposed.subject.backend == "mlx"
        return estimate_fit(proposed, canaries, target, drafts, background=0.0, memory=available, shares_process=shares)

    def _note(self, name: str) -> str:
        one = self.found.get(name)
        if one is None or one.model is None:
            return "not on this machine yet"
        return f"{show_bytes(one.model.bytes)}, {one.model.quantisation}; {one.found.store}"

    def _schema(self) -> str | None:
        """Return the path of the schema for editors; an installation's is left out, because it is elsewhere in CI."""
        path, base = inputs.shipped_folder("slos") / "slo.schema.json", self.output.parent.resolve()
        together = base.is_relative_to(path.parent.parent.resolve())
        return Path(os.path.relpath(path.resolve(), base)).as_posix() if together else None


def _host(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `[host]` that are known on this machine."""
    keys: dict[str, Any] = {}
    if facts.get("chip"):
        keys["chip"] = facts["chip"]
    if facts.get("memory_bytes"):
        have = sold_gigabytes(facts["memory_bytes"])
        keys["memory_gb"] = round(have) if abs(round(have) - have) < _SOLD * have else round(have, 1)
    if facts.get("os"):
        keys["os"] = str(facts["os"]).split(".")[0]
    keys["power"] = "ac" if facts.get("power_source") == "ac" else "any"
    return keys


@dataclass(frozen=True, slots=True)
class _PairNames:
    """A pair by its names in the SLO file."""

    backend: str
    target: str
    drafts: tuple[str, ...]


_Chosen = tuple[str, _PairNames, MemoryFit | None, tuple[str, ...]]


def _choose(
    writer: _SloWriter, found: Sequence[InspectedModel], missing: Mapping[str, str], available: float | None
) -> _Chosen | None:
    """Return the heaviest pair that fits into the available memory, one with an installed backend first."""
    for pair in sorted(model_pairs(usable(found)), key=lambda one: one.backend in missing):
        commands = (missing[pair.backend],) if pair.backend in missing else ()
        named = _named(pair)
        text = writer.text(named, commands)
        seen = writer.fit(text, pair.target, pair.drafts, available)
        if seen is None or seen.host_bytes is None or seen.needed <= seen.host_bytes:
            return text, named, seen, commands
    return None


def usable(found: Sequence[InspectedModel]) -> list[LocalModel]:
    """Return the models that can be part of a pair."""
    return [
        LocalModel(one.model, one.backend, one.template is not None)
        for one in _each_once(found)
        if one.model is not None and one.unfit is None
    ]


def _each_once(found: Sequence[InspectedModel]) -> Iterator[InspectedModel]:
    """Yield each folder once: LM Studio may keep its models in the hub cache."""
    seen = set()
    for one in found:
        if (real := one.path.resolve()) not in seen:
            seen.add(real)
            yield one


def _named(pair: ModelPair) -> _PairNames:
    return _PairNames(pair.backend, pair.target.name, tuple(draft.name for draft in pair.drafts))


def _to_download(writer: _SloWriter, missing: Mapping[str, str], memory: float | None) -> _Chosen:
    """Return the pair of the shipped SLO for the largest machine that is no larger than this one."""
    # By name: in a checkout the folder also has the user's own files, and those of an earlier init.
    shipped = [
        slo.parse((inputs.shipped_folder("slos") / f"{name}.toml").read_text("utf-8"), name) for name in MACHINES
    ]
    limit = sold_gigabytes(memory or 0) * (1 + _SOLD)
    fitting = [shipped[0], *(one for one in shipped if (one.host.memory_gb or 0) <= limit)][-1]
    named = _PairNames(fitting.subject.backend, fitting.subject.target, fitting.subject.drafts)
    absent = [name for name in (named.target, *named.drafts) if name not in writer.found]
    install = [missing[named.backend]] if named.backend in missing else []
    commands = (*install, *(f"hf download {name}" for name in absent)) or (CLOSE,)
    return writer.text(named, commands), named, None, commands


def _write(output: Path, text: str, *, force: bool) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if force:
            write_atomically(output, text)
            return
        try:
            file = output.open("x", encoding="utf-8")
        except FileExistsError:  # created in the meantime, or a dangling link
            raise _exists(output) from None
        with file:
            file.write(text)
    except OSError as error:
        raise GatekeeperError(f"cannot write {output}: {error.strerror}", hint="choose another path with -o") from error


def _exists(output: Path) -> InputError:
    return InputError(f"{output} already exists", hint="choose another file with -o, or overwrite it with --force")
