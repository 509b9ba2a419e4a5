"""What identifies each model on this machine, and whether it can be part of a pair; weights are never hashed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.draft_pairs import LocalModel
from gatekeeper.backends import backends_that_load
from gatekeeper.backends.models import artifacts, gguf, locate
from gatekeeper.backends.models.locate import FoundModel
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Model


class _NoHashes:
    """A hash cache that hashes nothing: choosing a pair reads headers and token maps, never gigabytes of weights."""

    def sha256(self, path: Path) -> str:
        """Return no digest."""
        del path
        return ""


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """One model of a cache, and whether it can be used."""

    found: FoundModel
    path: Path
    backend: str
    model: Model | None
    template: str | None
    unfit: str | None
    """Why it cannot be part of a pair; None where it can."""

    def document(self) -> dict[str, Any]:
        """Return its entry in `init --json`."""
        return {
            "name": self.found.name,
            "shelf": self.found.store,
            "path": str(self.path),
            "backend": self.backend,
            "bytes": self.model.bytes if self.model is not None else None,
            "quantisation": self.model.quantisation if self.model is not None else None,
            "left_out": self.unfit,
        }


def inspect_model(one: FoundModel) -> InspectedModel:
    """Read what identifies a model, and why it cannot be part of a pair."""
    path, backend = one.path, backends_that_load("folder" if one.path.is_dir() else "GGUF")[0]
    try:
        if one.store == "Ollama":
            path = locate.ollama_layers(one.path, one.name)["model"]
        model = artifacts.freeze(one.name if one.store == "Hugging Face" else str(path), path, _NoHashes())
        if path.is_dir():
            template = artifacts.chat_template(path, one.name)
        else:
            template = gguf.read_header(path, one.name).keys.get("tokenizer.chat_template")
        unfit = _unfit(model, path)
    except InputError as error:
        return InspectedModel(one, path, backend, None, None, error.message)
    except Exception as error:  # noqa: BLE001 (one odd model in a cache must not hide the others)
        return InspectedModel(one, path, backend, None, None, f"cannot be read: {type(error).__name__}: {error}")
    return InspectedModel(one, path, backend, model, template, unfit)


def _unfit(model: Model, path: Path) -> str | None:
    if model.tokens_sha256 is None:
        return "it has no token map, so its vocabulary is unknown"
    if model.shape is None:
        return "the size of its attention cache cannot be estimated"
    if not model.shape.every_layer:
        return "not every layer caches every token, so rejected tokens may not be removable"
    if path.is_dir() and (foreign := artifacts.foreign_quantisation(path, model.name)):
        return f"its quantisation {foreign} is made for other engines"
    return None


def _each_once(found: Sequence[InspectedModel]) -> Iterator[InspectedModel]:
    """Yield each folder once: LM Studio may keep its models in the hub cache."""
    seen = set()
    for one in found:
        if (real := one.path.resolve()) not in seen:
            seen.add(real)
            yield one


def usable(found: Sequence[InspectedModel]) -> list[LocalModel]:
    """Return the models that can be part of a pair."""
    return [
        LocalModel(one.model, one.backend, one.template is not None)
        for one in _each_once(found)
        if one.model is not None and one.unfit is None
    ]
