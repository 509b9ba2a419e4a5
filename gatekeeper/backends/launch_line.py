"""The launch line of a server as a policy shows it: its command and environment, without keys and local paths."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.hidden_keys import hide_keys, secret_parts

HIDDEN = "hidden"
_HEADER = re.compile(r"([\w-]+):\s*\S")
_VALUE = re.compile(
    r"""(?P<before>(?P<name>[\w-]+)["']?\s*[:=]\s*|(?P<option>--?[\w-]+)\s+)(?P<value>"[^"]*"|'[^']*'|[^\s,;&}"']+)"""
)
_LEAST = 6
"""Shorter values of secret variables are left alone elsewhere: they may be any word."""


def shown_command(words: Sequence[str], models: Mapping[str, Path]) -> list[str]:
    """Return a command with the *models* by name and its keys hidden."""
    return without_keys([_replace_paths(word, models) for word in words])


def without_keys(words: Sequence[str]) -> list[str]:
    """Return a command with its keys hidden."""
    words_shown: list[str] = []
    after_secret = False
    for word in words:
        hide = after_secret and not word.startswith("--")
        words_shown.append(HIDDEN if hide else _without_keys(word))
        after_secret = word.startswith("-") and "=" not in word and _is_secret(word)
    return words_shown


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how a server decodes; the value of one that holds a key is hidden."""
    relevant = {name: value for name, value in sorted(environment.items()) if name.startswith(_variables())}
    return {name: HIDDEN if _is_secret(name) else _without_keys(value) for name, value in relevant.items()}


@cache
def _variables() -> tuple[str, ...]:
    """Return how the names of variables begin that change how any server decodes."""
    return tuple(prefix for name in SERVERS for prefix in dialect_of(name).variables)


def _is_secret(name: str) -> bool:
    return any(secret_parts(name))


def _replace_paths(word: str, models: Mapping[str, Path]) -> str:
    if word == sys.executable:
        return "python"
    for name, path in models.items():
        word = word.replace(str(path), name)
    return word


def _without_keys(word: str) -> str:
    """Return *word* without the values of its own options, variables, headers and JSON fields that hold a key."""
    for name, value in os.environ.items():
        if len(value) >= _LEAST and _is_secret(name) and name != "PWD":  # the shell's name for the working folder
            word = word.replace(value, HIDDEN)
    if (header := _HEADER.match(word)) is not None and _is_secret(header[1]):
        return f"{header[1]}: {HIDDEN}"
    name, equals, _ = word.partition("=")
    if equals and not any(char.isspace() for char in name) and _is_secret(name):
        return f"{name}={HIDDEN}"
    return hide_keys(_VALUE.sub(_hide_value, word), ())


def _hide_value(match: re.Match[str]) -> str:
    return match["before"] + HIDDEN if _is_secret(match["name"] or match["option"]) else match[0]
