"""`gatekeeper init`: an SLO file for this machine, from its chip, memory, backends and the models found on it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper import __version__, host
from gatekeeper.analysis.plan.complaints.memory_fit import RUNTIME_BYTES, SMALL_VOCABULARY, MemoryFit, estimate_fit
from gatekeeper.analysis.plan.draft_pairs import model_pairs
from gatekeeper.backends import all_facts, backends_that_load, facts_of
from gatekeeper.backends.models import gguf, locate
from gatekeeper.core import canary, slo
from gatekeeper.core.errors import ExitCode, GatekeeperError, InputError, did_you_mean
from gatekeeper.core.manifest import Model
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.system import inputs
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.units import show_bytes, sold_gigabytes
from gatekeeper.report import slo_template
from gatekeeper.report.slo_template import ModelEntry, Proposal, WorkloadEntry
from gatekeeper.run.start.doctor import find_backends, missing_backends
from gatekeeper.run.start.inspected_models import InspectedModel, inspect_model, usable

FREE_SHARE = 1 / 8
"""The headroom that the file requires, as a share of the memory."""
MACHINES = ("m4-16gb", "m4-24gb", "m5-pro-48gb", "m2-ultra-64gb", "m3-ultra-512gb")
"""The shipped SLO files for one machine each, by its memory; their model pairs are public."""
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


_SOLD = 0.06
"""The share of a machine's memory that kernel and firmware may reserve."""
CLOSE = "close programs that use memory: the pair is installed, but does not fit into the available memory"


def propose(output: Path, *, force: bool, backend: str | None = None) -> tuple[dict[str, Any], ExitCode]:
    """Write an SLO file for this machine to *output*; return what was found and chosen, and the exit code.

    It is for *backend*, or else for the one that is installed and has the heaviest pair. The code is 0 where a pair is
    on this machine, 3 where a model has to be downloaded or a backend to be installed first. A file that exists is an
    InputError without *force*.
    """
    if backend is not None and backend not in (names := backends_with_a_file()):
        hint = did_you_mean(backend, names)
        raise InputError(f"--backend {backend}: init writes no file for it", hint=hint)
    if output.exists() and not force:
        raise _exists(output)
    facts = host.conditions()
    readings, lacks = host.survey()
    free = readings["memory_headroom"].value
    memory = facts.get("memory_bytes")
    available = float(free) if isinstance(free, int | float) else memory
    models = [inspect_model(stored) for stored in locate.all_models()]
    installed = find_backends()
    missing = missing_backends(installed)
    folder_backends = tuple(name for name in backends_that_load("folder") if name not in missing)
    by_name = {inspected.model.name: inspected for inspected in models if inspected.model is not None}
    writer = _SloWriter(output, facts, lacks, by_name, folder_backends)
    chosen, tight = None, None
    if backend is not None and facts_of(backend).loads is None:
        text, pair, fit, commands = _shipped(writer, backend, missing)
    else:
        chosen, tight = _choose(writer, models, missing, available, backend)
        text, pair, fit, commands = chosen if chosen is not None else _to_download(writer, missing, memory, backend)
    _write(output, text, force=force)
    document = {
        "schema": 1,
        "written": str(output),
        "host": {"chip": facts.get("chip"), "os": facts.get("os"), "memory_bytes": memory, "available": available},
        "backends": {name: system.place is not None for name, system in installed.items()},
        "also": _also(pair.backend, [name for name in installed if name not in missing]),
        "models": [inspected.document() for inspected in models],
        "pair": {"backend": pair.backend, "target": pair.target, "drafts": list(pair.drafts)},
        "here": chosen is not None,
        "elsewhere": f"{tight}: gatekeeper remote certify {output} --on HOST runs it there" if tight else None,
        "memory": fit.document() if fit is not None else None,
        "left_out": {metric: reason for metric, reason in lacks.items() if f"# {metric} is left out" in text},
        "do_first": list(commands),
        "next": f"gatekeeper plan {output}",
    }
    return document, ExitCode.OK if chosen is not None and not commands else ExitCode.UNPROVEN


def backends_with_a_file() -> list[str]:
    """Return the backends that init writes a file for; those that load models of this machine come first."""
    usable_facts = [facts for facts in all_facts() if facts.loads is not None or facts.shipped is not None]
    return [facts.name for facts in sorted(usable_facts, key=lambda facts: facts.loads is None)]


def _also(chosen: str, installed: Sequence[str]) -> dict[str, str]:
    """Return the command that writes a file for each other backend that is installed here."""
    names = [name for name in installed if name != chosen and name in backends_with_a_file()]
    return {name: f"gatekeeper init --backend {name} -o slos/{name}.toml" for name in names}


