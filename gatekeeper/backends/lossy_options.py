"""Options and variables that make speculation lossy: what they do, and where in a command they may be written.

A dialect declares the ones of its server. A command line, the JSON and the shell script in it, a configuration file and
an environment all become names with values here, and one function compares these with the declared ones.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.text import quote

ACCEPTS = "accepts tokens that the target would not have sampled"
INVENTS = "invents acceptance instead of measuring it"
GREEDY = "decodes greedily at any temperature where it drafts"
DROPS = "drops prompt tokens, so the target answers another prompt"

_OPTION = re.compile(r"--?[A-Za-z][\w.+-]*")
_ASSIGNED = re.compile(r"(?s)([A-Za-z_]\w*)=(.*)")
_SCRIPT = re.compile(r"-\w*[cS]")
"""The option before a shell script: `sh -c`, `bash -lc`, `env -S`."""
_LOOSE = re.compile(
    r"""(?<![\w.-])([A-Za-z_][\w.-]{0,99})["']?\]?[ \t]{0,9}[:=][ \t]{0,9}["']?([^"',{}\[\]\s;)]{0,200})"""
)
"""A key with its value in YAML, or in JSON that is not valid; bounded, so that no text takes long to search."""
_JOINED = re.compile(r"(?s)-[A-Za-z]([A-Z_]\w*)=(.*)")
"""A variable right behind its option: `-eNAME=value` of docker, `-SNAME=value` of env."""
_FILE_OPTION = re.compile(r"(?i)--?(conf|.*config|.*-config-file|env-file|.*-preset)[\w-]*")
"""Options that name a file with more options or variables."""
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_OFF = ("", "false", "no", "n")
"""Values that switch an option off; a hint need not name them, since it says to remove the option."""
_FILE_MOST = 1 << 20
"""Bytes of a configuration file; one has a few thousand."""


@dataclass(frozen=True, slots=True)
class LossyOption:
    """An option, a JSON key or a variable, and the values with which speculation stays lossless."""

    name: str
    """An option or a key in lower case with hyphens, or an environment variable in upper case. May hold `*`."""
    effect: str
    """What any other value does."""
    lossless: tuple[str, ...] = ()
    """Without one the option must be removed. Numbers are compared as numbers."""

    @property
    def is_variable(self) -> bool:
        """Return whether it is an environment variable."""
        return self.name.isupper()

    def matches(self, written: "Written") -> bool:
        """Return whether *written* names it, in any spelling that servers accept."""
        if self.is_variable or written.is_variable:
            return self.is_variable and written.is_variable and fnmatchcase(written.name, self.name)
        name = _normalize_name(written.name)
        if name.startswith("no-"):  # switches it off
            return False
        return fnmatchcase(name, self.name) or (written.is_option and self._is_abbreviation(name))

    def _is_abbreviation(self, name: str) -> bool:
        """Return whether *name* is the beginning of its name, which argparse accepts where it is unique.

        Only beyond the first hyphen: `--mtp` and `--spec` may be options of their own.
        """
        return name != self.name and self.name.startswith(name) and "-" in name[:-1]

    def keeps_lossless(self, value: str | None) -> bool:
        """Return whether speculation is lossless with *value*; None is an option without a value."""
        if value is None:
            return False
        return any(value.strip().casefold() == allowed or _same_number(value, allowed) for allowed in self.lossless)


@dataclass(frozen=True, slots=True)
class Written:
    """A name with a value, and where it is written."""

    name: str
    value: str | None
    """None: an option without a value."""
    place: str
    is_variable: bool = False
    is_option: bool = False
    """It may be abbreviated, unlike a key of JSON."""


@dataclass(frozen=True, slots=True)
class Lossy:
    """An option that is written with a value that makes speculation lossy."""

    option: LossyOption
    written: Written

    @property
    def message(self) -> str:
        """Return where it is written, its value and what it does."""
        written = self.written
        value = "" if written.value is None else f" = {quote(written.value) or 'nothing'}"
        return f"{written.place} sets {quote(written.name)}{value}, which {self.option.effect}"

    @property
    def hint(self) -> str:
        """Return what to remove, or what to set instead."""
        verb = "unset" if self.written.is_variable else "remove"
        *values, last = [value for value in self.option.lossless if value not in _OFF] or [""]
        allowed = f"{', '.join(values)} or {last}" if values else last
        return f"{verb} {quote(self.written.name)}" + (f", or set it to {allowed}" if allowed else "")


def find_lossy(pairs: Iterable[Written], options: Sequence[LossyOption]) -> Lossy | None:
    """Return the first of *pairs* that makes speculation lossy; None where there is none."""
    for written in pairs:
        for option in options:
            if option.matches(written) and not option.keeps_lossless(written.value):
                return Lossy(option, written)
    return None


def find_lossy_setting(document: str | None, path: str, options: Sequence[LossyOption]) -> Lossy | None:
    """Return what in a running server's JSON *document* of its settings makes speculation lossy; None for nothing."""
    try:
        settings = json_value(document or "{}", from_server=True)
    except ParseError:
        return None
    return find_lossy(in_document(settings, f"the server's {path}"), options)


