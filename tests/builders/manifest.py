"""A manifest made by hand: of a target and a draft, unless told otherwise."""

from typing import Any

from gatekeeper.core.manifest import File, Manifest, Model, digest_of, sha256
from gatekeeper.core.rules import RULES

FILES = {"weights.safetensors": sha256("weights"), "config.json": sha256("{}")}


def model(name: str, files: dict[str, str]) -> Model:
    return Model(
        name=name,
        digest=digest_of(files),
        files=files,
        bytes=1,
        quantisation="4-bit g64",
        vocabulary=8,
        tokens_sha256=None,
        template_sha256=None,
    )


def manifest(**changes: Any) -> Manifest:
    file = File(name="f", sha256="0" * 64)
    fields: dict[str, Any] = {
        "slo": file,
        "backend": "mlx",
        "shares_process": True,
        "streams": 1,
        "restart_knobs": (),
        "sight": (),
        "target": model("org/big", FILES),
        "drafts": (model("little.gguf", {"little.gguf": sha256("gguf")}),),
        "sampling": {},
        "canaries": {},
        "profile": file,
        "versions": {},
        "host": {},
        "rules": RULES,
        "frozen_at": "now",
        **changes,
    }
    return Manifest(**fields)
