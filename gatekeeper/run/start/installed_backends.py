"""Which serving systems are installed on this machine, and how to install the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from gatekeeper.backends import all_facts
from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.process import program_path


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
