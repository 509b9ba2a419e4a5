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
        del path
        return ""


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """One model of a cache, and whether it can be used."""

    stored: FoundModel
    path: Path
    backend: str
    model: Model | None
    template: str | None
    unfit: str | None
    """Why it cannot be part of a pair; None where it can."""

    def document(self) -> dict[str, Any]:
        """Return its entry in `init --json`."""
        return {
            "name": self.stored.name,
            "shelf": self.stored.store,
            "path": str(self.path),
            "backend": self.backend,
            "bytes": self.model.bytes if self.model is not None else None,
            "quantisation": self.model.quantisation if self.model is not None else None,
            "left_out": self.unfit,
        }


def inspect_model(stored: FoundModel) -> InspectedModel:
    """Read what identifies a model, and why it cannot be part of a pair."""
    path, backend = stored.path, backends_that_load("folder" if stored.path.is_dir() else "GGUF")[0]
    try:
        if stored.store == "Ollama":
            path = locate.ollama_layers(stored.path, stored.name)["model"]
        model = artifacts.freeze(stored.name if stored.store == "Hugging Face" else str(path), path, _NoHashes())
        if path.is_dir():
            template = artifacts.chat_template(path, stored.name)
        else:
            template = gguf.read_header(path, stored.name).keys.get("tokenizer.chat_template")
        unfit = _unfit(model, path)
    except InputError as error:
        return InspectedModel(stored, path, backend, None, None, error.message)
    except Exception as error:  # noqa: BLE001 (one odd model in a cache must not hide the others)
        return InspectedModel(stored, path, backend, None, None, f"cannot be read: {type(error).__name__}: {error}")
    return InspectedModel(stored, path, backend, model, template, unfit)


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


def _each_once(models: Sequence[InspectedModel]) -> Iterator[InspectedModel]:
    """Yield each folder once: LM Studio may keep its models in the hub cache."""
    folders = set()
    for model in models:
        if (real := model.path.resolve()) not in folders:
            folders.add(real)
            yield model


def usable(models: Sequence[InspectedModel]) -> list[LocalModel]:
    """Return the models that can be part of a pair."""
    return [
        LocalModel(inspected.model, inspected.backend, inspected.template is not None)
        for inspected in _each_once(models)
        if inspected.model is not None and inspected.unfit is None
    ]
