"""GGUF files: what identifies one, and what is damaged, missing or mismatched, is found before the first token."""

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.models import artifacts, gguf
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.system.files import HashCache
from tests.builders.golden_words import says
from tools import write_gguf

MODELS = Path(__file__).parents[3] / "models"


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the little models as GGUF."""
    folder = tmp_path_factory.mktemp("gguf")
    write_gguf.main([str(folder)])
    return folder


@pytest.fixture
def hashes(tmp_path: Path) -> HashCache:
    return HashCache(tmp_path / "cache" / "hashes.json")


def written(path: Path, **keys: int) -> Path:
    """Write the smallest file that counts as a model, with more keys of its architecture."""
    arch = "llama"
    writer = reference.GGUFWriter(path, arch)
    for key, value in keys.items():
        writer.add_key_value(f"{arch}.{key.replace('__', '.')}", value, reference.GGUFValueType.UINT32)
    writer.add_tensor("token_embd.weight", np.zeros((8, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", write_gguf.NAMES)
def test_a_converted_model_keeps_what_identifies_its_folder(converted: Path, hashes: HashCache, name: str) -> None:
    """Token map, vocabulary and type of a GGUF are those of the folder it was made from; its digest is its file's."""
    path = artifacts.find(f"{name}.gguf", converted)

    file, folder = artifacts.freeze(name, path, hashes), artifacts.freeze(name, MODELS / name, hashes)

    for part in ("vocabulary", "tokens_sha256", "quantisation"):
        assert getattr(folder, part) == getattr(file, part) is not None
    assert file.template_sha256 is not None
    assert ({path.name: sha256(path.read_bytes())}, "qwen3") == (file.files, file.architecture)
    assert folder.shape is not None
    assert folder.shape.model_copy(update={"value_bytes": 2}) == file.shape


def test_the_header_is_what_the_formats_own_library_reads(converted: Path) -> None:
    """Every key and every tensor is read as the gguf package reads it, and the file ends where the tensors do."""
    path = converted / "little-target.gguf"
    library_header = reference.GGUFReader(path)

    header = gguf.read_header(path, "m")

    keys = {name: field.contents() for name, field in library_header.fields.items() if not name.startswith("GGUF.")}
    assert keys == {key: list(value) if isinstance(value, tuple) else value for key, value in header.keys.items()}
    assert {tensor.name: tuple(map(int, tensor.shape)) for tensor in library_header.tensors} == header.tensors
    assert path.stat().st_size >= header.least_size > path.stat().st_size - 32


