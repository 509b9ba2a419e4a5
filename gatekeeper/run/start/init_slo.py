"""`gatekeeper init`: an SLO file for this machine, from its chip, memory, backends and the models found on it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from errno import ENOSPC
from itertools import chain, count
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan.complaints.memory_fit import MemoryFit, needed_by_names, short_now
from gatekeeper.analysis.plan.complaints.wrong_host import virtual_mac
from gatekeeper.analysis.plan.draft_pairs import ModelPair, model_pairs
from gatekeeper.backends import all_facts, backends_that_load, facts_of
from gatekeeper.backends.models import artifacts, model_stores
from gatekeeper.core import slo
from gatekeeper.core.backend_registry import backend_names
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system import inputs
from gatekeeper.core.system.files import why_not_written, write_atomically
from gatekeeper.core.system.own_command import HUB, hub_command
from gatekeeper.core.units import show_bytes, sold_gigabytes
from gatekeeper.run.start.doctor import find_backends, missing_backends
from gatekeeper.run.start.inspected_models import (
    InspectedModel,
    find_models,
    inspect_model,
    named_models,
    pair_words,
    usable,
)
from gatekeeper.run.start.slo_writer import SOLD, PairNames, SloWriter, slo_name

DEFAULT = Path("slos/this-host.toml")
"""Where the file goes without --output."""
MACHINES = ("m4-16gb", "m4-24gb", "m5-pro-48gb", "m2-ultra-64gb", "m3-ultra-512gb")
"""The shipped SLO files for one machine each, by its memory; their model pairs are public."""
CLOSE = "close programs that use memory: the pair is installed, but does not fit into the available memory"


def propose(
    output: Path | None,
    *,
    force: bool,
    backend: str | None = None,
    target: str | None = None,
    drafts: Sequence[str] = (),
) -> tuple[dict[str, Any], ExitCode]:
    """Write an SLO file for this machine to *output*; return what was found and chosen, and the exit code.

    It is for *target* and *drafts* if they are named, else for the heaviest pair of the models found; for *backend*, or
    else for one that is installed. The code is 0 where a pair is on this machine, 3 where a model has to be downloaded
    or a backend to be installed first. A file that exists is an InputError without *force*; without *output* it is
    written to DEFAULT, or beside it where that exists: what other commands print as their next one runs.
    """
    output = output or (DEFAULT if force else _free(DEFAULT))
    if backend is not None:
        _check_backend(backend)
    if output.exists() and not force:
        raise _exists(output)
    facts = host.facts()
    readings, lacks = host.survey()
    free = readings["memory_headroom"].value
    memory = facts.get("memory_bytes")
    headroom = float(free) if isinstance(free, int | float) else None
    available = headroom if headroom is not None else memory
    named = named_models(target, drafts) if target is not None or drafts else []
    models = find_models()
    installed = find_backends()
    missing = missing_backends(installed)
    folder_backends = tuple(name for name in backends_that_load("folder") if name not in missing)
    by_name = {inspected.model.name: inspected for inspected in (*models, *named) if inspected.model is not None}
    writer = SloWriter(output, facts, lacks, by_name, folder_backends)
    here, tight, reason = None, None, None
    if named:
        here, tight = _propose_named_pair(writer, named, missing, available, backend)
        proposal = here
    elif backend is not None and facts_of(backend).loads is None:
        proposal = _adapt_shipped_slo(writer, backend, missing)
        reason = f"{backend} serves models of its own, which the file names as an example"
    else:
        here, tight = _choose(writer, models, missing, available, backend)
        proposal = here or _to_download(writer, missing, memory, backend)
        reason = _without_pair(models, backend, tight)
    pair, fit = proposal.pair, proposal.fit
    _write(output, proposal.text, force=force)
    needed = fit.needed_now if fit is not None else needed_by_names(slo.parse(proposal.text, str(output)), 0.0)
    (short,) = short_now(needed, headroom, host.memory_holders) or (None,)
    document = {
        "schema": 1,
        "written": str(output),
        "host": {"chip": facts.get("chip"), "os": facts.get("os"), "memory_bytes": memory, "available": headroom},
        "backends": {name: system.place is not None for name, system in installed.items()},
        "also": _also(pair, [name for name in installed if name not in missing], named=bool(named)),
        "models": [inspected.document() for inspected in models],
        "pair": {"backend": pair.backend, "target": pair.target, "drafts": list(pair.drafts)},
        "here": here is not None,
        "why_not_here": reason if here is None else None,
        "elsewhere": tight,
        "memory": fit.document() if fit is not None else None,
        "certifies_nothing": next((f"{each.message}; {each.hint}" for each in virtual_mac(facts)), None),
        "short_of_memory": f"{short.message}: {short.hint}" if short is not None else None,
        "left_out": {metric: reason for metric, reason in lacks.items() if f"# {metric} is left out" in proposal.text},
        "do_first": list(proposal.commands),
        "next": f"gatekeeper plan {output}",
    }
    return document, ExitCode.OK if here is not None and not proposal.commands else ExitCode.UNPROVEN


def _check_backend(backend: str) -> None:
    """Raise InputError for a backend that init writes no file for."""
    names = backends_with_a_file()
    if backend not in names:
        hint = did_you_mean(backend, names)
        if backend in backend_names():
            written = ", ".join(names)
            hint = f"write [subject] yourself, as `gatekeeper explain servers` says; init writes files for: {written}"
        raise InputError(f"--backend {backend}: init writes no file for it", hint=hint)


def backends_with_a_file() -> list[str]:
    """Return the backends that init writes a file for; those that load models of this machine come first."""
    usable_facts = [facts for facts in all_facts() if facts.loads is not None or facts.shipped is not None]
    return [facts.name for facts in sorted(usable_facts, key=lambda facts: facts.loads is None)]


def _also(chosen: PairNames, installed: Sequence[str], *, named: bool) -> dict[str, str]:
    """Return the command that writes a file for each other backend that is installed here, for the pair if *named*."""
    names = [name for name in installed if name != chosen.backend and name in backends_with_a_file()]
    if not named:
        return {name: f"gatekeeper init --backend {name} -o {_free(_of_backend(name))}" for name in names}
    loads = facts_of(chosen.backend).loads
    pair = pair_words(None, chosen.target, chosen.drafts)
    return {
        name: f"gatekeeper init {pair} --backend {name} -o {_free(_of_backend(name))}"
        for name in names
        if facts_of(name).loads == loads
    }


@dataclass(frozen=True, slots=True)
class _Proposal:
    text: str
    """The text of the SLO file."""
    pair: PairNames
    fit: MemoryFit | None
    commands: tuple[str, ...]
    """What to do before it can be certified."""


def _choose(
    writer: SloWriter,
    models: Sequence[InspectedModel],
    missing: Mapping[str, str],
    available: float | None,
    requested: str | None,
) -> tuple[_Proposal | None, str | None]:
    """Return the heaviest pair that fits into the available memory, for the backend that is *requested* or installed.

    Where none fits, also return in words which pair is here and what it needs.
    """
    tight = None
    for pair in sorted(model_pairs(usable(models)), key=lambda candidate: candidate.backend in missing):
        heaviest, *lighter = pair.drafts
        for backend in _backends(requested, pair.backend, missing):
            if facts_of(backend).loads != facts_of(pair.backend).loads:
                continue
            names = PairNames(backend, pair.target.name, (heaviest.name,), tuple(draft.name for draft in lighter))
            proposal, needs = _fit_pair(
                writer, names, pair, missing, available, rewrite="write it into the file for a larger Mac: "
            )
            if needs is None:
                return proposal, None
            tight = tight or needs
    return None, tight


def _backends(requested: str | None, backend: str, missing: Mapping[str, str]) -> list[str]:
    """Return the backend that is *requested*, else those that a pair for *backend* may have, the preferred one first.

    A watch or a proxy needs a server. That needs the target twice, once without a draft: where it does not fit into
    memory, one process of ours may.
    """
    if requested is not None:
        return [requested]
    server = facts_of(backend).served_as
    return [*([server] if server is not None and server not in missing else []), backend]


def _propose_named_pair(
    writer: SloWriter,
    models: Sequence[InspectedModel],
    missing: Mapping[str, str],
    available: float | None,
    requested: str | None,
) -> tuple[_Proposal, str | None]:
    """Return the pair that the user named, whatever it needs; where it does not fit, also say so."""
    target, *drafts = models
    if requested is not None and facts_of(requested).loads not in {None, facts_of(target.backend).loads}:
        hint = f"leave out --backend, or name models that {requested} loads"
        raise InputError(f"--backend {requested} does not load {target.stored.name}", hint=hint)
    proposal, needs = None, None
    for backend in _backends(requested, target.backend, missing):
        pair = ModelPair(backend, target.known, tuple(draft.known for draft in drafts))
        names = PairNames(backend, pair.target.name, tuple(draft.name for draft in pair.drafts))
        proposal, needs = _fit_pair(writer, names, pair, missing, available)
        if needs is None:
            break
    assert proposal is not None
    return proposal, needs


def _without_pair(models: Sequence[InspectedModel], backend: str | None, tight: str | None) -> str:
    """Return why no two of the models here are a pair that can be certified now; empty where there are no models."""
    if tight:
        return "no two of them make a pair that fits into the available memory"
    kinds = {model.backend for model in models if model.unfit is None}
    if backend is not None and kinds and all(facts_of(kind).loads != facts_of(backend).loads for kind in kinds):
        return f"none of them is a {facts_of(backend).loads}, which {backend} loads"
    unlike = "no two of them make a pair: a draft has the target's vocabulary, and at most a third of its size"
    return unlike if models else ""


def _fit_pair(
    writer: SloWriter,
    names: PairNames,
    pair: ModelPair,
    missing: Mapping[str, str],
    available: float | None,
    *,
    rewrite: str = "",
) -> tuple[_Proposal, str | None]:
    """Return the file of a pair, and in words what it needs where that is more than is *available*, and what to do.

    *rewrite* asks for the pair in the file, where that is another one's.
    """
    commands = (missing[names.backend],) if names.backend in missing else ()
    text = writer.text(names, commands)
    fit = writer.fit(text, pair.target, pair.drafts[:1], available)
    needs, name = None, f"{names.target} with {names.drafts[0]}"
    elsewhere = f"{rewrite}gatekeeper remote certify {writer.output} --on HOST runs it there"
    if fit is not None and fit.host_bytes is not None and fit.needed_now > fit.host_bytes:
        needs = f"{name} needs {show_bytes(fit.needed_now)} of memory, and {show_bytes(fit.host_bytes)} is available "
        needs += "here until other programs are closed; "
        closing_helps = fit.needed <= (writer.facts.get("memory_bytes") or 0)
        needs += "close them, then run gatekeeper init again with --force" if closing_helps else elsewhere
    elif fit is not None and fit.wired_limit_is_known and fit.wired_limit is not None and fit.wired > fit.wired_limit:
        needs = (
            f"{name} needs {show_bytes(fit.wired)} on the GPU, and {show_bytes(fit.wired_limit)} may be wired here; "
        )
        needs += elsewhere
    return _Proposal(text, names, fit, commands), needs


def _adapt_shipped_slo(writer: SloWriter, backend: str, missing: Mapping[str, str]) -> _Proposal:
    """Return the shipped SLO file of a *backend* whose models are made for it, without the machine it names."""
    path = inputs.shipped_folder("slos") / f"{facts_of(backend).shipped}.toml"
    text = re.sub(r"(?m)^(#:schema .*\n)|\[host\]\n(?:.+\n)+\n", "", path.read_text("utf-8"))
    text = re.sub(r'(?m)^name = ".*"$', f'name = "{slo_name(writer.output)}"', text, count=1)
    subject = slo.parse(text, path.name).subject
    names = PairNames(backend, subject.target, subject.drafts)
    if not facts_of(backend).own_drafts.issuperset(subject.drafts) and (pair := _stored_pair(backend)) is not None:
        names = PairNames(backend, *pair)
        for example, name in ((subject.target, names.target), (subject.drafts[0], names.drafts[0])):
            text = text.replace(json.dumps(example), json.dumps(name))
    install = (missing[backend],) if backend in missing else ()
    check = f"check the models and addresses in {writer.output}: they are an example"
    return _Proposal(text, names, None, (*install, check))


def _stored_pair(backend: str) -> tuple[str, tuple[str]] | None:
    """Return the names of the heaviest pair in the *backend*'s own store of models."""
    store = facts_of(backend).keeps_models
    if store is None:
        return None
    models = [inspect_model(model) for model in model_stores.all_models() if store.find(model.name) == model.path]
    name_of = {model.known.name: model.stored.name for model in models if model.model is not None}
    pairs = [(name_of[pair.target.name], (name_of[pair.drafts[0].name],)) for pair in model_pairs(usable(models))]
    return next(iter(pairs), None)


