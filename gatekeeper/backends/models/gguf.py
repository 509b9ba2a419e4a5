"""A GGUF file: read its header, check it against the file's length, and describe the model, without the weights."""

import json
import math
import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Model, Shape, digest_of, sha256
from gatekeeper.core.text import quote, some

SUFFIX = ".gguf"
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_ALIGNMENT = 32
"""Alignment of the tensors in bytes, where the header has no other."""
_UNUSED = 5
"""The type of a token that only pads the vocabulary to the rows of the embedding."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_TENSORS: dict[int, tuple[str, int, int]] = {
    0: ("float32", 1, 4), 1: ("float16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("int8", 1, 1), 25: ("int16", 1, 2), 26: ("int32", 1, 4),
    27: ("int64", 1, 8), 28: ("float64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("bfloat16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
}  # fmt: skip
"""Types of tensors: name, numbers in a block, bytes of a block. The size of an unknown type is that of its place."""
_MOST_HEADER = 128 << 20
"""Bytes; the tokens of the largest vocabularies take a tenth of it."""
_MOST_DIMENSIONS = 8
"""Dimensions of a tensor; llama.cpp has four."""
_LEVELS = 8
"""Arrays inside each other; the format's own keys have one."""


@dataclass(frozen=True, slots=True)
class Header:
    """All that precedes the tensors."""

    keys: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    """The dimensions of each, the fastest first."""
    weights: Mapping[str, int]
    """Bytes of tensors, by the name of their type."""
    least_size: int
    """Smallest size in bytes of a file with complete tensors."""

    @property
    def architecture(self) -> str:
        """Return the architecture, which is the prefix of its keys."""
        return str(self.keys.get("general.architecture", ""))

    def of_architecture(self, key: str) -> Any:
        """Return the value of the architecture's *key*, None where it is missing."""
        return self.keys.get(f"{self.architecture}.{key}")


def read_header(path: Path, name: str) -> Header:
    """Return the header of *path*; raise InputError where it is invalid, or needs more bytes than the file has.

    Format: `GGUF`, version, count of tensors, count of keys; each key with its type and value; each tensor with its
    dimensions, type and offset; then, aligned, the tensors. Little-endian, versions 2 and 3.
    """
    hint = "the file is damaged or not GGUF; download or convert it again"
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = _Reader(file, size).header()
    except _CutError:
        raise InputError(f"model '{name}': {path} is truncated inside its header ({size} bytes)", hint=hint) from None
    except OSError as error:
        raise InputError(f"model '{name}': cannot read {path}: {error.strerror}", hint=hint) from error
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise InputError(f"model '{name}': {path} has no readable header: {error}", hint=hint) from error
    if size < header.least_size:
        message = f"model '{name}': {path} is truncated: {size} bytes, expected {header.least_size}"
        raise InputError(message, hint=hint)
    return header


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dimensions: tuple[int, ...]
    kind: int
    offset: int

    @property
    def type_name(self) -> str:
        return _TENSORS[self.kind][0] if self.kind in _TENSORS else f"unknown type {self.kind}"

    @property
    def bytes(self) -> int | None:
        """Its size; None where the type is unknown."""
        if self.kind not in _TENSORS:
            return None
        _, block, bytes_of_block = _TENSORS[self.kind]
        return math.prod(self.dimensions) // block * bytes_of_block


class _CutError(Exception):
    """The file ends too early."""


