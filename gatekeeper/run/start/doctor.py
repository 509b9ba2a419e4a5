"""`gatekeeper doctor`: what is installed here, what is missing for which objective or backend, and how to fix it."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal

from gatekeeper import __version__, host
from gatekeeper.backends import all_facts
from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.models import locate
from gatekeeper.backends.process import program_path
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.metrics import ALL

PACKAGES = ("mlx", "mlx-lm", "numpy")
"""Packages of this environment whose versions influence the measurements."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is present or missing."""

    kind: Literal["backend", "program", "host", "variable"]
    what: str
    found: str | None
    """Its version, its path, or the sources of its values; None where it is missing."""
    needed_for: str
    fix: str | None
    """The command or permission that fixes it; None where there is nothing to do."""


def examine() -> dict[str, Any]:
    """Return what was found, as a document; nothing is started but the tools that read the host."""
    items = [*_backends(), _downloader(), *_host(), *_lossy_variables()]
    return {"schema": 1, "versions": versions(), "items": [asdict(item) for item in items], **_summary(items)}


def _summary(items: Sequence[Item]) -> dict[str, Any]:
    """Return what this machine is ready for, what is missing for what, and the next command."""
    backends = [item.needed_for.removeprefix("backend ") for item in items if item.kind == "backend" and item.found]
    lacking = [item.needed_for for item in items if item.kind == "host" and item.found is None]
    first = next(item.fix for item in items if item.kind == "backend")
    models = len(locate.all_models())
    ready = [f"certify with {', '.join(backends)}"] if backends else []
    ready += [f"{models} models in the local caches"] if models else []
    ready += [f"{sum(item.kind == 'host' for item in items) - len(lacking)} host objectives"]
    missing = [] if backends else ["certify: no serving system is installed"]
    missing += [] if models else ["a real run: no model is in the caches of Hugging Face, LM Studio and Ollama"]
    missing += [", ".join(lacking)] if lacking else []
    missing += [f"{item.needed_for}: {item.what}" for item in items if item.kind == "variable"]
    return {"ready": ready, "missing": missing, "next": "gatekeeper init" if backends else first}


def versions() -> dict[str, str | None]:
    """Return what a bug report needs: the versions of gatekeeper, Python and PACKAGES, the system and the chip."""
    facts = host.conditions()
    system = " ".join(filter(None, ("macOS" if facts["platform"] == "macos" else None, facts["os"], facts["os_build"])))
    return {
        "gatekeeper": __version__,
        "python": f"{platform.python_version()} ({platform.machine()})",
        **{name: _version(name) for name in PACKAGES},
        "os": system or None,
        "chip": facts["chip"],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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


def _host() -> Iterator[Item]:
    readings, lacks = host.survey()
    for metric in (row.name for row in ALL if row.host):
        lacking, values = metric in lacks, host.METRIC_VALUES[metric]
        sources = dict.fromkeys(readings[value].source for value in values if readings[value].status == "ok")
        place = None if lacking else ", ".join(sources) or "from the second sample on"
        fix = host.metric_hint(metric) if lacking else None
        yield Item("host", ", ".join(values), place, f"objective {metric}", fix)


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
