"""The backends: the systems that decode, opened by the name an SLO gives."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import OPENERS, SERVERS

if TYPE_CHECKING:
    # Not imported at run time: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.core.interfaces import Backend
    from gatekeeper.core.subject import Subject


def open_backend(subject: "Subject", *, models: Mapping[str, Path], base: Path, logs: Path) -> "Backend":
    """Return the backend that *subject* names; nothing is started yet.

    *models* maps every name of the SLO to its local folder, *base* is the SLO file's folder, and *logs* takes the
    logs of what is started.
    """
    module, opener = OPENERS.get(subject.backend, ("gatekeeper.backends.server_backend", "open_server"))
    backend: Backend = getattr(import_module(module), opener)(subject, models=models, base=base, logs=logs)
    return backend


def own_drafts(backend: str) -> frozenset[str]:
    """Return the drafts a backend brings along, which are no files: heads inside the target, n-gram look-ups."""
    return dialect_of(backend).own_drafts if backend in SERVERS else frozenset()
