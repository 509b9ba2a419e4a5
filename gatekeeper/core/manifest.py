"""manifest.json: everything a verdict depends on, recorded before the first token."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gatekeeper.core.backend_registry import SCRIPTED
from gatekeeper.core.judgement import Finding
from gatekeeper.core.rules import RULES

ArrivalTimes = Literal["kernel", "process"]
"""Who takes the time of arrivals: the kernel that receives them, or the process that reads or makes them."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Shape(_Frozen):
    """The dimensions of a model's attention cache, from config.json, to estimate its size."""

    layers: int
    kv_heads: int
    head_dim: int
    value_bytes: int
    """The size of one cached number: 4 where the weights are float32, else 2."""
    every_layer: bool
    """Every layer keeps every token; False with sliding windows, hybrid layers or a compressed cache."""


class Model(_Frozen):
    """One model, folder or GGUF file, as it lies on disk."""

    name: str
    """As the SLO writes it."""
    digest: str
    """sha256 over the names and digests of its files."""
    files: dict[str, str]
    """sha256 of every file, by name."""
    bytes: int
    quantisation: str
    """`4-bit g64`, or the type of unquantised weights such as `float32`."""
    vocabulary: int | None
    """Rows of the embedding, from config.json."""
    tokens_sha256: str | None
    """Digest of the token map (token to id, added tokens included)."""
    template_sha256: str | None
    architecture: str | None = None
    shape: Shape | None = None
    """None where config.json lacks it."""


class File(_Frozen):
    """One input file, copied into the run directory."""

    name: str
    sha256: str
    count: int | None = None
    context: int | None = None
    """Tokens that each prompt of a canary file was lengthened to."""


class CertifiedBaseline(_Frozen):
    """The certified run that objectives with `against = "certified"` compare with."""

    run: str | None
    """Its folder; None: the person said that there is none yet, and such objectives are left out."""
    manifest_sha256: str | None = None
    sha256: str | None = None
    """The digest of the copy of its figures in the run directory."""


class Manifest(_Frozen):
    """The content of manifest.json."""

    schema_: int = Field(default=1, alias="schema", serialization_alias="schema")
    slo: File
    backend: str
    shares_process: bool
    streams: int
    restart_knobs: tuple[str, ...]
    """Knobs whose change needs another process."""
    sight: tuple[str, ...]
    target: Model | None
    drafts: tuple[Model, ...] = ()
    sampling: dict[str, Any]
    reading: dict[str, int] = {}
    """How prompts are read and cached, where [subject] sets it: prefill_chunk, kv_bits."""
    canaries: dict[str, File]
    profile: File
    versions: dict[str, str]
    host: dict[str, Any]
    device: dict[str, Any] | None = None
    """What computes, its memory and the limit of wired memory; None in simulated runs."""
    sample_interval: float = 1.0
    """Seconds between two host samples."""
    arrival_times: ArrivalTimes | None = None
    """Who takes the time of arrivals: the kernel, or the process that reads or makes them; None: not known."""
    rules: int = Field(ge=RULES, le=RULES)
    """The rules by which the run was planned and is judged; other ones are refused."""
    certified: CertifiedBaseline | None = None
    """None where no objective compares with a certified run."""
    draft_hint: str = ""
    """What to check where this backend decodes plainly despite a draft."""
    findings: tuple[Finding, ...] = ()
    """Findings of the freeze stage."""
    doubts: tuple[str, ...] = ()
    """Why this host cannot prove the SLO, whatever is measured."""
    frozen_at: str
    seed: int | None = Field(default=None, ge=0)
    """The seed of a simulated run's script. None: it follows from the manifest."""

    def document(self) -> dict[str, Any]:
        """Return the content of the file."""
        return self.model_dump(mode="json", by_alias=True)

    def text(self) -> str:
        """Return the file's text: canonical JSON, one key order, no NaN."""
        return json.dumps(self.document(), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def sha256(content: bytes | str) -> str:
    """Return the hex digest of *content*."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def digest_of(files: Mapping[str, str]) -> str:
    """Return one digest for a folder: sha256 over `digest  name` lines in the order of the names."""
    return sha256("".join(f"{files[name]}  {name}\n" for name in sorted(files)))


def seed_of(manifest: Manifest, text: str) -> int:
    """Return the seed of every order and every bootstrap of a run; *text* is that of the manifest's file.

    Only a simulated run may name its own: whoever could choose that of a real one could draw until the bounds please.
    """
    if manifest.backend == SCRIPTED and manifest.seed is not None:
        return manifest.seed
    return int(sha256(text)[:15], 16)


VOLATILE_FACTS = frozenset({"booted_at", "uptime_s", "load_average", "heavy_processes", "display"})
"""Facts of a host that may differ between any two runs, even on one machine."""
COMPARED_PARTS = (
    "slo", "backend", "target", "drafts", "sampling", "reading", "canaries", "profile", "versions", "host",
)  # fmt: skip


def differences(first: Manifest, second: Manifest) -> list[str]:
    """Name the parts in which two runs differ, so that they are not comparable.

    Models are compared by digest and files by checksum, never by name.
    """
    before, after = _parts(first), _parts(second)
    names = []
    for part in COMPARED_PARTS:
        if isinstance(before[part], dict) and isinstance(after[part], dict):
            keys = sorted(key for key in {*before[part], *after[part]} if before[part].get(key) != after[part].get(key))
            names += [f"{part}.{key}" for key in keys if not (part == "host" and key in VOLATILE_FACTS)]
        elif before[part] != after[part]:
            names.append(part)
    return names


def _parts(manifest: Manifest) -> dict[str, Any]:
    """Return what two runs are compared by."""
    return manifest.model_dump(mode="json") | {
        "slo": manifest.slo.sha256,
        "profile": manifest.profile.sha256,
        "target": manifest.target and manifest.target.digest,
        "drafts": [draft.digest for draft in manifest.drafts],
        "canaries": {name: (file.sha256, file.count, file.context) for name, file in manifest.canaries.items()},
    }
