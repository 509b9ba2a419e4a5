"""Names cut out of what is published: of the user and the host, home folders, serial numbers, hardware addresses."""

import os
import pwd
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CUT, HOME = "***", "~"
"""What stands in the place of a name, and of a home folder; no letters, so that no name is a part of it."""
SHORTEST = 3
"""Characters of a name that is looked for by itself; a shorter one is cut out of paths alone."""
COMMON = frozenset({"root", "localhost"})
"""Names that are no person's and no machine's."""

_PATTERNS = (
    (re.compile(r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), CUT),
    (re.compile(r"(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b"), CUT),
    (re.compile(r"(?i)(serial[^\n=:>]{0,30}[=:>]\s*(?:<string>)?[\"<]?)[^\W_]{6,}"), rf"\g<1>{CUT}"),
    (re.compile(r"/(?:Users|home)/(?!Shared\b)[^/\s\"':,;<>]+"), HOME),
)
"""Identities of hardware, addresses of network cards, serial numbers, and the home folder of any user."""


def own_names() -> list[str]:
    """Return the names of this user and of this host; first the home folder."""
    names: list[str] = []
    with suppress(KeyError, RuntimeError):  # a user without an entry has no name
        entry = pwd.getpwuid(os.getuid())
        names = [str(Path.home()), entry.pw_name, entry.pw_gecos.partition(",")[0]]
    host = socket.gethostname()
    return [*names, host, host.partition(".")[0]]


def cut_names(document: Any, names: Sequence[str]) -> Any:
    """Return *document* (JSON) without *names*, whole words in any case, and without identities of any machine.

    A name that begins with a slash is a home folder.
    """
    homes = [re.escape(name) for name in names if name.startswith("/") and name != "/"]
    patterns = [(re.compile(rf"(?:{'|'.join(homes)})(?![^\W_])"), HOME), *_PATTERNS] if homes else _PATTERNS
    bare = {re.sub(r"^[\W_]+|[\W_]+$", "", name) for name in names}
    words = {name for name in bare if len(name) >= SHORTEST and name.lower() not in COMMON}
    # Longest first: a host is often called after its user.
    parts = [re.escape(word) for word in sorted(words, key=len, reverse=True)]
    pattern = re.compile(rf"(?i)(?<![^\W_])(?:{'|'.join(parts)})(?![^\W_])") if parts else None

    def cut_text(text: str) -> str:
        for identity, instead in patterns:
            text = identity.sub(instead, text)
        return pattern.sub(CUT, text) if pattern is not None else text

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {cut(key): cut(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [cut(part) for part in value]
        return cut_text(value) if isinstance(value, str) else value

    return cut(document)
