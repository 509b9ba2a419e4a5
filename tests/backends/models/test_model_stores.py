"""Shelves: models are found and hashed where Hugging Face, LM Studio and Ollama keep them."""

import hashlib
from pathlib import Path

import pytest

from gatekeeper.backends.models import artifacts, model_stores
from gatekeeper.core.errors import InputError
from gatekeeper.core.system.files import HashCache
from tests.builders import models as laid_out
from tests.builders.golden_words import says
from tests.builders.models import MODELS
from tools import write_gguf


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without models, where no variable names another place."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(model_stores, "OLLAMA_SERVICE", tmp_path / "service")
    monkeypatch.chdir(tmp_path)  # without the folder `models` of this repository
    return tmp_path


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The little draft as a GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "little-draft.gguf"
    write_gguf.write(MODELS / "little-draft", path)
    return path


@pytest.fixture
def hashes(tmp_path: Path) -> HashCache:
    return HashCache(tmp_path / "hashes.json")


def test_every_store_is_searched(home: Path, draft: Path) -> None:
    """Folders and files of all three tools have the names the tools give them; projectors are no models."""
    laid_out.hub(home, "org/target", MODELS / "little-target")
    laid_out.hub(home, "org/files", draft)
    laid_out.lm_studio(home, "maker/folder", MODELS / "little-draft")
    for name in ("mmproj-x.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        companion = home / name
        companion.write_bytes(draft.read_bytes())
        laid_out.lm_studio(home, "maker/split", companion)
    models = home / ".ollama" / "models"
    for place in ("registry.ollama.ai/library/qwen/8b", "registry.ollama.ai/me/own/latest", "hf.co/org/q/Q4_K_M"):
        laid_out.ollama(models, place, {"model": draft.read_bytes()})
    (home / ".lmstudio" / "models" / "maker" / "empty").mkdir()

    names_and_stores = {(model.name, model.store) for model in model_stores.all_models()}

    assert {
        ("org/target", "Hugging Face"),
        ("org/files/little-draft.gguf", "Hugging Face"),
        ("maker/folder", "LM Studio"),
        ("maker/split/m-00001-of-00002.gguf", "LM Studio"),
        ("qwen:8b", "Ollama"),
        ("me/own:latest", "Ollama"),
        ("hf.co/org/q:Q4_K_M", "Ollama"),
    } == names_and_stores


def test_any_backend_finds_a_model_by_its_name_in_a_store(
    home: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of the hub cache, LM Studio's and Ollama's folders are searched; a near name is suggested."""
    monkeypatch.setattr(artifacts, "hub_command", lambda: "hf")
    folder = laid_out.lm_studio(home, "maker/folder", MODELS / "little-draft")
    laid_out.ollama(home / ".ollama" / "models", "registry.ollama.ai/library/qwen/8b", {"model": draft.read_bytes()})

    assert folder == artifacts.find("maker/folder", home, "mlx")
    assert draft.read_bytes() == artifacts.find("qwen:8b", home, "llama-server").read_bytes()
    with pytest.raises(InputError) as refused:
        artifacts.find("maker/foldr", home, "mlx")
    snapshot = laid_out.hub(home, "maker/folder", MODELS / "little-target")
    assert snapshot == artifacts.find("maker/folder", home, "mlx")
    says("backends", "a model that is nowhere is told with the one spelled like it", refused.value.hint)


def test_a_target_of_lm_studio_is_hashed_where_it_lies(home: Path, draft: Path, hashes: HashCache) -> None:
    """PUBLISHER/NAME is a folder or the one GGUF file in it; PUBLISHER/NAME/FILE names one of several."""
    laid_out.lm_studio(home, "maker/folder", MODELS / "little-target")
    file = laid_out.lm_studio(home, "maker/file", draft)

    target = artifacts.freeze("maker/folder", artifacts.find("maker/folder", home, "lmstudio"), hashes)
    single_file = artifacts.freeze("maker/file", artifacts.find("maker/file", home, "lmstudio"), hashes)

    assert artifacts.freeze("t", MODELS / "little-target", hashes).digest == target.digest
    assert {file.name: hashlib.sha256(draft.read_bytes()).hexdigest()} == single_file.files
    assert [] == artifacts.check_pair(target, single_file)
    (file.parent / "other.gguf").write_bytes(draft.read_bytes())
    with pytest.raises(InputError) as refused:
        artifacts.find("maker/file", home, "lmstudio")
    says("backends", "a target of lm studio is hashed where it lies", refused.value.message)
    assert file == artifacts.find("maker/file/little-draft.gguf", home, "lmstudio")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("qwen:8b", "registry.ollama.ai/library/qwen/8b"),
        ("qwen", "registry.ollama.ai/library/qwen/latest"),
        ("me/own:v1", "registry.ollama.ai/me/own/v1"),
        ("hf.co/org/name:Q4_K_M", "hf.co/org/name/Q4_K_M"),
        ("host:5000/me/own", "host:5000/me/own/latest"),
    ],
)
def test_a_name_of_ollama_is_completed_as_ollama_does(home: Path, name: str, place: str) -> None:
    """Registry, namespace and tag are added where a name leaves them out."""
    manifest = laid_out.ollama(home / ".ollama" / "models", place, {"model": b"GGUF"})

    assert manifest == artifacts.find(name, home, "ollama")


def test_a_model_of_ollama_is_its_file_and_what_goes_with_it(
    home: Path, draft: Path, hashes: HashCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest covers the GGUF, the template, the parameters and an own draft, and not the licence."""
    models, place, content = home / "elsewhere", "registry.ollama.ai/library/little/1", draft.read_bytes()
    monkeypatch.setenv("OLLAMA_MODELS", str(models))
    layers = {"model": content, "template": b"{{ .Prompt }}", "params": b'{"temperature": 0}', "draft": content + b"\0"}

    laid_out.ollama(models, place, {**layers, "license": b"free"})
    first = artifacts.freeze("little:1", artifacts.find("little:1", home, "ollama"), hashes)
    laid_out.ollama(models, place, {**layers, "license": b"freer"})
    relicensed = artifacts.freeze("little:1", artifacts.find("little:1", home, "ollama"), hashes)
    laid_out.ollama(models, place, {**layers, "params": b'{"temperature": 1}'})
    warmer = artifacts.freeze("little:1", artifacts.find("little:1", home, "ollama"), hashes)

    assert {kind: hashlib.sha256(part).hexdigest() for kind, part in layers.items()} == first.files
    assert (True, False) == (first.digest == relicensed.digest, first.digest == warmer.digest)
    assert 2 * len(content) + 1 == first.bytes
    alone = artifacts.freeze("d", draft, hashes)
    assert (alone.tokens_sha256, alone.shape, alone.quantisation) == (
        first.tokens_sha256,
        first.shape,
        first.quantisation,
    )


def test_damage_in_ollamas_store_is_found(home: Path, draft: Path, hashes: HashCache) -> None:
    """A blob that is gone or changed, a manifest that is none and a model in pieces are refused with a way out."""
    models, place = home / ".ollama" / "models", "registry.ollama.ai/library/m/1"

    def refused(match: str) -> None:
        with pytest.raises(InputError, match=match) as raised:
            artifacts.freeze("m:1", artifacts.find("m:1", home, "ollama"), hashes)
        assert raised.value.hint

    manifest = laid_out.ollama(models, place, {"model": draft.read_bytes(), "template": b"t"})
    blob = model_stores.ollama_layers(manifest, "m:1")["template"]
    blob.write_bytes(b"other")
    refused(r"\(template\) does not match the SHA-256 in its name")
    blob.unlink()
    refused("is missing")
    laid_out.ollama(models, place, {"tensor": b"w", "json": b"{}"})
    refused("stores it as tensor, json")
    for text in ("{", "[]", '{"layers": 3}', '{"layers": [{"digest": "../../x", "mediaType": "y"}]}'):
        manifest.write_text(text)
        refused("nor an Ollama manifest|without kind or digest")
    manifest.unlink()
    with pytest.raises(InputError, match="not on this machine") as raised:
        artifacts.find("m:1", home, "ollama")
    assert "ollama pull m:1" in raised.value.hint


@pytest.mark.parametrize("name", ["../../secret", "a/../b", "a//b", "/etc/passwd"])
def test_names_do_not_leave_the_store(home: Path, name: str) -> None:
    """A name is looked up below the store and nowhere else."""
    (home / ".lmstudio" / "models").mkdir(parents=True)
    (home / ".lmstudio" / "secret.gguf").write_bytes(b"GGUF")

    assert (None, None) == (model_stores.in_lm_studio(name), model_stores.in_ollama(name))
