"""The backends: kinds of subject that can be started, asked and watched."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gatekeeper.terms.errors import InputError, did_you_mean

if TYPE_CHECKING:
    # Not imported to run: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.terms.ports import Backend
    from gatekeeper.terms.slo import Subject

_OPENERS = {
    "mlx": "gatekeeper.backends.mlx",
    "mlx-server": "gatekeeper.backends.mlx_server",
    "scripted": "gatekeeper.backends.scripted",
    "worker": "gatekeeper.backends.worker",
    "zlab-dflash": "gatekeeper.backends.worker",
    "redrafter": "gatekeeper.backends.worker",
}
"""Where each backend's `open_backend` stands; only the one that is used is imported."""


def open_backend(subject: "Subject", *, models: Mapping[str, Path], base: Path, logs: Path) -> "Backend":
    """Return the backend *subject* names; nothing is started yet.

    *models* maps every name of the SLO to its local folder, *base* is the SLO file's folder, and *logs* takes the
    logs and sockets of what is started.
    """
    if subject.backend not in _OPENERS:
        raise InputError(f"unknown backend '{subject.backend}'", hint=did_you_mean(subject.backend, _OPENERS))
    module = import_module(_OPENERS[subject.backend])
    backend: Backend = module.open_backend(subject, models=models, base=base, logs=logs)
    return backend
