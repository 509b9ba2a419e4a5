"""A log of requests: JSON lines, read one by one."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gatekeeper.canaries.logged_request import LoggedRequest, UnusableError, read_request
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import JSON_BYTES, ParseError, json_value
from gatekeeper.core.system.files import open_input

VALUES = 2_000_000
"""Values of one line, counted as its commas and opening brackets: JSON_BYTES of empty lists take gigabytes once they
are parsed. A long conversation has under a hundredth of it."""
LINES = 2_000_000
"""Lines that are read; a busy server's week."""


def read_log(path: Path) -> Iterator[tuple[int, LoggedRequest | UnusableError]]:
    """Yield the number of each line with its request; a line that has none is an UnusableError in its place."""
    try:
        with open_input(path) as file:
            for number, line in _lines(file, path):
                if line.strip():
                    yield number, _read_line(line)
    except FileNotFoundError:
        hint = "write the log to a file first: stdin is not read" if str(path) == "-" else "check the path"
        raise InputError(f"log {path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise InputError(f"log {path} is a folder", hint=f"name the files: {path}/*.jsonl") from None
    except OSError as error:
        hint = "check the file and its permissions"
        raise InputError(f"cannot read log {path}: {error.strerror or error}", hint=hint) from error


def _lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(JSON_BYTES + 1):
        number += 1
        if number > LINES:
            raise InputError(f"log {path} has more than {LINES} lines", hint="split it, and import the newest part")
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _read_line(line: bytes) -> LoggedRequest | UnusableError:
    if len(line) > JSON_BYTES:
        return UnusableError(f"a line longer than {JSON_BYTES >> 20} MB")
    if line.count(b",") + line.count(b"[") + line.count(b"{") > VALUES:
        return UnusableError(f"a line with more than {VALUES} values: lists, objects, and what they hold")
    try:
        return read_request(json_value(line, from_server=True))
    except ParseError as error:
        return UnusableError(f"a line that is not JSON: {str(error).partition(' at ')[0]}")
    except UnusableError as error:
        return error