def _cut(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:size]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (_cut(0), "truncated inside its header"),
    "cut in its counts": (_cut(17), "truncated inside its header"),
    "cut in its keys": (_cut(5000), "truncated inside its header"),
    "cut in its tensors": (lambda content: content[:-100], "is truncated: "),
    "another format": (lambda content: b"GGML" + content[4:], "does not begin with `GGUF`"),
    "another version": (lambda content: b"GGUF\0\0\0\3" + content[8:], "version 50331648"),
    "endless": (lambda content: content[:16] + struct.pack("<Q", 2**63) + content[24:], "truncated inside its header"),
    "a key of no type": (
        lambda content: content.replace(b"general.architecture\x08", b"general.architecture\x63"),
        "99",
    ),
    "no architecture": (
        lambda content: content.replace(b"general.architecture", b"general.architectura"),
        "architecture",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(converted: Path, tmp_path: Path, hashes: HashCache, damage: str) -> None:
    """Every damage is an input error (code 2) that names the model and what to do, never a traceback or a run."""
    change, says = DAMAGES[damage]
    path = tmp_path / "m.gguf"
    path.write_bytes(change((converted / "little-draft-lite.gguf").read_bytes()))

    with pytest.raises(InputError) as refused:
        artifacts.freeze("m", path, hashes)

    assert says in refused.value.message
    assert "'m'" in refused.value.message
    assert refused.value.hint


@given(at=st.floats(0, 1), byte=st.integers(0, 255))
def test_one_wrong_byte_never_gives_a_traceback(
    converted: Path, tmp_path_factory: pytest.TempPathFactory, at: float, byte: int
) -> None:
    """A header with any byte changed is read or refused."""
    content = bytearray((converted / "little-draft-alien.gguf").read_bytes())
    content[round(at * 2000)] = byte
    path = tmp_path_factory.mktemp("bent") / "m.gguf"
    path.write_bytes(content)

    with contextlib.suppress(InputError):
        gguf.freeze("m", path, lambda _: "d")


def test_an_unknown_type_of_tensor_is_named_and_weighs_what_it_takes(tmp_path: Path) -> None:
    """Tensors of a type that is newer than this gatekeeper have the size of their place in the file, never 0."""
    writer = reference.GGUFWriter(tmp_path / "m.gguf", "llama")
    for name, rows in (("token_embd.weight", 64), ("output_norm.weight", 2), ("output.weight", 32)):
        writer.add_tensor(name, np.zeros((rows, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = (tmp_path / "m.gguf").read_bytes()
    for unknown in (b"token_embd.weight", b"output.weight"):
        at = content.index(unknown) + len(unknown) + 4 + 2 * 8
        assert bytes(4) == content[at : at + 4]
        content = content[:at] + struct.pack("<I", 99) + content[at + 4 :]
    (tmp_path / "m.gguf").write_bytes(content)

    header = gguf.read_header(tmp_path / "m.gguf", "m")

    assert {"unknown type 99": 1024 + 512, "float32": 32} == header.weights
    assert "unknown type 99" == gguf.freeze("m", tmp_path / "m.gguf", lambda _: "d").quantisation


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        pytest.param(struct.pack("<II", 9, 9) + struct.pack("<QI", 1, 9) * 2000, "arrays inside", id="arrays"),
        pytest.param(struct.pack("<IIQ", 9, 0, 2**62), "truncated inside its header", id="endless"),
    ],
)
def test_a_header_made_to_break_the_reader_is_refused(tmp_path: Path, keys: bytes, says: str) -> None:
    """Arrays nested thousands deep and lengths beyond the file are refused before memory is taken for them."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + keys)

    with pytest.raises(InputError, match=says):
        gguf.read_header(path, "m")


def test_a_header_as_long_as_the_file_is_not_read_into_memory(tmp_path: Path) -> None:
    """A file of 100 GB whose header claims to be as long is refused."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 90 << 30))
    os.truncate(path, 100 << 30)

    with pytest.raises(InputError, match="longer than"):
        gguf.read_header(path, "m")


def test_a_split_is_whole_or_refused(tmp_path: Path, hashes: HashCache) -> None:
    """A model in two files is named by the first and hashed over both; a missing one is named."""
    first, second = (written(tmp_path / f"m-0000{number}-of-00002.gguf") for number in (1, 2))
    model = artifacts.freeze("m", first, hashes)

    assert ({first.name, second.name}, first.stat().st_size * 2) == (set(model.files), model.bytes)
    with pytest.raises(InputError, match="part 2 of a split"):
        artifacts.freeze("m", second, hashes)
    second.unlink()
    with pytest.raises(InputError) as refused:
        artifacts.freeze("m", first, hashes)
    says("backends", "a split is whole or refused", refused.value.message)


@pytest.mark.parametrize(
    ("weights", "tier"),
    [
        ({"Q4_K": 900, "Q6_K": 300, "float32": 5}, "4-bit Q4_K"),
        ({"IQ2_XXS": 9, "float16": 1}, "2-bit IQ2_XXS"),
        ({"bfloat16": 9, "float32": 1}, "bfloat16"),
        ({"unknown type 99": 300, "float32": 200}, "unknown type 99"),
        ({}, "unquantised"),
    ],
)
def test_quantisation_is_what_most_bytes_are_of(weights: dict[str, int], tier: str) -> None:
    """Mixed files are called after the type of most of their bytes."""
    assert tier == gguf.quantisation(weights)


@pytest.mark.parametrize(
    ("keys", "shape"),
    [
        ({"block_count": 3, "attention__head_count": 4, "embedding_length": 64}, (3, 4, 16, True)),
        (
            {"block_count": 3, "attention__head_count": 4, "attention__head_count_kv": 2, "attention__key_length": 8},
            (3, 2, 8, True),
        ),
        (
            {
                "block_count": 3,
                "attention__head_count": 4,
                "embedding_length": 64,
                "attention__sliding_window": 512,
            },
            (3, 4, 16, False),
        ),
        ({"block_count": 3}, None),
    ],
)
def test_the_cache_shape_is_read_from_the_header(tmp_path: Path, keys: dict[str, int], shape: tuple[Any, ...]) -> None:
    """Layers, heads and their size; windows make it an upper bound, and a missing key gives no shape."""
    cache_shape = gguf.cache_shape(gguf.read_header(written(tmp_path / "m.gguf", **keys), "m"))

    dimensions = (
        None
        if cache_shape is None
        else (cache_shape.layers, cache_shape.kv_heads, cache_shape.head_dim, cache_shape.every_layer)
    )
    assert shape == dimensions
