"""Model folders: what is damaged, missing or mismatched is found before the first token."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.models import artifacts
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Model, sha256
from gatekeeper.core.system.files import HashCache
from tests.builders.golden_words import says

MODELS = Path(__file__).parents[3] / "models"


@pytest.fixture
def hashes(tmp_path: Path) -> HashCache:
    return HashCache(tmp_path / "cache" / "hashes.json")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a real model folder that a test may damage."""
    return Path(shutil.copytree(MODELS / "little-draft-lite", tmp_path / "model"))


def safetensors(path: Path, size: int = 64) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * size)


def tiny(folder: Path, **config: Any) -> Path:
    """Write the smallest folder that counts as a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 8, **config}))
    safetensors(folder / "model.safetensors")
    return folder


def frozen(name: str, **changes: Any) -> Model:
    fields: dict[str, Any] = {
        "name": name,
        "digest": "d",
        "files": {},
        "bytes": 1,
        "quantisation": "4-bit g64",
        "vocabulary": 100,
        "tokens_sha256": "same",
        "template_sha256": None,
    }
    return Model(**{**fields, **changes})


def test_a_real_folder_is_frozen(hashes: HashCache) -> None:
    """The digest covers every file by name and content; size and vocabulary are read from the folder."""
    identity = artifacts.freeze("little-target", MODELS / "little-target", hashes)

    assert {path.name for path in (MODELS / "little-target").iterdir()} == identity.files.keys()
    assert sha256((MODELS / "little-target" / "config.json").read_bytes()) == identity.files["config.json"]
    assert (MODELS / "little-target" / "model.safetensors").stat().st_size == identity.bytes
    assert None not in {identity.vocabulary, identity.tokens_sha256, identity.template_sha256, identity.architecture}


def _cut(size: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:size])

    return damage


def _header(header: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)

    return damage


def _write(name: str, content: str | None) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_text(content)

    return damage


def _longer(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0")


def _dangling(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(folder / "blobs" / "gone")

    return damage


def _latin(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"caf\xe9")


def _pipe(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights empty": (_cut(0), "truncated inside its header"),
    "weights cut in their header": (_cut(100), "truncated inside its header"),
    "weights cut in their body": (_cut(100_000), "truncated: "),
    "weights too long": (_longer, "longer than its header says"),
    "header no JSON": (_header(b"{nonsense"), "no readable header"),
    "header a list": (_header(b"[]"), "no readable header"),
    "offsets missing": (_header(b'{"w": {}}'), "no readable header"),
    "offsets empty": (_header(b'{"w": {"data_offsets": []}}'), "no readable header"),
    "offsets text": (_header(b'{"w": {"data_offsets": ["0", "nine"]}}'), "no readable header"),
    "weights gone": (_write("model.safetensors", None), "no .safetensors file"),
    "weights a dangling link": (_dangling("model.safetensors"), "model.safetensors"),
    "config gone": (_write("config.json", None), "config.json is missing"),
    "config a dangling link": (_dangling("config.json"), "config.json is missing"),
    "config cut": (_write("config.json", '{"vocab'), "cannot read"),
    "config no object": (_write("config.json", "[]"), "not a JSON object"),
    "tokenizer cut": (_write("tokenizer.json", '{"model'), "cannot read"),
    "tokenizer odd": (_write("tokenizer.json", '{"model": null}'), "tokenizer.json"),
    "weights a pipe": (_pipe("model.safetensors"), "not a regular file"),
    "config a pipe": (_pipe("config.json"), "it is not a regular file"),
    "template not text": (_latin, "not UTF-8"),
    "header nested 100,000 deep": (_header(b'{"w": ' + b"[" * 100_000), "recursion limit"),
    "config nested 1,500 deep": (_write("config.json", '{"a": ' + "[" * 1500), "recursion limit"),
    "offsets infinite": (_header(b'{"w": {"data_offsets": [0, 1e999]}}'), "too large"),
    "offsets of 5,000 digits": (_header(b'{"w": {"data_offsets": [0, ' + b"9" * 5000 + b"]}}"), "out of range"),
    "tokens no text": (_write("tokenizer.json", '{"model": {"vocab": [[1, 0]]}}'), "no token map"),
    "shards no names": (_write("model.safetensors.index.json", '{"weight_map": {"w": 7}}'), "no weight_map"),
    "tokens odd": (_write("tokenizer.json", '{"added_tokens": [{}]}'), "tokenizer.json"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused(copied: Path, hashes: HashCache, damage: str) -> None:
    """Every damage is an input error (code 2) that names the model and what to do, never a traceback or a run."""
    change, says = DAMAGES[damage]
    change(copied)

    with pytest.raises(InputError) as refused:
        artifacts.freeze("m", copied, hashes)

    assert says in refused.value.message
    assert "'m'" in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_shard_is_named(tmp_path: Path, hashes: HashCache, *, with_index: bool) -> None:
    """A model of two shards with one of them, by its index or by the shards' own names, is an unfinished download."""
    folder = tiny(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    if with_index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))

    with pytest.raises(InputError) as refused:
        artifacts.freeze("m", folder, hashes)
    says("backends", "a missing shard is named", refused.value.message)

    safetensors(folder / shards["b"])
    assert 2 * 64 < artifacts.freeze("m", folder, hashes).bytes


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache that HF_HOME points to."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    folder = tmp_path / "hf" / "hub" / "models--org--name"
    folder.mkdir(parents=True)
    return folder


