"""Passes of a server's target, timed from outside: prompts whose last few tokens alone are fresh, behind a cached text.

A request costs the same whatever it asks, so differences of requests are the times of passes: of one with more fresh
tokens than another, and of an answer with more tokens than another. How many tokens were fresh is what the server says.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from gatekeeper.backends.http.response import HttpResponse, parse_response
from gatekeeper.backends.http.stream import RawResponse
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import PassTimes
from gatekeeper.core.text import quote
from gatekeeper.core.verdict import Missing

PATH = "/v1/completions"
LONG = 17
"""Tokens of the longer answers, whose difference to those of one token is plain decoding's time; the first one after a
prompt takes longer than the others, as its pass is planned anew."""
LEAST = 8
"""Tokens of a longer answer that ended early, at least."""
LETTERS = "QJBXZKVWFGHDMNPCRT"
"""Each is a token of its own in most vocabularies; the first one of a tail differs from those of the last 17."""
CHARACTERS = 4
"""Of a token, at most: the text has so many for each token of its beginning."""
FIELDS = {"temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
"""A server may look only every few milliseconds whether an answer that is not streamed has ended."""
TRIES, ANSWERS = 4, 12
"""Of a shape of tails, since some letters may be one token together; and of answers, some of which end early."""
OK = 200
NO_CACHE = "its prompt cache does not show: it says {} cached tokens of a repeated prompt"

Post = Callable[[bytes], RawResponse]
"""Posts a body to PATH."""


@dataclass(frozen=True, slots=True)
class _Timed:
    """One request: its seconds, how many tokens of the prompt were fresh, and how many the answer has."""

    seconds: float
    fresh: int
    cached: int
    tokens: int


class _NotTimed(Exception):  # noqa: N818  it becomes a reason, not an error of ours
    """A request that shows no time; its text says why."""


@dataclass(slots=True)
class FreshTokens:
    """Times the passes of one server, turn after turn."""

    post: Post
    model: str | None
    text: str
    """Of which the beginning that is cached is the first part."""
    context: int
    """About how many tokens that beginning has."""
    reads_last_alone: bool
    """It reads the last token of a prompt in a pass of its own."""
    tails: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By fresh tokens: how many letters with a space and how many without are so many, as the server has shown."""
    numbers: Iterator[int] = field(default_factory=count)

    def turn(self, widths: Sequence[int]) -> PassTimes | Missing:
        """Time a pass of each of *widths*, as far as its vocabulary allows them, and plain decoding around them.

        A width that comes again counts by its median.
        """
        try:
            if not self.tails:
                self._shorten()
                self._check_cache()
            return self._turn(widths)
        except _NotTimed as reason:
            return Missing(str(reason))

    def _turn(self, widths: Sequence[int]) -> PassTimes | Missing:
        extra = int(self.reads_last_alone)
        plain, times, anew, before = list[float](), dict[int, list[float]](), list[float](), 1
        for number, width in enumerate((1, *widths, 1)):
            if number in {0, 1 + len(widths) // 2, 1 + len(widths)}:
                plain.append(self._plain())
                before = 1
            if (pair := self._requests_of(width + extra)) is None:
                continue
            times.setdefault(width, []).append(pair[1])
            if width != before:
                anew.append(pair[0] - pair[1])
            before = width
        if 1 not in times or len(times) == 1:
            return Missing("its vocabulary splits each prompt that was tried into more than 17 fresh tokens")
        token, least = median(plain), median(times.pop(1))
        passes = {1: token} | {width: token + median(seconds) - least for width, seconds in times.items()}
        return PassTimes(token, passes, anew=median(anew))

    def _shorten(self) -> None:
        """Leave of the text what has about as many tokens as it should, as the server counts them."""
        first = self._request(1, 0)
        tokens = first.fresh + first.cached
        self.text = self.text[: max(1, len(self.text) * self.context // tokens)]

    def _check_cache(self) -> None:
        """Raise _NotTimed where a beginning that was just read is not cached."""
        self._request(1, 0)
        repeated = self._request(2, 0)
        if repeated.cached < repeated.fresh:
            raise _NotTimed(NO_CACHE.format(repeated.cached))

    def _requests_of(self, fresh: int) -> tuple[float, float] | None:
        """Return the seconds of two requests with so many *fresh* tokens; None where none can be written here.

        A server may plan a pass anew where the one before had another width, which rounds of one length do not: the
        second one is the time of a pass. A token or two more are fresh where the tail before had another shape.
        """
        shapes = [self.tails[fresh]] if fresh in self.tails else [(fresh, 0), (0, fresh), (1, fresh - 1)]
        for shape in shapes:
            before = self._request(*shape)
            for _ in range(TRIES):
                timed = self._request(*shape)
                self.tails.setdefault(timed.fresh, shape)
                if before.fresh == timed.fresh == fresh:
                    return before.seconds, timed.seconds
                before = timed
        return None

    def _plain(self) -> float:
        """Return plain decoding's seconds for a token: what a longer answer takes more than one of one token."""
        before = self._request(1, 0)  # the first request after another kind of work takes longer
        for _ in range(ANSWERS):
            least = self._request(1, 0)
            if least.fresh == before.fresh:
                longer = self._request(1, 0, LONG)
                more = longer.tokens - least.tokens
                if more >= LEAST and longer.fresh == least.fresh:
                    return (longer.seconds - least.seconds) / more
            before = least
        raise _NotTimed(f"its answers end before {LEAST} tokens, too early to time plain decoding")

    def _request(self, spaced: int, joined: int, tokens: int = 1) -> _Timed:
        """Request *tokens* tokens after the beginning and a new tail of *spaced* and *joined* letters."""
        first = next(self.numbers)
        letters = [LETTERS[(first + index) % len(LETTERS)] for index in range(spaced + joined)]
        tail = "".join(f" {letter}" for letter in letters[:spaced]) + "".join(letters[spaced:])
        body: dict[str, Any] = {"prompt": self.text + tail, "max_tokens": tokens, **FIELDS}
        raw = self.post(json.dumps(body | ({} if self.model is None else {"model": self.model})).encode())
        response = parse_response(raw)
        if raw.broken is not None or response.status != OK:
            reason = raw.broken or f"HTTP {response.status}: {response.body[:80]!r}"
            raise _NotTimed(quote(f"{PATH} does not answer: {reason}"))
        document = _last_with_usage(response)
        cached, read, written = (
            _number(document, "usage", *path)
            for path in (("prompt_tokens_details", "cached_tokens"), ("prompt_tokens",), ("completion_tokens",))
        )
        if cached is None or read is None or written is None:
            raise _NotTimed("it does not say how many tokens of a prompt were cached")
        if _number(document, "timings", "draft_n") or _number(document, "usage", "speculative", "drafted"):
            raise _NotTimed("it drafts: start it without a draft")
        return _Timed((raw.ended_ns - raw.sent_ns) / 1e9, read - cached, cached, written)


def _last_with_usage(response: HttpResponse) -> Any:
    """Return the last chunk of an answer that has its counts; None where none has."""
    for event in reversed(response.events):
        try:
            chunk = json_value(event.data, from_server=True)
        except ParseError:
            continue
        if isinstance(chunk, Mapping) and chunk.get("usage"):
            return chunk
    return None


def _number(document: Any, *path: str) -> int | None:
    """Return the whole number at *path* in nested objects; None where there is none."""
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if type(document) is int and document >= 0 else None
