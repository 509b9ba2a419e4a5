"""`gatekeeper doctor`: what is installed here, what is missing for which objective or backend, and how to fix it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from gatekeeper import host
from gatekeeper.analysis.metrics.host.host_throttling import is_fanless, throttled_from
from gatekeeper.analysis.plan.complaints.memory_fit import RUNTIME_BYTES
from gatekeeper.analysis.plan.complaints.wrong_host import virtual_mac
from gatekeeper.analysis.plan.draft_pairs import model_pairs
from gatekeeper.backends import all_facts
from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.models import model_stores
from gatekeeper.backends.server_process import program_path
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import InputError
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.text import show_count
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.run.stages.freeze import find_models as find_slo_models
from gatekeeper.run.start.inspected_models import find_models, usable
from gatekeeper.run.start.slo_writer import FREE_SHARE
from gatekeeper.run.start.versions import versions

LOW_POWER = (
    "Low Power Mode is on: switch it off in System Settings > Battery (on a desktop Energy), or by "
    "`sudo pmset -a lowpowermode 0`"
)


CERTIFICATE, RUN = "a certificate", "a run"
"""What a machine may be unfit for now, whatever is installed on it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is present or missing."""

    kind: Literal["remote", "model", "backend", "program", "host", "now", "variable"]
    what: str
    found: str | None
    """Its version, its path, or the sources of its values; None where it is missing."""
    needed_for: str
    fix: str | None
    """The command or permission that fixes it; None where there is nothing to do."""


def examine(slo: Path | None = None) -> dict[str, Any]:
    """Return what was found, as a document, with the models of *slo*; only the tools that read the host are started."""
    facts = host.facts()
    items = [*_backends(), _downloader(), *_host(facts), *_lossy_variables()]
    if slo is not None:
        items = [*_models(slo), *items]
    holder = host.lock_holder()
    return {
        "schema": 1,
        "versions": versions(),
        "facts": facts,
        "lock": asdict(holder) if holder is not None else None,
        "items": [asdict(item) for item in items],
        **_summary(items),
    }


def _models(slo: Path) -> Iterator[Item]:
    for name, place in find_slo_models(read_inputs(slo)):
        if isinstance(place, InputError):
            yield Item("model", name, None, "the SLO", f"{place.message}; {place.hint}")
        else:
            yield Item("model", name, str(place), "the SLO", None)


def _summary(items: Sequence[Item]) -> dict[str, Any]:
    """Return what this machine is ready for, what is missing for what, and the next command."""
    backends = [item.needed_for.removeprefix("backend ") for item in items if item.kind == "backend" and item.found]
    lacking = [item.needed_for for item in items if item.kind == "host" and item.found is None]
    first = next(item.fix for item in items if item.kind == "backend")
    models = find_models()
    pairs = model_pairs(usable(models))
    pair = next((pair for pair in pairs if pair.backend in backends), None)
    ready = [f"certify with {', '.join(backends)}"] if backends else []
    if pair is not None:
        ready += [f"a pair of the {len(models)} models here, {pair.target.name} with {pair.drafts[0].name}"]
    elif models:
        ready += [f"{show_count(len(models), 'model')} here"]
    ready += [f"{sum(item.kind == 'host' for item in items) - len(lacking)} host objectives"]
    missing = [] if backends else ["certify: no serving system is installed"]
    if not models:
        absent = "" if model_stores.hub_cache().is_dir() else f" (there is no folder {model_stores.hub_cache()})"
        places = f"the caches of Hugging Face{absent}, LM Studio and Ollama or in ./{model_stores.FOLDER}"
        missing += [f"a real run: no model is in {places}"]
    elif not pairs:
        missing += ["a pair: no model here has the vocabulary of another one and a third of its size at most"]
    missing += [f"model {item.what}" for item in items if item.kind == "model" and item.found is None]
    missing += [", ".join(lacking)] if lacking else []
    missing += [f"{item.needed_for}: {item.what}" for item in items if item.kind == "variable"]
    now = [item for item in items if item.kind == "now" and item.found is None]
    missing += [f"{item.needed_for}: {item.what}" for item in now if item.needed_for in {CERTIFICATE, RUN}]
    following = "gatekeeper try" if pair is not None else "gatekeeper init" if backends else first
    return {"ready": ready, "missing": missing, "next": following}


def _backends() -> Iterator[Item]:
    for backend in find_backends().values():
        fix = None if backend.place else backend.install
        yield Item("backend", backend.requirement, backend.place, f"backend {backend.name}", fix)


def _lossy_variables() -> Iterator[Item]:
    """Yield the variables that a started server would inherit, and with which `certify` and `plan` refuse it."""
    for name in sorted(SERVERS):
        lossy = dialect_of(name).find_lossy_variable()
        if lossy is not None:
            yield Item("variable", lossy.message, None, f"backend {name}", lossy.hint)


def _downloader() -> Item:
    path = program_path("hf")
    return Item("program", "hf", path, "downloading models", None if path else "pip install huggingface_hub")


def _host(facts: Mapping[str, Any]) -> Iterator[Item]:
    readings, lacks = host.survey()
    for metric, values in host.METRIC_VALUES.items():
        lacking = metric in lacks
        sources = dict.fromkeys(readings[value].source for value in values if readings[value].status == "ok")
        place = None if lacking else ", ".join(sources) or "from the second sample on"
        fix = host.metric_hint(metric, readings, lacks[metric]) if lacking else None
        yield Item("host", ", ".join(values), place, f"objective {metric}", fix)
    free, total = readings["memory_headroom"].value, facts["memory_bytes"]
    if isinstance(free, float) and total is not None:
        yield _memory(free, FREE_SHARE * total + RUNTIME_BYTES)
    if (idle_s := host.idle_sleep_seconds()) is not None:
        fix = "keep it awake between runs, on a desktop: sudo pmset -c sleep 0"
        yield Item("now", f"awake (sleeps after {show_seconds(idle_s)} without input)", None, "nightly runs", fix)
    for complaint in virtual_mac(facts):
        yield Item("now", "a physical Mac", None, CERTIFICATE, f"{complaint.message}; {complaint.hint}")
    if isinstance(level := readings["thermal_level"].value, float):
        yield _heat(level, fanless=is_fanless(facts["machine"]))
    others = host.other_programs()
    if readings["power_source"].value == "battery":
        yield Item("now", "mains power", None, 'a run for power = "ac"', "connect the charger")
    if readings["power_mode"].value == "low":
        yield Item("now", "full speed", None, "the speed of the deployed mode", LOW_POWER)
    yield Item("now", "quiet", None if others.busy else "yes", "steady times", str(others) if others.busy else None)


def _heat(level: float, *, fanless: bool) -> Item:
    """Return whether the machine is cool, by the thermal level from which `certify` counts it as throttled."""
    use, throttled = "objective throttle_time", throttled_from(fanless=fanless)
    if level < throttled:
        return Item("now", "cool", f"thermal level {level:g}; throttled from {throttled:g} on", use, None)
    without = ", because this Mac has no fan" if fanless else ""
    fix = f"let it cool down: thermal level {level:g} counts as throttled{without}"
    return Item("now", "cool", None, use, fix)


def _memory(free: float, least: float) -> Item:
    """Return what is free, and whether the headroom that `init` writes would hold with the smallest of models."""
    held = f"most is held by {host.memory_holders()}"
    if free >= least:
        return Item("now", "free memory", f"{show_bytes(free)}; {held}", RUN, None)
    fix = f"close programs: {show_bytes(free)} is free, and a run needs {show_bytes(least)} besides its models; {held}"
    return Item("now", "free memory", None, RUN, fix)


@dataclass(frozen=True, slots=True)
class InstalledBackend:
    """A serving system: where it was found, if it is installed."""

    name: str
    requirement: str
    """Its program or its Python module."""
    place: str | None
    install: str


def find_backends() -> dict[str, InstalledBackend]:
    """Return every system that gatekeeper can certify by its name; nothing is started or imported."""
    return {facts.name: backend for facts in all_facts() if (backend := _find(facts)) is not None}


def missing_backends(backends: Mapping[str, InstalledBackend] | None = None) -> dict[str, str]:
    """Return the systems that are not installed, with the command that installs each."""
    systems = backends or find_backends()
    return {name: backend.install for name, backend in systems.items() if backend.place is None}


def _find(facts: BackendFacts) -> InstalledBackend | None:
    """Return where a backend is installed; None for one that has neither a program nor a module of its own."""
    module = facts.module
    if module is None and facts.program[:2] == ("python", "-m"):  # any Python is on PATH; the package is what counts
        module = facts.program[2].partition(".")[0]
    if module is not None:
        spec = find_spec(module)
        place = spec.origin or module if spec is not None else None
        return InstalledBackend(facts.name, module, place, facts.installed_by)
    program = facts.program[0] if facts.program else facts.attached
    if program is None:
        return None
    return InstalledBackend(facts.name, program, program_path(program), facts.installed_by)