def test_a_hub_id_is_found_in_the_cache(hub: Path, tmp_path: Path) -> None:
    """The snapshot that refs/main names is taken, whatever else lies there; without refs the last one."""
    for commit in ("aaa", "bbb"):
        tiny(hub / "snapshots" / commit)
    assert hub / "snapshots" / "bbb" == artifacts.find("org/name", tmp_path)

    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("aaa\n")

    assert hub / "snapshots" / "aaa" == artifacts.find("org/name", tmp_path)


def test_a_model_that_is_not_there_names_the_command_that_fetches_it(hub: Path, tmp_path: Path) -> None:
    """Nothing is downloaded: an unknown id, and one whose snapshot is gone, say how to fetch it."""
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("ccc")

    for name in ("org/name", "org/other"):
        with pytest.raises(InputError) as refused:
            artifacts.find(name, tmp_path)
        assert f"hf download {name}" in refused.value.hint


def test_the_alien_draft_is_refused(hashes: HashCache) -> None:
    """A draft with another token map proposes nonsense, whatever its acceptance: refused before the first token."""
    target = artifacts.freeze("t", MODELS / "little-target", hashes)
    alien = artifacts.freeze("little-draft-alien", MODELS / "little-draft-alien", hashes)

    with pytest.raises(InputError, match="different vocabularies"):
        artifacts.check_pair(target, alien)


def test_a_padded_vocabulary_is_accepted_and_reported() -> None:
    """Embeddings of different height over the same token map are padding."""
    (finding,) = artifacts.check_pair(frozen("t", vocabulary=151_936), frozen("d", vocabulary=152_064))

    assert ("vocabulary_padding", "d") == (finding.kind, finding.about)


@pytest.mark.parametrize("checksum", [None, "some"])
def test_without_a_token_map_the_sizes_must_agree(checksum: str | None) -> None:
    """Where a tokenizer.json is missing, other sizes are refused; equal ones are all that can be seen."""
    target = frozen("t", tokens_sha256=checksum)

    assert [] == artifacts.check_pair(target, frozen("d", tokens_sha256=None))
    with pytest.raises(InputError, match=r"no token map"):
        artifacts.check_pair(target, frozen("d", tokens_sha256=None, vocabulary=101))


@pytest.mark.parametrize(
    ("target", "draft", "warned"),
    [
        ("4-bit g64", "float16", True),
        ("4-bit g64", "8-bit g64", False),
        ("float16", "float16", False),
        ("float16", "4-bit g64", False),
    ],
)
def test_a_draft_for_other_weights_is_warned_about(target: str, draft: str, *, warned: bool) -> None:
    """An unquantised draft with a quantised target was made for other weights: a finding, not an error."""
    pair = artifacts.check_pair(frozen("t", quantisation=target), frozen("d", quantisation=draft))

    assert warned == ("quantisation_mismatch" in {finding.kind for finding in pair})
