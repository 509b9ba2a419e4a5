"""The dialects: one small file for each family of servers, found by the name an SLO gives."""

from importlib import import_module
from typing import TYPE_CHECKING

from gatekeeper.core.backend_registry import SERVERS

if TYPE_CHECKING:
    # Not imported at run time: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.backends.dialect import Dialect

_ANY = "openai"
"""The dialect of any server with the OpenAI chat API."""


def dialect_of(backend: str) -> "Dialect":
    """Return the dialect of a server backend; raise KeyError for a backend that is not a server."""
    dialect: Dialect = import_module(SERVERS[backend]).DIALECT
    return dialect


def running_dialect(backend: str) -> "Dialect":
    """Return the dialect of a running server certified as *backend*; of one that is no server, that of any server."""
    return dialect_of(backend if backend in SERVERS else _ANY)


def cache_off_advice(backend: str) -> str | None:
    """Return how to deploy a server with its prompt cache off; None where no option does that, and for no server."""
    return dialect_of(backend).cache_off_advice if backend in SERVERS else None
