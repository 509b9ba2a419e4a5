"""Log files: JSON lines, one JSON document, or the text log of a server, read record by record."""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from gatekeeper.canaries.conversation import UnusableError
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import JSON_BYTES, ParseError, json_value
from gatekeeper.core.system.files import open_input

DOCUMENT_BYTES = 16 * JSON_BYTES
"""Of a file that is one JSON document, which is read whole."""
RECORDS = 2_000_000
"""Records that are read; a busy server's week."""
_PARQUET, _GZIP, _UTF16 = b"PAR1", b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
_LOGGED = re.compile(rb"\b(request|response):\s*(?=\{)")
"""How llama-server writes the bodies of a request and of its response, each on one line of its verbose log.

Of a stream it logs no response.
"""


def records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, record) of the log at *path*; a line that cannot be read is an UnusableError in its place."""
    try:
        with _opened(path) as file:
            yield from _records(file, path)
    except FileNotFoundError:
        raise InputError(f"log {path} does not exist", hint="check the path") from None
    except IsADirectoryError:
        raise InputError(f"log {path} is a folder", hint=f"name the files: {path}/*.jsonl") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read log {path}: {reason}", hint="check the file and its permissions") from error


def _opened(path: Path) -> IO[bytes]:
    file = open_input(path)
    start = file.read(4)
    file.seek(0)
    if start == _PARQUET:
        file.close()
        raise InputError(
            f"log {path} is a Parquet file, which is not read",
            hint="write it as JSON lines: with pyarrow or pandas, pandas.read_parquet(FILE).to_json(OUT, "
            'orient="records", lines=True)',
        )
    if start.startswith(_UTF16):
        file.close()
        raise InputError(
            f"log {path} is UTF-16, and UTF-8 is read", hint=f"iconv -f UTF-16 -t UTF-8 {path} > {path.stem}-utf8.jsonl"
        )
    return gzip.open(file) if start.startswith(_GZIP) else file  # type: ignore[return-value]


def _records(file: IO[bytes], path: Path) -> Iterator[tuple[int, Any]]:
    first = file.readline(JSON_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    if first.lstrip()[:1] == b"[" or (first.lstrip()[:1] == b"{" and not _is_whole(first)):
        yield from _document(first + file.read(DOCUMENT_BYTES + 1), path)
        return
    asked: tuple[int, Any] | None = None
    for number, line in _lines(first, file, path):
        if line.lstrip()[:1] == b"{":
            yield number, _value(line)
        elif found := _LOGGED.search(line):
            value = _value(line[found.end() :])
            if found[1] == b"response":
                if asked is not None and isinstance(asked[1], dict):
                    asked[1]["response"] = None if isinstance(value, UnusableError) else value
                continue
            if asked is not None:
                yield asked
            asked = (number, value if isinstance(value, UnusableError) else {"request": value})
    if asked is not None:
        yield asked


def _lines(first: bytes, file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    number, line = 1, first
    while line:
        if number > RECORDS:
            raise InputError(f"log {path} has more than {RECORDS} lines", hint="split it, and import the newest part")
        yield number, line
        number, line = number + 1, file.readline(JSON_BYTES + 1)


def _is_whole(line: bytes) -> bool:
    """Tell whether a line holds one JSON value; else a document begins that goes over several lines."""
    try:
        json_value(line, from_server=True)
    except ParseError:
        return line.rstrip().endswith(b"}")
    return True


def _document(text: bytes, path: Path) -> Iterator[tuple[int, Any]]:
    try:
        value = json_value(text, most=DOCUMENT_BYTES, from_server=True)
    except ParseError as error:
        raise InputError(
            f"log {path}: {error}", hint="expected JSON lines, one JSON document, or the log of a server"
        ) from error
    yield from enumerate(value if isinstance(value, list) else [value], start=1)


def _value(text: bytes) -> Any:
    try:
        return json_value(text, from_server=True)
    except ParseError as error:
        return UnusableError(f"a line that is not JSON: {str(error).partition(' at ')[0]}")
