"""The dialects: one small file for each family of servers, found by the name an SLO writes."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Not imported to run: our workers also start in an environment that has none of our dependencies.
    from gatekeeper.backends.dialects.dialect import Dialect

_MODULES = {
    "ddtree": "ddtree",
    "dflash-mlx": "dflash_mlx",
    "llama-server": "llama_server",
    "lmstudio": "lmstudio",
    "mlx-omni": "mlx_omni",
    "mlx-server": "mlx_server",
    "mlx-vlm": "mlx_vlm",
    "mtplx": "mtplx",
    "ollama": "ollama",
    "omlx": "omlx",
    "openai": "openai",
    "rapid-mlx": "rapid_mlx",
    "vllm": "vllm",
    "vllm-mlx": "vllm_mlx",
}
"""In which module each dialect stands; only the one that is used is imported."""

NAMES = frozenset(_MODULES)


def dialect_of(backend: str) -> "Dialect":
    """Return the dialect of a server backend; raise KeyError for a backend that is no server."""
    module = import_module(f"gatekeeper.backends.dialects.{_MODULES[backend]}")
    found: Dialect = module.DIALECT
    return found
