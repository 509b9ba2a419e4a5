"""The backends: the systems that decode, opened by the name an SLO gives."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import ADAPTERS, OPENERS, SCRIPTED, SERVERS

if TYPE_CHECKING:
    # Not imported at run time: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.backends.backend_facts import BackendFacts
    from gatekeeper.core.interfaces import Backend
    from gatekeeper.core.slo.subject_table import Subject


def open_backend(
    subject: "Subject", *, models: Mapping[str, Path], base: Path, logs: Path, greets: bool = True
) -> "Backend":
    """Return the backend that *subject* names; no model is loaded yet.

    A worker is started for its greeting alone; where it may not be (*greets* is False), it is taken to be able to do
    everything. *models* maps every name of the SLO to its local folder, *base* is the SLO file's folder, and *logs*
    takes the logs of what is started.
    """
    module, opener = OPENERS.get(subject.backend, ("gatekeeper.backends.server_backend", "open_server"))
    if opener == "open_worker" and not greets:
        opener = "assume_worker"
    backend: Backend = getattr(import_module(module), opener)(subject, models=models, base=base, logs=logs)
    return backend


@cache
def facts_of(backend: str) -> "BackendFacts":
    """Return what is known of a backend by its name; raise KeyError for a name that is none."""
    if backend in SERVERS:
        return dialect_of(backend)
    facts: BackendFacts = import_module(ADAPTERS.get(backend) or OPENERS[backend][0]).FACTS
    return facts


def all_facts() -> list["BackendFacts"]:
    """Return the facts of every backend: our own workers first, then servers, then adapters, each by name."""
    own_names = [name for name in OPENERS if name not in ADAPTERS]
    return [facts_of(name) for name in (*own_names, *sorted(SERVERS), *sorted(ADAPTERS))]


def backends_that_load(files: Literal["folder", "GGUF"]) -> list[str]:
    """Return the backends that load models of this kind, the one to prefer first."""
    return [facts.name for facts in all_facts() if facts.loads == files]


def own_drafts(backend: str) -> frozenset[str]:
    """Return the drafts a backend brings along, which are no files: heads inside the target, n-gram look-ups."""
    return facts_of(backend).own_drafts


def stored_models(subject: "Subject") -> list[str]:
    """Return the names of the models that have files: the target and the drafts that are not part of the backend."""
    if subject.backend == SCRIPTED:
        return []
    return [subject.target, *(name for name in subject.drafts if name not in own_drafts(subject.backend))]
