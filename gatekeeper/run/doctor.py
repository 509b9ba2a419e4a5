"""`gatekeeper doctor`: what is installed here, what is missing for which objective or backend, and how to fix it."""

import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal

from gatekeeper import __version__, host
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.metrics import ALL

PACKAGES = ("mlx", "mlx-lm", "numpy")
"""Packages of this environment whose versions influence the measurements."""
ATTACHED = {"lmstudio": "lms", "ollama": "ollama", "omlx": "omlx"}
"""Programs of servers that gatekeeper attaches to and does not start."""
DOWNLOADERS = {"hf": "pip install huggingface_hub"}
"""Programs that our hints name, with how to install them."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is present or missing."""

    kind: Literal["package", "program", "host"]
    what: str
    found: str | None
    """Its version, its path, or the sources of its values; None where it is missing."""
    needed_for: str
    fix: str | None
    """The command or permission that fixes it; None where there is nothing to do."""


def examine() -> dict[str, Any]:
    """Return what was found, as a document; nothing is started but the tools that read the host."""
    items = [*_packages(), *_programs(), *_host()]
    return {"schema": 1, "versions": versions(), "items": [asdict(one) for one in items]}


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


def _packages() -> Iterator[Item]:
    found = _version("mlx-lm") if find_spec("mlx_lm") is not None else None
    fix = None if found else dialect_of("mlx-server").install
    yield Item("package", "mlx-lm", found, "backends mlx, mlx-server", fix)


def _programs() -> Iterator[Item]:
    for name in sorted(SERVERS):
        dialect = dialect_of(name)
        program = dialect.program[0] if dialect.program else ATTACHED.get(name)
        if program is not None:
            yield _program(program, f"backend {name}", dialect.install)
    for program, install in DOWNLOADERS.items():
        yield _program(program, "downloading models", install)


def _program(program: str, needed_for: str, install: str) -> Item:
    found = shutil.which(program)
    return Item("program", program, found, needed_for, None if found else install)


def _host() -> Iterator[Item]:
    readings, lacks = host.survey()
    for metric in (one.name for one in ALL if one.host):
        lacking = metric in lacks
        sources = dict.fromkeys(
            readings[value].source for value in host.METRIC_VALUES[metric] if readings[value].status == "ok"
        )
        found = None if lacking else ", ".join(sources) or "from the second sample on"
        fix = host.metric_hint(metric) if lacking else None
        yield Item("host", ", ".join(host.METRIC_VALUES[metric]), found, f"objective {metric}", fix)
