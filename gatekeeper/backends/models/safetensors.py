"""Weights in safetensors files: whether each is complete, and none is missing."""

import re
import stat
import struct
from pathlib import Path

from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.own_command import hub_command
from gatekeeper.core.text import some

MOST_BYTES = 256 << 20
"""Bytes of one JSON file of a model, and of the header of its weights: the largest tokenizers have 40 MB."""
SUFFIX, INDEX = ".safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")


def check_safetensors(path: Path, name: str) -> None:
    """Raise InputError for a weights file whose length does not match its header.

    Format: 8 bytes little-endian header length, the JSON header, then the tensors its offsets point into.
    """
    hint = f"the file is damaged; download the model again, e.g. {hub_command()} download {name} --force-download"
    try:
        status = path.stat()
        size = status.st_size
    except OSError as error:  # a link of the hub cache whose blob is gone
        raise InputError(f"model '{name}': cannot read {path}: {error.strerror}", hint=hint) from error
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
        raise InputError(f"model '{name}': {path} is not a regular file", hint=hint)
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if len(head) < 8 or length > size - 8:
            raise InputError(f"model '{name}': {path} is truncated inside its header ({size} bytes)", hint=hint)
        try:
            header = json_object(file.read(min(length, MOST_BYTES + 1)), most=MOST_BYTES)
            ends = [_offset(entry["data_offsets"][1]) for key, entry in header.items() if key != "__metadata__"]
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(f"model '{name}': {path} has no readable header: {error}", hint=hint) from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        defect = "truncated" if size < expected else "longer than its header says"
        raise InputError(f"model '{name}': {path} is {defect}: {size} bytes, expected {expected}", hint=hint)


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ParseError(f"{value!r} is not an offset")
    return value


def check_shards(folder: Path, name: str, placed: object) -> None:
    """Raise InputError where a file of the weights is missing; *placed* names the file of each tensor."""
    if not isinstance(placed, dict) or not all(isinstance(shard, str) for shard in placed.values()):
        hint = "download the model again"
        raise InputError(f"model '{name}': {folder / INDEX} has no weight_map of file names", hint=hint)
    shards = set(placed.values())
    for path in folder.glob(f"*{SUFFIX}"):  # the shards' own names hold their number
        if numbered := _SHARD.fullmatch(path.name):
            stem, count = numbered.groups()
            shards |= {f"{stem}-{number:05}-of-{count}{SUFFIX}" for number in range(1, int(count) + 1)}
    missing = sorted(shard for shard in shards if not (folder / shard).is_file())
    if missing:
        raise InputError(f"model '{name}': {folder} lacks {some(missing)}", hint="finish the download")