@dataclass(frozen=True, slots=True)
class _SloWriter:
    output: Path
    facts: Mapping[str, Any]
    lacks: Mapping[str, str]
    models: Mapping[str, InspectedModel]
    """By their name in an SLO file."""
    folder_backends: tuple[str, ...] = ()
    """Those installed here that load a pair of folders."""

    def text(self, pair: "_PairNames", missing: Sequence[str] = ()) -> str:
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
                name=_slo_name(self.output),
                schema=self._schema(),
                version=__version__,
                host=_host(self.facts),
                backend=pair.backend,
                target=ModelEntry(pair.target, self._note(pair.target)),
                drafts=tuple(ModelEntry(name, self._note(name)) for name in pair.drafts),
                lighter=tuple(ModelEntry(name, self._note(name)) for name in pair.lighter),
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
            )
        )

    def _peak(self, pair: "_PairNames") -> float | None:
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
        return estimate_fit(proposed, canaries, target, drafts, background=0.0, memory=available, shares_process=shares)

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


def _slo_name(output: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", output.stem).strip("-._") or "this-host"


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
    lighter: tuple[str, ...] = ()
    """Further drafts, which the file names in a comment."""


_Chosen = tuple[str, _PairNames, MemoryFit | None, tuple[str, ...]]


def _choose(
    writer: _SloWriter,
    models: Sequence[InspectedModel],
    missing: Mapping[str, str],
    available: float | None,
    requested: str | None,
) -> tuple[_Chosen | None, str | None]:
    """Return the heaviest pair that fits into the available memory, for the backend that is *requested* or installed.

    Where none fits, also return in words which pair is here and what it needs.
    """
    tight = None
    for pair in sorted(model_pairs(usable(models)), key=lambda candidate: candidate.backend in missing):
        backend = requested or pair.backend
        if facts_of(backend).loads != facts_of(pair.backend).loads:
            continue
        commands = (missing[backend],) if backend in missing else ()
        heaviest, *lighter = (draft.name for draft in pair.drafts)
        names = _PairNames(backend, pair.target.name, (heaviest,), tuple(lighter))
        text = writer.text(names, commands)
        fit = writer.fit(text, pair.target, pair.drafts[:1], available)
        if fit is None or fit.host_bytes is None or fit.needed <= fit.host_bytes:
            return (text, names, fit, commands), None
        needs = f"needs {show_bytes(fit.needed)} of memory, and {show_bytes(fit.host_bytes)} is available here"
        tight = tight or f"{names.target} with {names.drafts[0]} {needs}; write it into the file for a larger Mac"
    return None, tight


def _shipped(writer: _SloWriter, backend: str, missing: Mapping[str, str]) -> _Chosen:
    """Return the shipped SLO file of a *backend* whose models are made for it, without the machine it names."""
    path = inputs.shipped_folder("slos") / f"{facts_of(backend).shipped}.toml"
    text = re.sub(r"(?m)^(#:schema .*\n)|\[host\]\n(?:.+\n)+\n", "", path.read_text("utf-8"))
    text = re.sub(r'(?m)^name = ".*"$', f'name = "{_slo_name(writer.output)}"', text, count=1)
    subject = slo.parse(text, path.name).subject
    names = _PairNames(backend, subject.target, subject.drafts)
    install = (missing[backend],) if backend in missing else ()
    return text, names, None, (*install, f"check the models and addresses in {writer.output}: they are an example")


def _shipped_slo(name: str) -> slo.Slo:
    return slo.parse((inputs.shipped_folder("slos") / f"{name}.toml").read_text("utf-8"), name)


def _to_download(
    writer: _SloWriter, missing: Mapping[str, str], memory: float | None, requested: str | None
) -> _Chosen:
    """Return the pair of the shipped SLO for the largest machine that is no larger than this one."""
    # By name: in a checkout the folder also has the user's own files, and those of an earlier init.
    shipped = [_shipped_slo(name) for name in MACHINES]
    limit = sold_gigabytes(memory or 0) * (1 + _SOLD)
    fitting = [shipped[0], *(candidate for candidate in shipped if (candidate.host.memory_gb or 0) <= limit)][-1]
    backend = requested or backends_that_load("folder")[0]
    shipped_name = facts_of(backend).shipped
    subject = _shipped_slo(shipped_name).subject if shipped_name is not None else fitting.subject
    names = _PairNames(backend, subject.target, subject.drafts[:1], subject.drafts[1:])
    absent = [name for name in (names.target, *names.drafts) if name not in writer.models]
    install = [missing[names.backend]] if names.backend in missing else []
    commands = (*install, *(f"hf download {_downloaded(name)}" for name in absent)) or (CLOSE,)
    return writer.text(names, commands), names, None, commands


def _downloaded(name: str) -> str:
    """Return the words that `hf download` takes: a repository, and the file where one is named."""
    repository, slash, file = name.rpartition("/")
    return f"{repository} {file}" if slash and file.endswith(gguf.SUFFIX) else name


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
