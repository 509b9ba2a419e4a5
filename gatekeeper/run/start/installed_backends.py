"""Which serving systems are installed on this machine, and how to install the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.process import program_path
from gatekeeper.core.backend_registry import ADAPTERS, SERVERS

ATTACHED = {"lmstudio": "lms", "ollama": "ollama", "omlx": "omlx"}
"""Programs of servers that gatekeeper attaches to and does not start."""
PACKAGES = {
    "redrafter": ("recurrent_drafting", "install ml-recurrent-drafter: docs/worker-protocol.md says how"),
    "zlab-dflash": ("dflash", "pip install dflash mlx-lm"),
}
"""The module of each package that our worker programs wrap, with how to install it."""
MLX = 'pip install "gatekeeper-slo[mlx]"'
"""How to install mlx-lm."""


@dataclass(frozen=True, slots=True)
class InstalledBackend:
    """A serving system: where it was found, if it is installed."""

    name: str
    what: str
    """Its program or its Python module."""
    found: str | None
    install: str


def find_backends() -> dict[str, InstalledBackend]:
    """Return every system that gatekeeper can certify by its name; nothing is started or imported."""
    found = {"mlx": _module("mlx", "mlx_lm", MLX)}
    for name in sorted(SERVERS):
        dialect = dialect_of(name)
        if dialect.module is not None:
            found[name] = _module(name, dialect.module, MLX)
        elif dialect.program[:2] == ("python", "-m"):  # any Python is on PATH; the package is what counts
            found[name] = _module(name, dialect.program[2].partition(".")[0], dialect.install)
        elif program := dialect.program[0] if dialect.program else ATTACHED.get(name):
            found[name] = InstalledBackend(name, program, program_path(program), dialect.install)
    return found | {name: _module(name, *PACKAGES[name]) for name in sorted(ADAPTERS)}


def missing_backends(known: Mapping[str, InstalledBackend] | None = None) -> dict[str, str]:
    """Return the systems that are not installed, with the command that installs each."""
    return {name: one.install for name, one in (known or find_backends()).items() if one.found is None}


def _module(name: str, module: str, install: str) -> InstalledBackend:
    spec = find_spec(module)
    return InstalledBackend(name, module, spec.origin or module if spec is not None else None, install)
