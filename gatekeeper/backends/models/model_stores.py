"""Find the models that Hugging Face, LM Studio and Ollama store on this machine, and those in the folder `models`."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from gatekeeper.backends.models import gguf
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import JSON_BYTES, ParseError, json_object
from gatekeeper.core.system.environment_variables import HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, OLLAMA_MODELS
from gatekeeper.core.system.files import read_input

ModelStore = Literal["Hugging Face", "folder", "LM Studio", "Ollama"]
STORES: tuple[ModelStore, ...] = get_args(ModelStore)
"""Where the same model is in several, the first one names it: an id of the hub means the same on every machine."""
FOLDER = Path("models")
"""Models of the user, in the current folder."""

OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Where Ollama keeps models on Linux when it runs as a service."""
_REGISTRY, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
"""What Ollama adds to a name that leaves them out."""
_LAYER = "application/vnd.ollama.image."
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LATER_PART = re.compile(r".+-(?!00001)\d{5}-of-\d{5}\.gguf")
_PROJECTOR = "mmproj"
"""Part of the file name of a vision projector, which is stored next to a model and is not one."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """One model on this machine."""

    name: str
    """Its name in that tool; for a file of a repository, followed by the file's name."""
    path: Path
    """A folder, a GGUF file, or an Ollama manifest."""
    store: ModelStore


def all_models() -> list[FoundModel]:
    """Return the models of all stores and of FOLDER, sorted by name; what cannot be read is left out."""
    models = [*_hub(), *in_folder(FOLDER), *_lm_studio(), *_ollama()]
    return sorted(models, key=lambda model: (model.name.lower(), model.store))


