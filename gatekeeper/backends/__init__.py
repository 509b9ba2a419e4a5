"""The backends: kinds of subject that can be started, asked and watched."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gatekeeper.backends import dialects
from gatekeeper.terms.errors import InputError, did_you_mean

if TYPE_CHECKING:
    # Not imported to run: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.terms.ports import Backend
    from gatekeeper.terms.subject import Subject

_OPENERS = {
    "mlx": "gatekeeper.backends.mlx",
    "scripted": "gatekeeper.backends.scripted",
    "worker": "gatekeeper.backends.worker",
    "zlab-dflash": "gatekeeper.backends.worker",
    "redrafter": "gatekeeper.backends.worker",
}
"""Where the `open_backend` of what is no server stands; only the one that is used is imported."""


def open_backend(subject: "Subject", *, models: Mapping[str, Path], base: Path, logs: Path) -> "Backend":
    """Return the backend *subject* names; nothing is started yet.

    *models* maps every name of the SLO to its local folder, *base* is the SLO file's folder, and *logs* takes the
    logs and sockets of what is started.
    """
    if subject.backend in dialects.NAMES:
        from gatekeeper.backends import served  # noqa: PLC0415 (not needed where nothing is served)

        return served.open_backend(
            subject, models=models, base=base, logs=logs, dialect=dialects.dialect_of(subject.backend)
        )
    if subject.backend not in _OPENERS:
        known = (*_OPENERS, *dialects.NAMES)
        raise InputError(f"unknown backend '{subject.backend}'", hint=did_you_mean(subject.backend, known))
    module = import_module(_OPENERS[subject.backend])
    backend: Backend = module.open_backend(subject, models=models, base=base, logs=logs)
    return backend


def own_drafts(backend: str) -> frozenset[str]:
    """Return the drafts a backend brings along, which are no files: heads inside the target, n-gram look-ups."""
    return dialects.dialect_of(backend).own_drafts if backend in dialects.NAMES else frozenset()