class _Reader:
    """Reads forward; a length that exceeds the file is found before memory is allocated for it."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size, self._left = file, size, size

    def header(self) -> Header:
        if self._take(4) != b"GGUF":
            raise ValueError("it does not begin with `GGUF`")
        version = self._number("I")
        if version not in {2, 3}:
            raise ValueError(f"unknown version {version} of the format; known: 2 and 3")
        tensor_count, key_count = self._number("Q"), self._number("Q")
        keys = {}
        for _ in range(key_count):
            key = self._text()
            keys[key] = self._value(self._number("I"))
        listed = [self._tensor() for _ in range(tensor_count)]
        align = int(keys.get("general.alignment", _ALIGNMENT))
        start = -(-self._file.tell() // align) * align
        weights: Counter[str] = Counter()
        begins = sorted({tensor.offset for tensor in listed} | {max(0, self._size - start)})
        for tensor in listed:
            after = begins[min(bisect_right(begins, tensor.offset), len(begins) - 1)]
            weights[tensor.type_name] += tensor.bytes if tensor.bytes is not None else max(0, after - tensor.offset)
        return Header(
            keys=keys,
            tensors={tensor.name: tensor.dimensions for tensor in listed},
            weights=dict(weights),
            least_size=start + max((tensor.offset + (tensor.bytes or 0) for tensor in listed), default=0),
        )

    def _tensor(self) -> "_Tensor":
        name, count = self._text(), self._number("I")
        if count > _MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {count} dimensions")
        dimensions = tuple(self._number("Q") for _ in range(count))
        return _Tensor(name, dimensions, kind=self._number("I"), offset=self._number("Q"))

    def _value(self, kind: int, levels: int = _LEVELS) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(_SCALARS[kind])
        if not levels:
            raise ValueError(f"more than {_LEVELS} arrays inside each other")
        inner, count = self._number("I"), self._number("Q")
        if inner not in _SCALARS:
            return tuple(self._value(inner, levels - 1) for _ in range(count))
        width = struct.calcsize(_SCALARS[inner])
        return struct.unpack(f"<{count}{_SCALARS[inner]}", self._take(count * width))

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", "surrogateescape")

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _take(self, count: int) -> bytes:
        if self._size - self._left + count > _MOST_HEADER and count <= self._left:
            raise ValueError(f"it is longer than {_MOST_HEADER} bytes")
        taken = self._file.read(count) if count <= self._left else b""
        if len(taken) != count:
            raise _CutError
        self._left -= count
        return taken


def freeze(name: str, path: Path, hashed: Callable[[Path], str]) -> Model:
    """Check that *path* is a complete model, in one file or a split; return what identifies it."""
    paths = _parts(path, name)
    headers = [read_header(part, name) for part in paths]
    first = headers[0]
    if not first.architecture:
        raise InputError(f"model '{name}': {path} names no architecture", hint="it holds no model: name another file")
    files = {part.name: hashed(part) for part in paths}
    weights: Counter[str] = Counter()
    for header in headers:
        weights.update(header.weights)
    tokens, template = token_map(first), first.keys.get("tokenizer.chat_template")
    return Model(
        name=name,
        digest=digest_of(files),
        files=files,
        bytes=sum(part.stat().st_size for part in paths),
        quantisation=quantisation(weights),
        vocabulary=_vocabulary(headers),
        tokens_sha256=sha256(json.dumps(tokens, sort_keys=True)) if tokens is not None else None,
        template_sha256=sha256(template.encode("utf-8", "surrogateescape")) if isinstance(template, str) else None,
        architecture=quote(first.architecture),
        shape=cache_shape(first),
    )


def _parts(path: Path, name: str) -> list[Path]:
    """Return the files of a model, in order; llama.cpp is given the first of a split and finds the others."""
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    stem, number, count = split.groups()
    if int(number) != 1:
        raise InputError(f"model '{name}': {path} is part {int(number)} of a split", hint="name the first part")
    parts = [path.with_name(f"{stem}-{index:05}-of-{count}{SUFFIX}") for index in range(1, int(count) + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise InputError(f"model '{name}': {path.parent} lacks {some(missing)}", hint="finish the download")
    return parts


def quantisation(weights: Mapping[str, int]) -> str:
    """Return the type most bytes are of: `4-bit Q4_K`, or `float16`."""
    if not weights:
        return "unquantised"
    most = max(weights, key=lambda kind: (weights[kind], kind))
    digits = re.search(r"\d", most)
    return f"{digits.group()}-bit {most}" if digits is not None and most[0].isupper() else most


def _vocabulary(headers: list[Header]) -> int | None:
    for header in headers:
        if rows := header.tensors.get("token_embd.weight"):
            return rows[-1]
    tokens = headers[0].keys.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, tuple) else None


def token_map(header: Header) -> dict[str, int] | None:
    """Return the map from token to id, without padding tokens; None where the header holds no tokens.

    For a converted model it is the map in its tokenizer.json.
    """
    tokens = header.keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, tuple):
        return None
    kinds = header.keys.get("tokenizer.ggml.token_type")
    unused = {number for number, kind in enumerate(kinds) if kind == _UNUSED} if isinstance(kinds, tuple) else ()
    return {token: number for number, token in enumerate(tokens) if number not in unused}


_NOT_EVERY_LAYER = (
    "attention.sliding_window", "attention.kv_lora_rank", "attention.chunk_size", "attention.shared_kv_layers",
    "attention.recurrent_layers", "full_attention_interval", "ssm.state_size", "wkv.head_size", "shortconv.l_cache",
)  # fmt: skip
"""Keys of architectures whose caches do not hold every token: windows, recurrent layers, compressed caches."""


def cache_shape(header: Header) -> Shape | None:
    """Return the dimensions of the attention cache, in llama.cpp's default type; None where the header lacks them."""
    layers, heads = header.of_architecture("block_count"), header.of_architecture("attention.head_count")
    kv_heads = header.of_architecture("attention.head_count_kv") or heads
    size, width = header.of_architecture("attention.key_length"), header.of_architecture("embedding_length")
    if size is None and isinstance(width, int) and isinstance(heads, int) and heads > 0:
        size = width // heads
    if not all(isinstance(size_or_count, int) and size_or_count > 0 for size_or_count in (layers, kv_heads, size)):
        return None
    fewer = any(header.of_architecture(key) for key in _NOT_EVERY_LAYER)
    return Shape(layers=layers, kv_heads=kv_heads, head_dim=size, value_bytes=2, every_layer=not fewer)