def in_folder(folder: Path) -> list[FoundModel]:
    """Return the models in a folder of the user's: each a folder of its own, or a GGUF file."""
    inside = sorted(path for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
    models = [model for path in inside for model in _of_repository(str(path), path, "folder")]
    return [*models, *(FoundModel(str(file), file, "folder") for file in sorted(folder.glob(f"*{gguf.SUFFIX}")))]


def hub_cache() -> Path:
    """Return the folder of the Hugging Face cache, by the variables its own library reads."""
    if explicit := os.environ.get(HF_HUB_CACHE) or os.environ.get(HUGGINGFACE_HUB_CACHE):
        return Path(explicit).expanduser()
    home = os.environ.get(HF_HOME)
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface") / "hub"


def in_hub_cache(repository: str) -> Path | None:
    """Return the snapshot of `ORG/NAME` that its `main` points to, None where there is none."""
    folder = hub_cache() / f"models--{repository.replace('/', '--')}"
    if reference := _text(folder / "refs" / "main").strip():
        snapshot = folder / "snapshots" / reference
        return snapshot if snapshot.is_dir() else None
    snapshots = sorted((folder / "snapshots").glob("*")) if (folder / "snapshots").is_dir() else []
    return snapshots[-1] if snapshots else None


def lm_studio_folders() -> list[Path]:
    """Return LM Studio's model folders: the one in its settings, its default, and that of old versions."""
    home = Path.home()
    pointer = _text(home / ".lmstudio-home-pointer").strip()
    settings_folder = Path(pointer) if pointer and Path(pointer).is_dir() else home / ".lmstudio"
    downloads = _json(settings_folder / "settings.json").get("downloadsFolder")
    places = [Path(downloads)] if isinstance(downloads, str) and downloads else []
    places += [settings_folder / "models", home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def in_lm_studio(name: str) -> Path | None:
    """Return the path of LM Studio's `PUBLISHER/NAME` or `PUBLISHER/NAME/FILE.gguf`; None where it has none.

    Raise InputError for a folder with several GGUF files: they are several models.
    """
    if len(name.split("/")) < 2 or not _stays_below(name.split("/")):
        return None
    for root in lm_studio_folders():
        path = root / name
        if path.is_file() and path.suffix == gguf.SUFFIX:
            return path
        if (path / "config.json").is_file():
            return path
        files = _gguf_files(path)
        if len(files) > 1:
            several = ", ".join(str(file.relative_to(path)) for file in files)
            hint = "name one of them: PUBLISHER/NAME/FILE.gguf"
            raise InputError(f"model '{name}': {path} holds {several}", hint=hint)
        if files:
            return files[0]
    return None


def ollama_folders() -> list[Path]:
    """Return Ollama's model folders: the one in OLLAMA_MODELS, else the user's and the service's."""
    if folder := os.environ.get(OLLAMA_MODELS):
        return [Path(folder).expanduser()]
    return [Path.home() / ".ollama" / "models", OLLAMA_SERVICE]


def in_ollama(name: str) -> Path | None:
    """Return the manifest of `[HOST/][NAMESPACE/]NAME[:TAG]`, None where Ollama does not have it."""
    *places, model = name.split("/")
    model, _, tag = model.partition(":")
    host = places[0] if len(places) > 1 else _REGISTRY
    parts = [host, *(places[1:] if len(places) > 1 else places or [_NAMESPACE]), model, tag or _TAG]
    if not _stays_below(parts):
        return None
    manifests = (root.joinpath("manifests", *parts) for root in ollama_folders())
    return next((manifest for manifest in manifests if manifest.is_file()), None)


def ollama_layers(manifest: Path, name: str) -> dict[str, Path]:
    """Return the blobs of an Ollama manifest by kind (`model`, `params`, `draft` ...), without the licence.

    Raise InputError for a model that is not one GGUF file, a damaged manifest or a missing blob.
    """
    again = f"download it again: ollama pull {name}"
    blobs = next((above / "blobs" for above in manifest.parents if (above / "manifests").is_dir()), None)
    layers = _json(manifest).get("layers")
    if blobs is None or not isinstance(layers, list):
        raise InputError(f"model '{name}': {manifest} is neither a GGUF file nor an Ollama manifest", hint=again)
    blob_by_kind: dict[str, Path] = {}
    for layer in layers:
        digest, kind = (layer.get(key) for key in ("digest", "mediaType")) if isinstance(layer, dict) else (None, None)
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or not isinstance(kind, str):
            raise InputError(f"model '{name}': {manifest} names a layer without kind or digest", hint=again)
        short = kind.removeprefix(_LAYER).partition(";")[0]
        blob = blobs / digest.replace(":", "-")
        if not blob.is_file():
            raise InputError(f"model '{name}': {blob} is missing", hint=again)
        if short != "license":
            equal = sum(layer_kind.partition(" ")[0] == short for layer_kind in blob_by_kind)
            blob_by_kind[f"{short} {equal + 1}" if equal else short] = blob
    if "model" not in blob_by_kind:
        hint = "name a model that Ollama stores as one GGUF file, or certify it with the backend mlx"
        message = f"model '{name}': Ollama stores it as {', '.join(blob_by_kind)}, not as one GGUF file"
        raise InputError(message, hint=hint)
    return blob_by_kind


def _hub() -> Iterator[FoundModel]:
    for folder in sorted(hub_cache().glob("models--*--*")):
        name = folder.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = in_hub_cache(name)
        if snapshot is not None:
            yield from _of_repository(name, snapshot, "Hugging Face")


def _lm_studio() -> Iterator[FoundModel]:
    for root in lm_studio_folders():
        for folder in sorted(root.glob("*/*")):
            yield from _of_repository(f"{folder.parent.name}/{folder.name}", folder, "LM Studio")


def _ollama() -> Iterator[FoundModel]:
    for root in ollama_folders():
        for manifest in sorted((root / "manifests").glob("*/*/*/*")):
            host, namespace, model, tag = manifest.relative_to(root / "manifests").parts
            short = (host, namespace) == (_REGISTRY, _NAMESPACE)
            prefix = "" if short else f"{namespace}/" if host == _REGISTRY else f"{host}/{namespace}/"
            if manifest.is_file() and not manifest.name.startswith("."):
                yield FoundModel(f"{prefix}{model}:{tag}", manifest, "Ollama")


def _of_repository(name: str, folder: Path, store: ModelStore) -> Iterator[FoundModel]:
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        yield FoundModel(name, folder, store)
    for file in _gguf_files(folder):
        yield FoundModel(f"{name}/{file.relative_to(folder)}", file, store)


def _gguf_files(folder: Path) -> list[Path]:
    """Return the model files in a folder: only the first part of a split, and no projector."""
    files = sorted(folder.rglob(f"*{gguf.SUFFIX}"))
    return [file for file in files if _PROJECTOR not in file.name.lower() and not _LATER_PART.fullmatch(file.name)]


def _stays_below(parts: list[str]) -> bool:
    """Tell whether the parts of a name stay below the folder they are looked for in."""
    return all(part not in {"", ".", ".."} for part in parts)


def _text(path: Path) -> str:
    try:
        return read_input(path, JSON_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return ""


def _json(path: Path) -> dict[str, Any]:
    try:
        return json_object(_text(path))
    except ParseError:
        return {}
