"""The backends: kinds of subject that can be started, asked and watched."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gatekeeper.backends import dialects
from gatekeeper.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    # Not imported to run: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.core.interfaces import Backend
    from gatekeeper.core.subject import Subject

_OPENERS = {
    "mlx": ("worker_backend", "open_mlx"),
    "scripted": ("scripted.backend", "open_backend"),
    "worker": ("worker_backend", "open_worker"),
    "zlab-dflash": ("worker_backend", "open_worker"),
    "redrafter": ("worker_backend", "open_worker"),
}
"""Module and function that open each backend that is no server; only the one that is used is imported."""


def open_backend(subject: "Subject", *, models: Mapping[str, Path], base: Path, logs: Path) -> "Backend":
    """Return the backend *subject* names; nothing is started yet.

    *models* maps every name of the SLO to its local folder, *base* is the SLO file's folder, and *logs* takes the
    logs and sockets of what is started.
    """
    if subject.backend in dialects.NAMES:
        from gatekeeper.backends import server_backend  # noqa: PLC0415 (not needed where nothing is served)

        return server_backend.open_backend(
            subject, models=models, base=base, logs=logs, dialect=dialects.dialect_of(subject.backend)
        )
    if subject.backend not in _OPENERS:
        known = (*_OPENERS, *dialects.NAMES)
        raise InputError(f"unknown backend '{subject.backend}'", hint=did_you_mean(subject.backend, known))
    module, opener = _OPENERS[subject.backend]
    open_it = getattr(import_module(f"gatekeeper.backends.{module}"), opener)
    backend: Backend = open_it(subject, models=models, base=base, logs=logs)
    return backend


def own_drafts(backend: str) -> frozenset[str]:
    """Return the drafts a backend brings along, which are no files: heads inside the target, n-gram look-ups."""
    return dialects.dialect_of(backend).own_drafts if backend in dialects.NAMES else frozenset()
