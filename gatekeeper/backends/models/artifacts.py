"""The models of a run, folders or files: find them on this machine, check and hash them."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from gatekeeper.backends import facts_of
from gatekeeper.backends.backend_facts import ModelStore
from gatekeeper.backends.models import gguf, model_stores
from gatekeeper.backends.models.safetensors import INDEX, MOST_BYTES, SUFFIX, check_safetensors, check_shards
from gatekeeper.core.errors import InputError, nearest_word
from gatekeeper.core.judgement import Finding, FindingKind
from gatekeeper.core.manifest import Model, Shape, digest_of, sha256
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.files import read_input
from gatekeeper.core.system.inputs import read_text
from gatekeeper.core.system.own_command import hub_command
from gatekeeper.core.text import join_names

_LOADED = ("model", "draft", "projector", "adapter")
"""Layers of an Ollama model that take memory."""


class Hashes(Protocol):
    """Computes the digest of a file."""

    def sha256(self, path: Path) -> str:
        """Return the digest of the file at *path*."""


def find(name: str, base: Path, backend: str = "") -> Path:
    """Return the folder, GGUF file or Ollama manifest of model *name*.

    Looked up as a path relative to *base*, then in the *backend*'s own store (LM Studio, Ollama), then in the local hub
    cache, then in LM Studio's and Ollama's folders. Nothing is downloaded: raise InputError with the command that
    downloads a missing model.
    """
    path = (base / name).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_file() and (path.suffix == gguf.SUFFIX or _is_gguf(path)):
        # Only the parent is resolved: a file of the hub cache is a link to a file without that name.
        return path.parent.resolve() / path.name
    if path.exists():
        hint = "name the folder that holds config.json, or a .gguf file"
        raise InputError(f"model '{name}': {path} is not a folder", hint=hint)
    store = facts_of(backend).keeps_models if backend else None
    if store is not None and (stored := store.find(name)) is not None:
        return stored
    if store is None or not store.only:
        cached = model_stores.in_hub_cache(name) if _looks_like_hub_id(name) else _in_cached_repository(name)
        if cached is not None:
            return cached
        if (stored := model_stores.in_lm_studio(name)) is not None:
            return stored
        if (stored := model_stores.in_ollama(name)) is not None:
            return model_stores.ollama_layers(stored, name)["model"]
    raise _missing(name, base, store)


_HUB_PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/\s]+/[^/\s?#]+)")


class MissingModelError(InputError):
    """A model is not on this machine; `download` is the command that fetches it."""

    def __init__(self, name: str, download: str, alternative: str = "") -> None:
        super().__init__(f"model '{name}' is not on this machine", hint=f"download it: {download}{alternative}")
        self.name = name
        self.download = download


def hub_download(name: str, program: str | None = None) -> str:
    """Return the command that downloads model *name* of the hub: its repository, or the one file that it names."""
    repository, file = _repository_and_file(name)
    return f"{program or hub_command()} download {f'{repository} {file}' if file else name}"


def check_found(places: Mapping[str, Path | InputError]) -> dict[str, Path]:
    """Return the *places* of models by their names; raise InputError where one is not here, with all that are not."""
    errors = [place for place in places.values() if isinstance(place, InputError)]
    missing = [error for error in errors if isinstance(error, MissingModelError)]
    if len(missing) > 1 and missing == errors:
        names = join_names([f"'{error.name}'" for error in missing])
        commands = " && ".join(error.download for error in missing)  # `hf download` takes one repository
        raise InputError(f"models {names} are not on this machine", hint=f"download them: {commands}")
    if errors:
        raise errors[0]
    return {name: place for name, place in places.items() if isinstance(place, Path)}


def _missing(name: str, base: Path, store: ModelStore | None) -> InputError:
    """Return the error of a model that is not here: where it is instead, which is spelled like it, or its download."""
    if hub := _HUB_PAGE.match(name):
        return InputError(f"model '{name}' is an address", hint=f"name the repository alone: '{hub[1]}'")
    if store is None and Path(name).expanduser().exists():
        hint = f"{relative_paths(base)}: write {os.path.relpath(Path(name).expanduser(), base)!r}"
        return InputError(f"model '{name}': no file or folder {(base / name).expanduser()}", hint=hint)
    _, file = _repository_and_file(name)
    path = (base / name).expanduser()
    siblings = {str(Path(name).with_name(other.name)) for other in path.parent.glob("*")}
    stored = {model.name for model in model_stores.all_models() if model.store != "folder"}
    near = nearest_word(name, siblings | stored)
    is_path = not _looks_like_hub_id(name) or path.parent.is_dir()  # models/x, next to a folder models
    if store is None and not file and is_path:
        hint = f"did you mean '{near}'?" if near else f"{relative_paths(base)}; check the spelling"
        return InputError(f"model '{name}': no file or folder {path}", hint=hint)
    download = f"{store.download} {name}" if store is not None else hub_download(name)
    alternative = f"; or name one that is here: '{near}'" if near and store is None else ""
    return MissingModelError(name, download, alternative)


def relative_paths(base: Path) -> str:
    """Say what relative paths are relative to where they start at *base*: without an SLO file, the current folder."""
    return f"paths are relative to the {'current folder' if base.resolve() == Path.cwd() else 'SLO file'}"


def local_path(models: Mapping[str, Path], name: str) -> Path:
    """Return the local path of model *name*; raise InputError where it is not in *models*."""
    if name not in models:
        raise InputError(f"model '{name}' has no local folder", hint=f"download it: {hub_download(name)}")
    return models[name]


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _repository_and_file(name: str) -> tuple[str, str]:
    """Split `ORG/NAME/FILE.gguf`; the file is empty where *name* is no such name."""
    organisation, _, rest = name.partition("/")
    title, _, file = rest.partition("/")
    repository = f"{organisation}/{title}"
    return repository, file if file.endswith(gguf.SUFFIX) and _looks_like_hub_id(repository) else ""


def _in_cached_repository(name: str) -> Path | None:
    repository, file = _repository_and_file(name)
    cached = model_stores.in_hub_cache(repository) if file else None
    return cached / file if cached is not None and (cached / file).is_file() else None


def _looks_like_hub_id(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 2 and all(parts) and parts[0] not in {".", ".."} and not name.endswith(gguf.SUFFIX)


def freeze(name: str, folder: Path, hashes: Hashes) -> Model:
    """Check that *folder*, a GGUF file or an Ollama manifest is a complete model; return what identifies it."""
    if folder.is_file():
        if folder.suffix == gguf.SUFFIX or _is_gguf(folder):
            return gguf.freeze(name, folder, hashes.sha256)
        return _of_ollama(name, folder, hashes)
    config = _read_json(folder / "config.json", name)
    weights = sorted(folder.glob(f"*{SUFFIX}"))
    if not weights:
        raise InputError(f"model '{name}': no {SUFFIX} file in {folder}", hint="was the download finished?")
    for path in weights:
        check_safetensors(path, name)
    index = folder / INDEX
    check_shards(folder, name, _read_json(index, name).get("weight_map") if index.is_file() else {})
    files = {str(path.relative_to(folder)): hashes.sha256(path) for path in _files(folder)}
    tokens = token_map(folder, name)
    template = chat_template(folder, name)
    return Model(
        name=name,
        digest=digest_of(files),
        files=files,
        bytes=sum(path.stat().st_size for path in weights),
        quantisation=quantisation(config),
        vocabulary=_vocabulary(config),
        tokens_sha256=sha256(json.dumps(tokens, sort_keys=True)) if tokens is not None else None,
        template_sha256=sha256(template) if template is not None else None,
        architecture=_architecture(config),
        shape=cache_shape(config),
    )


def _architecture(config: Mapping[str, Any]) -> str | None:
    listed = config.get("architectures")
    architecture = listed[0] if isinstance(listed, list) and listed else config.get("model_type")
    return architecture if isinstance(architecture, str) else None


def _of_ollama(name: str, manifest: Path, hashes: Hashes) -> Model:
    """Freeze all layers of an Ollama manifest: template, parameters and draft affect its answers too."""
    layers = model_stores.ollama_layers(manifest, name)
    files = {kind: hashes.sha256(blob) for kind, blob in layers.items()}
    for kind, blob in layers.items():
        # A blob is named by its digest, so damage shows. An empty digest: nothing was hashed.
        if files[kind] not in {"", blob.name.removeprefix("sha256-")}:
            hint = f"it is damaged; download it again: ollama rm {name} && ollama pull {name}"
            raise InputError(f"model '{name}': {blob} ({kind}) does not match the SHA-256 in its name", hint=hint)
    model = gguf.freeze(name, layers["model"], hashes.sha256)
    loaded = sum(blob.stat().st_size for kind, blob in layers.items() if kind.split()[0] in _LOADED)
    return model.model_copy(update={"files": files, "digest": digest_of(files), "bytes": loaded})


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        return json_object(read_input(path, MOST_BYTES), most=MOST_BYTES)
    except FileNotFoundError:
        raise InputError(f"model '{name}': {path} is missing", hint="name a folder that mlx-lm can load") from None
    except (OSError, ParseError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"model '{name}': cannot read {path}: {reason}", hint="download the model again") from error


def quantisation(config: Mapping[str, Any]) -> str:
    """Return the quantisation tier that config.json declares."""
    declared = config.get("quantization") or config.get("quantization_config")
    if isinstance(declared, dict) and declared.get("bits"):
        group = f" g{declared['group_size']}" if declared.get("group_size") else ""
        return f"{declared['bits']}-bit{group}"
    return str(config.get("torch_dtype") or config.get("dtype") or "unquantised")


def foreign_quantisation(folder: Path, name: str) -> str | None:
    """Return the method of a quantisation that was not made for MLX, such as gptq; None where there is none."""
    config = _read_json(folder / "config.json", name)
    declared = config.get("quantization_config")
    method = declared.get("quant_method") if isinstance(declared, dict) else None
    return str(method) if method and not config.get("quantization") else None


def is_quantised(model: Model) -> bool:
    """Tell whether the weights are quantised."""
    return "-bit" in model.quantisation


def _vocabulary(config: Mapping[str, Any]) -> int | None:
    rows = (place.get("vocab_size") for place in (config, _text_config(config)))
    return next((count for count in rows if type(count) is int), None)


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of config.json about the language model, in the config of a model that also sees or hears."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else {}


_NOT_EVERY_LAYER = (
    "sliding_window", "sliding_window_pattern", "full_attention_interval", "kv_lora_rank", "layers_block_type",
    "hybrid_override_pattern", "attn_layer_indices", "attention_chunk_size", "num_kv_shared_layers", "ssm_cfg",
)  # fmt: skip
"""Keys of models whose caches do not hold every token: windows, recurrent layers, compressed or shared caches."""


def cache_shape(config: Mapping[str, Any]) -> Shape | None:
    """Return the dimensions of the attention cache; None where config.json does not hold them."""
    inner: Mapping[str, Any] = {**config, **_text_config(config)}
    layers, heads = inner.get("num_hidden_layers"), inner.get("num_attention_heads")
    kv_heads, size = inner.get("num_key_value_heads") or heads, inner.get("head_dim")
    if size is None and isinstance(inner.get("hidden_size"), int) and isinstance(heads, int) and heads > 0:
        size = inner["hidden_size"] // heads
    if not all(isinstance(size_or_count, int) and size_or_count > 0 for size_or_count in (layers, kv_heads, size)):
        return None
    listed = inner.get("layer_types")
    kinds = {str(kind) for kind in listed} - {"full_attention"} if isinstance(listed, list) else set()
    windowed = inner.get("sliding_window") and inner.get("use_sliding_window", True)
    partial = any(inner.get(key) for key in _NOT_EVERY_LAYER if key != "sliding_window")
    dtype = str(inner.get("torch_dtype") or inner.get("dtype"))
    return Shape(
        layers=layers,
        kv_heads=kv_heads,
        head_dim=size,
        value_bytes=4 if dtype == "float32" else 2,
        every_layer=not (kinds or windowed or partial),
    )


def token_map(folder: Path, name: str) -> dict[str, int] | None:
    """Return the map from token to id, added tokens included; None where there is no tokenizer.json."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    document = _read_json(path, name)
    try:
        vocabulary = document.get("model", {}).get("vocab", {})
        if isinstance(vocabulary, list):  # unigram models list [token, score]
            vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
        tokens = {**vocabulary, **{entry["content"]: entry["id"] for entry in document.get("added_tokens", [])}}
        if all(isinstance(token, str) for token in tokens):
            return tokens
    except (AttributeError, LookupError, TypeError):
        pass
    raise InputError(f"model '{name}': {path} holds no token map", hint="download the model again")