def in_variables(variables: Mapping[str, str], place: str) -> Iterator[Written]:
    """Yield the variables of an environment."""
    for name, value in variables.items():
        yield Written(name, value, place, is_variable=True)


def in_document(document: Any, place: str) -> Iterator[Written]:
    """Yield the keys of a JSON document, those of tables and of JSON inside it too.

    Null stands for the default and is left out.
    """
    if isinstance(document, list):
        for entry in document:
            yield from in_document(entry, place)
    if isinstance(document, str):
        yield from _in_json(document, place)
    if not isinstance(document, dict):
        return
    for name, value in document.items():
        yield from in_document(value, place)
        if value is not None and not isinstance(value, dict):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield Written(_last_part(str(name)), text, place)


def in_command(words: Sequence[str], place: str, *, folder: Path | None = None) -> Iterator[Written]:
    """Yield the options, variables and JSON keys of a command line, with those of a shell script inside it.

    A file of options or variables that it names is read, relative to *folder*; one that cannot be read has none.
    """
    option = ""
    for word, following in pairwise((*words, "")):
        if (joined := _JOINED.fullmatch(word)) is not None:
            yield from _in_value("", f"{joined[1]}={joined[2]}", place, folder)
        if (split := _split_option(word)) is None:
            yield from _in_value(option, word, place, folder)
            option = ""
            continue
        option, value = split
        if value is not None:
            yield from _in_value(option, value, place, folder)
        elif following and _split_option(following) is None:
            value = following
        yield Written(_last_part(option), value, place, is_option="." not in option)
        option = option if "=" not in word else ""


def _split_option(word: str) -> tuple[str, str | None] | None:
    """Return the name and the value of `--name=value`, a value of None for `--name`; None for any other word."""
    name, equals, value = word.partition("=")
    return (name, value if equals else None) if _OPTION.fullmatch(name) else None


def _in_value(option: str, text: str, place: str, folder: Path | None) -> Iterator[Written]:
    """Yield what is written inside one word, the value of *option* if there is one.

    JSON, the assignment of a variable, a shell script (also one for ssh, which has no option), a configuration file.
    """
    if text.lstrip().startswith(("{", "[", '"')):
        yield from _in_json(text, place)
    if len(text.split()) > 1 and (not option or _SCRIPT.fullmatch(option)):
        yield from in_command(_shell_words(text), place, folder=folder)
        yield from _loosely(_COMMENT.sub("", text), place)  # a program in another language than the shell's
    elif (assigned := _ASSIGNED.fullmatch(text)) is not None:
        yield Written(assigned[1], assigned[2], place, is_variable=True)
        yield from _in_value("", assigned[2], place, folder)
    if _FILE_OPTION.fullmatch(option):
        path = (folder or Path()) / text.removeprefix("@")
        yield from _loosely(_COMMENT.sub("", _text_of(path)), f"{quote(text)}, named in {place},")


def _in_json(text: str, place: str) -> Iterator[Written]:
    """Yield the keys of JSON in *text*, also where it is not valid; of text that is none, nothing."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return
    try:
        document = json_value(text)
    except ParseError:
        yield from _loosely(text, place)
        return
    if document != text:
        yield from in_document(document, place)


def _loosely(text: str, place: str) -> Iterator[Written]:
    for name, value in _LOOSE.findall(text):
        yield Written(_last_part(name), value, place, is_variable=name.isupper())


def _shell_words(script: str) -> list[str]:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation that does not end
        return script.split()


def _text_of(path: Path) -> str:
    """Return the beginning of a regular file; empty where it cannot be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_FILE_MOST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _last_part(name: str) -> str:
    """Return the last key of `--a.b.c+`, which sets one value of a JSON argument; an option as it is."""
    return name.rstrip("+").rpartition(".")[2]


def _normalize_name(name: str) -> str:
    return name.lstrip("-").replace("_", "-").casefold()


def _same_number(value: str, allowed: str) -> bool:
    try:
        return float(value) == float(allowed)
    except ValueError:
        return False
