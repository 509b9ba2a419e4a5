"""The registry of backends: each name that an SLO may give as `subject.backend`, and where its code stands.

A new server is one file with a DIALECT and one entry in SERVERS. The names are listed here because an SLO is checked
without importing a backend; only the backend that is used is imported.
"""

SERVERS = {
    "ddtree": "gatekeeper.backends.dialects.ddtree",
    "dflash-mlx": "gatekeeper.backends.dialects.dflash_mlx",
    "llama-server": "gatekeeper.backends.dialects.llama_server",
    "lmstudio": "gatekeeper.backends.dialects.lmstudio",
    "mlx-omni": "gatekeeper.backends.dialects.mlx_omni",
    "mlx-server": "gatekeeper.backends.dialects.mlx_server",
    "mlx-vlm": "gatekeeper.backends.dialects.mlx_vlm",
    "mtplx": "gatekeeper.backends.dialects.mtplx",
    "ollama": "gatekeeper.backends.dialects.ollama",
    "omlx": "gatekeeper.backends.dialects.omlx",
    "openai": "gatekeeper.backends.dialects.openai",
    "rapid-mlx": "gatekeeper.backends.dialects.rapid_mlx",
    "sglang": "gatekeeper.backends.dialects.sglang",
    "vllm": "gatekeeper.backends.dialects.vllm",
    "vllm-mlx": "gatekeeper.backends.dialects.vllm_mlx",
}
"""The module of each server over HTTP; it holds one DIALECT."""

ADAPTERS = {
    "redrafter": "gatekeeper.backends.workers.redrafter",
    "zlab-dflash": "gatekeeper.backends.workers.zlab_dflash",
}
"""The module of each of our worker programs, which wraps a third-party Python package; it holds FACTS."""

SCRIPTED = "scripted"
"""The simulated system: it has a script in place of models."""
OPENERS = {
    "mlx": ("gatekeeper.backends.worker_backend.mlx_backend", "open_mlx"),
    SCRIPTED: ("gatekeeper.backends.scripted.scripted_backend", "open_scripted"),
    "worker": ("gatekeeper.backends.worker_backend.worker_backend", "open_worker"),
    **dict.fromkeys(ADAPTERS, ("gatekeeper.backends.worker_backend.worker_backend", "open_worker")),
}
"""Module and function that open each backend that is not a server; the module holds FACTS."""

ALIASES = {
    **dict.fromkeys(("llama.cpp", "llamacpp", "llama_cpp", "gguf", "ggml"), "llama-server"),
    **dict.fromkeys(("mlx-lm", "mlx_lm", "mlxlm"), "mlx"),
    **dict.fromkeys(("mlx_lm.server", "mlx_lm_server", "mlx-lm-server"), "mlx-server"),
}
"""Names that people give a backend, and that are not like its own."""
READING_OPTIONS = ("mlx", "mlx-server", "llama-server")
"""Backends whose prefill chunk and cache width gatekeeper can set: those that it starts with options for them."""
PROBED = ("mlx", "mlx-server")
"""Backends that can be tried with two models and no SLO file, the default first."""


def backend_names() -> list[str]:
    """Return every name that an SLO may give as `subject.backend`."""
    return sorted({*SERVERS, *OPENERS})
