"""Counts of a prompt's tokens, by the target's own tokenizer or by the server: an upper bound where neither can."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gatekeeper.backends.dialect import Dialect
from gatekeeper.backends.http.response import parse_response
from gatekeeper.backends.http.stream import post
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.request_fields import prompt_texts

LIMIT_S = 1.0
"""Seconds in which a server must have counted: meanwhile the request waits."""
MOST_BYTES_A_TOKEN = 16
"""Bytes of its answer that are read for each byte of the prompt: it has a number for each token."""
MOST_HEAD = 1 << 14
"""Bytes of its answer around those numbers."""
LEFT_ALONE_S = 60.0
"""Seconds for which a server that did not count in time is not requested to: every prompt would wait for it."""
KEYS = ("Authorization", "x-api-key")
"""Headers of the client that a server may ask for, where it counts, too."""
OK = 200


class TokenCounter:
    """Counts the tokens of prompts."""

    def __init__(self) -> None:
        self._left_alone_until_s = -math.inf

    async def count(
        self, request: LiveRequest, headers: Mapping[str, str], dialect: Dialect, url: Address, target: Path | None
    ) -> LiveRequest:
        """Return a request with the tokens of its prompt's texts; as it was where nothing here counts them.

        It runs in a thread: the tokenizer outside of Python, or the server, works while other streams go on. What can
        be counted here is not requested of the server, which may say anything.
        """
        texts = prompt_texts(request.body or {})
        if texts is None:
            return request
        text, sent_headers = "\n".join(texts), {name: headers[name] for name in KEYS if name in headers}
        counters: list[Callable[[], int | None]] = []
        if target is not None:
            counters.append(partial(_count_here, target, text))
        if dialect.count_tokens is not None:
            ask = partial(self._ask, url, {**sent_headers, "Content-Type": "application/json"}, len(text.encode()))
            counters.append(partial(dialect.count_tokens, ask, text))
        for count in counters:
            tokens = await asyncio.to_thread(count)
            if tokens is not None:
                return replace(request, text_tokens=tokens)
        return request

    def _ask(
        self, url: Address, headers: Mapping[str, str], text_bytes: int, path: str, fields: Mapping[str, Any]
    ) -> Any:
        """Post *fields* to a path of the server and return the document that answers; None where none does."""
        begun_s = time.monotonic()
        if begun_s < self._left_alone_until_s:
            return None
        body, most = json.dumps(fields).encode(), MOST_HEAD + MOST_BYTES_A_TOKEN * text_bytes
        try:
            raw = post(url.at(path), body, headers=headers, timeout=LIMIT_S, deadline=LIMIT_S, most_bytes=most)
            if time.monotonic() - begun_s >= LIMIT_S:
                self._left_alone_until_s = time.monotonic() + LEFT_ALONE_S
            response = parse_response(raw)
            return json_value(response.body, from_server=True) if response.status == OK and not raw.broken else None
        except (GatekeeperError, ParseError):
            return None


def _count_here(target: Path, text: str) -> int | None:
    """Return the tokens of a text by the tokenizer in the target's folder; None where it cannot be read here."""
    tokenizer = _tokenizer_of(target)
    if tokenizer is None:
        return None
    # One text as a batch: only a batch is split without the interpreter's lock.
    (encoding,) = tokenizer.encode_batch([text], add_special_tokens=False)
    return len(encoding.ids)


@lru_cache(maxsize=4)
def _tokenizer_of(target: Path) -> Any:
    """Return the tokenizer in a model's folder; None where there is none, or nothing here that reads it."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 (it comes with mlx-lm)
    except ImportError:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception:  # noqa: BLE001 (it raises nothing more special, whatever the file has)
        return None
    return tokenizer