def chat_template(folder: Path, name: str) -> str | None:
    """Return the chat template, from its own file or from tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return read_text(path, f"model '{name}': chat template")
    config = folder / "tokenizer_config.json"
    template = _read_json(config, name).get("chat_template") if config.is_file() else None
    return None if template is None else template if isinstance(template, str) else json.dumps(template, sort_keys=True)


def check_pair(target: Model, draft: Model) -> list[Finding]:
    """Raise InputError for a draft with another vocabulary; return findings for one made for other weights.

    A proposed token is an id: with another token map the target would verify other tokens. The embeddings may be padded
    differently where the token maps are the same, as in some model families.
    """
    hint = "choose a draft of the same model family, with the same tokenizer"
    if None not in {target.tokens_sha256, draft.tokens_sha256}:
        if target.tokens_sha256 != draft.tokens_sha256:
            raise InputError(
                f"draft '{draft.name}' and target '{target.name}' have different vocabularies "
                f"({draft.vocabulary} and {target.vocabulary} tokens, and their token maps differ)",
                hint=hint,
            )
    elif target.vocabulary != draft.vocabulary:
        raise InputError(
            f"draft '{draft.name}' has {draft.vocabulary} tokens, target '{target.name}' has {target.vocabulary}, "
            "and there is no token map to compare them",
            hint=hint,
        )
    findings = []
    if target.vocabulary != draft.vocabulary:
        detail = f"the embeddings have {target.vocabulary} and {draft.vocabulary} rows, with the same token map"
        findings.append(
            Finding(FindingKind.VOCABULARY_PADDING, draft.name, detail, "normal in some model families; nothing to do")
        )
    if is_quantised(target) and not is_quantised(draft):
        detail = (
            f"the target is {target.quantisation}, the draft is {draft.quantisation}: a draft made for the "
            "unquantised target is accepted less often by the quantised one"
        )
        findings.append(
            Finding(FindingKind.QUANTISATION_MISMATCH, draft.name, detail, "try a draft quantised like the target")
        )
    return findings
