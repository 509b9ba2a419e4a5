"""The dialects: one small file for each family of servers, found by the name an SLO writes."""

from importlib import import_module

from gatekeeper.backends.dialects.dialect import Dialect

_MODULES = {
    "mlx-server": "mlx_server",
    "openai": "openai",
}
"""In which module each dialect stands; only the one that is used is imported."""

NAMES = frozenset(_MODULES)


def dialect_of(backend: str) -> Dialect:
    """Return the dialect of a server backend; raise KeyError for a backend that is no server."""
    module = import_module(f"gatekeeper.backends.dialects.{_MODULES[backend]}")
    found: Dialect = module.DIALECT
    return found
