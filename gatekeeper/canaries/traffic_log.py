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
from gatekeeper.core.system.wrong_file import describe_head

VALUES = 2_000_000
"""Values of one record, counted as the commas and opening brackets in its text: JSON_BYTES of empty lists
take gigabytes once they are parsed. A long conversation has under a hundredth of it."""
RECORDS = 2_000_000
"""Records that are read; a busy server's week."""
_CHUNK = JSON_BYTES // 8
_JSON_MARK = re.compile(rb'[][{},]|"(?:[^"\\]|\\.)*+(?P<closed>")?', re.DOTALL)
"""A bracket, a comma, or a text, which is not closed where the rest of it is not read yet."""
_GZIP = b"\x1f\x8b"
_LOGGED = re.compile(rb"\b(?:request|Incoming Request Body|(?P<response>response|Outgoing Response)):\s*(?=\{)")
"""How llama-server writes the bodies of a request and of its response, each on one line of its verbose log, and how
mlx_lm.server 0.32.2 with `--log-level DEBUG`, over several indented lines. Neither logs the response of a stream."""


def records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, record) of the log at *path*; a line that cannot be read is an UnusableError in its place."""
    try:
        with _opened(path) as file:
            yield from _records(file, path)
    except FileNotFoundError:
        hint = "write the log to a file first: stdin is not read" if str(path) == "-" else "check the path"
        raise InputError(f"log {path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise InputError(f"log {path} is a folder", hint=f"name the files: {path}/*.jsonl") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read log {path}: {reason}", hint="check the file and its permissions") from error


def _opened(path: Path) -> IO[bytes]:
    file = open_input(path)
    start = file.read(4)
    file.seek(0)
    if start.startswith(_GZIP):
        return gzip.open(file)  # type: ignore[return-value]
    if (no_text := describe_head(path, start)) is not None:
        file.close()
        raise InputError(f"log {path} {no_text[0]}, which is not read", hint=no_text[1])
    return file


def _records(file: IO[bytes], path: Path) -> Iterator[tuple[int, Any]]:
    first = file.readline(JSON_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    if first.lstrip()[:1] == b"[":
        yield from _list(first, file, path)
        return
    if first.lstrip()[:1] == b"{" and not _is_whole(first):
        yield 1, _document(first + file.read(JSON_BYTES + 1 - min(len(first), JSON_BYTES)), path, 1)
        return
    request: tuple[int, Any] | None = None
    waiting = 0
    lines = _lines(first, file, path)
    for number, line in lines:
        if line.lstrip()[:1] == b"{":
            yield number, _value(line)
        elif body := _LOGGED.search(line):
            value = _value(_whole_body(line[body.end() :], lines))
            if body["response"] is not None:
                # Of several requests it is not known whose it is.
                if waiting == 1 and request is not None and isinstance(request[1], dict):
                    request[1]["response"] = None if isinstance(value, UnusableError) else value
                waiting = 0
                continue
            if request is not None:
                yield request
            waiting += not (isinstance(value, dict) and value.get("stream"))
            request = (number, value if isinstance(value, UnusableError) else {"request": value})
    if request is not None:
        yield request


def _whole_body(text: bytes, lines: Iterator[tuple[int, bytes]]) -> bytes:
    """Return a body that begins with *text*: where that is a brace alone, up to the next line that is one.

    Of a body that is longer than a record may be, the rest is skipped.
    """
    body = bytearray(text)
    ends = text.strip() != b"{"
    while not ends and (numbered := next(lines, None)) is not None:
        if len(body) <= JSON_BYTES:
            body += numbered[1]
        ends = numbered[1].rstrip() == b"}"
    return bytes(body)


def _list(first: bytes, file: IO[bytes], path: Path) -> Iterator[tuple[int, Any]]:  # noqa: C901 (a scanner)
    """Yield the records of a file that is one JSON list, of any size: only the record that is read is in memory."""
    buffer = bytearray(first)
    number, depth, values, start, position = 0, 0, 0, 0, 0
    while True:
        for mark in _JSON_MARK.finditer(buffer, position):
            char = mark[0][:1]
            if char == b'"' and mark["closed"] is None:
                break
            position = mark.end()
            depth += (char in b"[{") - (char in b"]}")
            values += char in b",[{"
            if values > VALUES:
                raise _too_large(path, number + 1, f"more than {VALUES} values")
            if depth == 0 or (depth == 1 and char == b","):
                number += 1
                if number > RECORDS:
                    raise InputError(
                        f"log {path} has more than {RECORDS} records", hint="split it, and import the newest part"
                    )
                text = bytes(buffer[start : position - 1]).strip()
                if text or char == b"," or number > 1:
                    yield number, _document(text, path, number)
                start, values = position, 0
            elif depth == 1 and number == 0 and char == b"[":
                start = position
            if depth == 0:
                if (buffer[position:] + file.read(_CHUNK)).strip():
                    raise _not_a_log(path, number, "not JSON: something follows the list")
                return
        position = max(position, start)
        del buffer[:start]
        position, start = position - start, 0
        if len(buffer) > JSON_BYTES:
            raise _too_large(path, number + 1, f"longer than {JSON_BYTES >> 20} MB")
        chunk = file.read(_CHUNK)
        if not chunk:
            raise _not_a_log(path, number + 1, "not JSON: the list does not end")
        buffer += chunk


def _document(text: bytes, path: Path, number: int) -> Any:
    if len(text) > JSON_BYTES:
        raise _too_large(path, number, f"longer than {JSON_BYTES >> 20} MB")
    if _values(text) > VALUES:
        raise _too_large(path, number, f"more than {VALUES} values")
    try:
        return json_value(text, from_server=True)
    except ParseError as error:
        raise _not_a_log(path, number, str(error)) from error


def _not_a_log(path: Path, number: int, reason: str) -> InputError:
    return InputError(
        f"log {path}, record {number}: {reason}", hint="expected JSON lines, one JSON document, or the log of a server"
    )


def _too_large(path: Path, number: int, reason: str) -> InputError:
    return InputError(
        f"log {path}, record {number}: {reason}",
        hint="a record is one request with its response: write each on a line of its own, or as one item of a list",
    )


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _lines(first: bytes, file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    number, line = 1, first
    while line:
        if number > RECORDS:
            raise InputError(f"log {path} has more than {RECORDS} lines", hint="split it, and import the newest part")
        yield number, line
        number, line = number + 1, file.readline(JSON_BYTES + 1)


def _is_whole(line: bytes) -> bool:
    """Tell whether a line holds one JSON value; else a document begins that goes over several lines."""
    if _values(line) > VALUES:
        return True
    try:
        json_value(line, from_server=True)
    except ParseError:
        return line.rstrip().endswith(b"}")
    return True


def _value(text: bytes) -> Any:
    if len(text) > JSON_BYTES:
        return UnusableError(f"a line longer than {JSON_BYTES >> 20} MB")
    if _values(text) > VALUES:
        return UnusableError(f"a line with more than {VALUES} values: lists, objects, and what they hold")
    try:
        return json_value(text, from_server=True)
    except ParseError as error:
        return UnusableError(f"a line that is not JSON: {str(error).partition(' at ')[0]}")
