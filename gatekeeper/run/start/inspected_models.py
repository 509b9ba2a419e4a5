"""The models on this machine, what is known of each without reading its weights, and which of them make a pair."""

import hashlib
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.draft_pairs import LocalModel, model_pairs
from gatekeeper.backends import backends_that_load
from gatekeeper.backends.models import artifacts, gguf, model_stores
from gatekeeper.backends.models.model_stores import FoundModel
from gatekeeper.backends.models.safetensors import SUFFIX
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Model
from gatekeeper.core.system.own_command import hub_command

SAMPLE_BYTES, MOST_SAMPLES = 64 * 1024, 64
"""How much of files of equal size is compared, spread evenly: enough to tell two fine-tunes apart in a moment."""


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

    @property
    def known(self) -> Model:
        """Return what identifies it, where it could be read."""
        assert self.model is not None
        return self.model

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


def find_models() -> list[InspectedModel]:
    """Return the models of the caches of Hugging Face, LM Studio and Ollama and of the folder `models`, by name.

    A model that is stored twice is left out where it is not the first in the order of `locate.STORES`.
    """
    inspected = [inspect_model(stored) for stored in model_stores.all_models()]
    sizes = Counter(_likeness(model) for model in inspected)
    first: dict[object, InspectedModel] = {}
    copies = {}
    for model in sorted(inspected, key=lambda model: model_stores.STORES.index(model.stored.store)):
        likeness = _likeness(model)
        if likeness is None or sizes[likeness] == 1:
            continue
        original = first.setdefault((likeness, _weights_sample(model.path)), model)
        if original is not model:
            copies[id(model)] = f"the same as {original.stored.name} ({original.stored.store})"
    return [replace(model, unfit=copies.get(id(model), model.unfit)) for model in inspected]


def _likeness(inspected: InspectedModel) -> tuple[object, ...] | None:
    model = inspected.model
    return (model.bytes, model.tokens_sha256, model.template_sha256, model.shape) if model is not None else None


def _weights_sample(path: Path) -> str:
    """Return the digest of the sizes and of samples of a model's weights."""
    digest = hashlib.sha256()
    for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
        size = file.stat().st_size
        digest.update(f"{size} ".encode())
        with file.open("rb") as weights:
            count = min(MOST_SAMPLES, -(-size // SAMPLE_BYTES))
            for sample in range(count):
                weights.seek(max(0, size - SAMPLE_BYTES) * sample // max(1, count - 1))
                digest.update(weights.read(SAMPLE_BYTES))
    return digest.hexdigest()


def find_named(name: str) -> InspectedModel:
    """Return the model that the command line calls *name*: a path from the current folder, or a name in a store.

    Raise InputError where it is not on this machine, or cannot be read.
    """
    path = artifacts.find(name, Path.cwd())
    here = Path(name).expanduser()
    if here.exists():
        stored = FoundModel(str(here), here, "folder")
    else:
        in_stores = (model for model in model_stores.all_models() if model.name == name)
        stored = next(in_stores, FoundModel(name, path, "Hugging Face"))
    inspected = inspect_model(stored)
    if inspected.model is None:
        denied = "Permission denied" in (inspected.unfit or "")
        hint = "check its permissions" if denied else "download it again, or name another model"
        raise InputError(f"{name}: {inspected.unfit}", hint=hint)
    return inspected


def named_models(target: str | None, drafts: Sequence[str]) -> list[InspectedModel]:
    """Return the models of a pair that was named: the target, then the drafts, heaviest first.

    Raise InputError for half a pair, for files of two kinds, and for a draft whose vocabulary is not the target's.
    """
    if target is None:
        raise InputError("--draft without --target", hint="name the target, too: --target T")
    named = find_named(target)
    if not drafts:
        raise InputError("--target needs --draft", hint=_fitting_drafts(named))
    models = [_fitting(find_named(draft), named) for draft in dict.fromkeys(drafts)]
    return [named, *sorted(models, key=lambda draft: -draft.known.bytes)]


def _fitting(draft: InspectedModel, target: InspectedModel) -> InspectedModel:
    name, other = draft.stored.name, target.stored.name
    if draft.backend != target.backend:
        message = f"{name} and {other} are files of two kinds: one is a GGUF file, the other a folder"
        raise InputError(message, hint="name the draft in the target's format")
    if draft.path.resolve() == target.path.resolve():
        raise InputError(f"{name} is the target itself", hint=_fitting_drafts(target))
    if draft.known.bytes > target.known.bytes:
        message = f"{name} is heavier than {other}, so drafting with it cannot be faster"
        hint = f"were the two swapped? {pair_words(target.backend, draft.known.name, [target.known.name])}"
        raise InputError(message, hint=hint)
    if draft.known.tokens_sha256 != target.known.tokens_sha256:
        message = f"{name} has another vocabulary than {other}, so it cannot draft for it"
        raise InputError(message, hint=_fitting_drafts(target))
    return draft


def _fitting_drafts(target: InspectedModel) -> str:
    local = LocalModel(target.known, target.backend, chats=True)
    beside = map(inspect_model, model_stores.in_folder(target.path.parent) if target.stored.store == "folder" else ())
    others = [model for model in usable([*find_models(), *beside]) if model.model.name != target.known.name]
    pairs = [pair for pair in model_pairs([local, *others]) if pair.target is target.model]
    if not pairs:
        return (
            "no model with the target's vocabulary and at most a third of its size is here: download one "
            f"({hub_command()} download)"
        )
    return f"drafts that fit it are here: {' or '.join(f'--draft {draft.name}' for draft in pairs[0].drafts)}"


def inspect_model(stored: FoundModel) -> InspectedModel:
    """Read what identifies a model, and why it cannot be part of a pair."""
    path, backend = stored.path, backends_that_load("folder" if stored.path.is_dir() else "GGUF")[0]
    try:
        if stored.store == "Ollama":
            path = model_stores.ollama_layers(stored.path, stored.name)["model"]
        model = artifacts.freeze(_name_in_file(stored, path), path, _NoHashes())
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


def _name_in_file(stored: FoundModel, path: Path) -> str:
    """Return the name by which an SLO file finds a model: on another machine, too, where its store has one."""
    shadowed = (
        stored.store == "LM Studio" and model_stores.in_hub_cache("/".join(stored.name.split("/")[:2])) is not None
    )
    return str(path) if shadowed or stored.store == "folder" else stored.name


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


def pair_words(backend: str | None, target: str, drafts: Sequence[str]) -> str:
    """Return the options of `try` and `init` that name a pair, quoted for a shell; None leaves the backend to them."""
    words = ["--target", target, *(word for draft in drafts for word in ("--draft", draft))]
    preferred = {backends_that_load("folder")[0], backends_that_load("GGUF")[0]}
    return shlex.join([*words, *([] if backend is None or backend in preferred else ["--backend", backend])])