def _shipped_slo(name: str) -> slo.Slo:
    return slo.parse((inputs.shipped_folder("slos") / f"{name}.toml").read_text("utf-8"), name)


def _to_download(
    writer: SloWriter, missing: Mapping[str, str], memory: float | None, requested: str | None
) -> _Proposal:
    """Return the pair of the shipped SLO for the largest machine that is no larger than this one."""
    # By name: in a checkout the folder also has the user's own files, and those of an earlier init.
    shipped = [_shipped_slo(name) for name in MACHINES]
    limit = sold_gigabytes(memory or 0) * (1 + SOLD)
    fitting = [shipped[0], *(candidate for candidate in shipped if (candidate.host.memory_gb or 0) <= limit)][-1]
    backend = requested or backends_that_load("folder")[0]
    shipped_name = facts_of(backend).shipped
    subject = _shipped_slo(shipped_name).subject if shipped_name is not None else fitting.subject
    names = PairNames(backend, subject.target, subject.drafts[:1], subject.drafts[1:])
    absent = [name for name in (names.target, *names.drafts) if name not in writer.models]
    install = [missing[names.backend]] if names.backend in missing else []

    def commands(hub: str) -> tuple[str, ...]:
        return (*install, *(artifacts.hub_download(name, hub) for name in absent)) or (CLOSE,)

    # The file may be read on another machine, where the program has no such path.
    return _Proposal(writer.text(names, commands(HUB)), names, None, commands(hub_command()))


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
        try:
            with file:
                file.write(text)
        except OSError:
            output.unlink()  # an empty file would stop the next init
            raise
    except OSError as error:
        message = f"cannot write {output}: {why_not_written(output, error)}"
        hint = (
            "free disk space, or choose another path with -o"
            if error.errno == ENOSPC
            else "choose another path with -o"
        )
        raise GatekeeperError(message, hint=hint) from error


def _exists(output: Path) -> InputError:
    hint = f"write one beside it and compare the two (-o {_free(output)}), or overwrite it with --force"
    return InputError(f"{output} already exists", hint=hint)


def _of_backend(name: str) -> Path:
    return DEFAULT.with_name(f"{name}.toml")


def _free(output: Path) -> Path:
    """Return *output*, or beside a file of that name the first that is free: this-host-2.toml."""
    numbered = (output.with_name(f"{output.stem}-{number}{output.suffix}") for number in count(2))
    return next(path for path in chain([output], numbered) if not path.exists())
