"""The keys of a request: masked wherever its server echoes them."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gatekeeper.core.hidden_keys import SECRET_NAME
from gatekeeper.core.records import Answer

_SECRET_HEADER = re.compile(r"(?i).*(?:authorization|key|token|secret)")
_SHORTEST = 6
"""Shorter words, such as `none` and `EMPTY`, are placeholders for a key, and may well occur in an answer."""
_LONG = 8
"""Characters from which a key is masked inside a longer word too."""
_LONG_VALUE = 16
"""Values of a query that are as long may be keys, whatever their name is; shorter ones may well occur in an answer."""


class Keys:
    """The keys that a request sends in its headers and its address."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Take the keys of a request to *url*, its key included."""
        self._found = _pattern(url, tuple(headers.items()))

    def mask(self, text: str) -> str:
        """Return *text* with a star for each character of a key."""
        return text if self._found is None else self._found.sub(lambda match: "*" * len(match[0]), text)

    def mask_bytes(self, raw: bytes) -> bytes:
        """Return what a server sent, masked and of the same length."""
        return raw if self._found is None else self.mask(raw.decode("latin-1")).encode("latin-1")

    def mask_answer(self, answer: Answer) -> Answer:
        """Return *answer* masked: its pieces may have held a part of a key each."""
        if self._found is None:
            return answer
        calls = json.dumps(answer.tool_calls)
        return replace(
            answer,
            text=self.mask(answer.text),
            reasoning=self.mask(answer.reasoning),
            tool_calls=tuple(json.loads(self.mask(calls))) if self._found.search(calls) else answer.tool_calls,
            finish=answer.finish and self.mask(answer.finish),
            claims=replace(answer.claims, model=answer.claims.model and self.mask(answer.claims.model)),
            fault=answer.fault and self.mask(answer.fault),
        )


@lru_cache(maxsize=16)
def _pattern(url: str, headers: tuple[tuple[str, str], ...]) -> re.Pattern[str] | None:
    parts = urlsplit(url)
    values = [value.split()[-1] for name, value in headers if _SECRET_HEADER.fullmatch(name) and value.split()]
    keys = {*values, *_keys_in(parts), user_of(parts) or ""}
    patterns = [
        re.escape(key) if len(key) >= _LONG else rf"(?<![A-Za-z0-9]){re.escape(key)}(?![A-Za-z0-9])"
        for key in sorted(keys, key=len, reverse=True)
        if len(key) >= _SHORTEST
    ]
    return re.compile("|".join(patterns)) if patterns else None


def user_of(parts: SplitResult) -> str | None:
    """Return the user and password of an address as HTTP's Basic scheme sends them; None where it has none."""
    if parts.username is None:
        return None
    return base64.b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()


def _keys_in(parts: SplitResult) -> list[str]:
    """Return the keys in an address, as they may be echoed by its server."""
    user = parts.password or parts.username or ""
    query = [value for name, value in parse_qsl(parts.query) if SECRET_NAME.match(name) or len(value) >= _LONG_VALUE]
    return [key for text in (user, *query) for key in {text, unquote(text)} if key]
