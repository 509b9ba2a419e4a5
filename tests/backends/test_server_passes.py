"""Passes of a server, timed by prompts of few fresh tokens: on a server with planted times, and on what shows none."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gatekeeper.backends.http.stream import RawResponse
from gatekeeper.backends.server_passes import FreshTokens
from gatekeeper.core.records import NO_CONNECTION, PassTimes
from gatekeeper.core.verdict import Missing

FIXED_S, TOKEN_S, ANEW_S, BEGINNING = 0.004, 0.02, 0.003, "a beginning that is cached. " * 8
WIDTHS = (3, 1, 16, 2, 9, 4)


def pass_s(width: int) -> float:
    """The planted time of a pass."""
    return TOKEN_S * (0.9 + 0.1 * width)


@dataclass
class PlantedServer:
    """A server with a prompt cache on a clock of its own; a letter is a token, and so may be the space before it."""

    spaces_count: bool = False
    reads_last_alone: bool = False
    caches: bool = True
    longest: int = 1000
    usage: Callable[[dict[str, Any]], dict[str, Any]] = lambda usage: usage
    status: int = 200
    more: dict[str, Any] = field(default_factory=dict)
    now_ns: int = 0
    before: list[str] = field(default_factory=list)
    width: int = 0
    """Of the pass before, as a pass of another one is planned anew."""

    def tokens(self, prompt: str) -> list[str]:
        return list(prompt if self.spaces_count else prompt.replace(" ", ""))

    def __call__(self, body: bytes) -> RawResponse:
        request = json.loads(body)
        tokens = self.tokens(request["prompt"])
        shared = 0
        while self.caches and shared < min(len(tokens) - 1, len(self.before)) and tokens[shared] == self.before[shared]:
            shared += 1
        self.before = tokens
        fresh, written = len(tokens) - shared, min(request["max_tokens"], self.longest)
        read = pass_s(fresh) if not self.reads_last_alone else (pass_s(fresh - 1) if fresh > 1 else 0) + TOKEN_S
        read += ANEW_S * (fresh != self.width)
        self.width = fresh
        sent = self.now_ns
        self.now_ns += round(1e9 * (FIXED_S + read + (written - 1) * TOKEN_S))
        usage = self.usage(
            {
                "prompt_tokens": len(tokens),
                "completion_tokens": written,
                "prompt_tokens_details": {"cached_tokens": shared},
            }
        )
        text = b"data: {}\n\ndata: " + json.dumps({"choices": [], "usage": usage, **self.more}).encode() + b"\n\n"
        fields = {"Content-Type": "text/event-stream", "Content-Length": len(text)}
        lines = (f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in fields.items()), "", "")
        head = "\r\n".join(lines).encode()
        return RawResponse(sent, self.now_ns, head + text, (self.now_ns,), (len(head) + len(text),))


def timer(server: PlantedServer) -> FreshTokens:
    return FreshTokens(server, "a model", BEGINNING, 40, server.reads_last_alone)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("spaces", [False, True])
def test_planted_times_are_found_without_the_cost_of_a_request(*, alone: bool, spaces: bool) -> None:
    """
    The times of passes, of a plain token and of planning a pass anew are exact, however the server reads the last token
    and counts spaces.
    """
    server = timer(PlantedServer(reads_last_alone=alone, spaces_count=spaces))

    first, second = server.turn(WIDTHS), server.turn(WIDTHS)

    assert isinstance(first, PassTimes)
    assert first == second
    assert [TOKEN_S, ANEW_S] == pytest.approx([first.plain, first.anew])
    assert {width: pass_s(width) for width in WIDTHS} == pytest.approx(dict(first.passes), rel=1e-6)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (PlantedServer(caches=False), "prompt cache does not show"),
        (PlantedServer(usage=lambda usage: {**usage, "prompt_tokens_details": None}), "how many tokens"),
        (PlantedServer(usage=lambda _: {}), "how many tokens"),
        (PlantedServer(usage=lambda usage: {**usage, "prompt_tokens": True}), "how many tokens"),
        (PlantedServer(status=404), "HTTP 404"),
        (PlantedServer(more={"timings": {"draft_n": 3}}), "it drafts"),
        (PlantedServer(longest=2), "answers end"),
    ],
)
def test_a_server_that_shows_no_passes_gives_a_reason(server: PlantedServer, reason: str) -> None:
    """
    No cache, no counts, no such path, a draft and answers of two tokens: each is said, and nothing is timed.
    """
    missing = timer(server).turn(WIDTHS)

    assert isinstance(missing, Missing)
    assert reason in missing.because


def test_a_server_that_is_gone_gives_a_reason() -> None:
    """
    A connection that breaks between two turns ends the measurement with the kind of fault.
    """
    planted = PlantedServer()
    server = timer(planted)
    assert isinstance(server.turn(WIDTHS), PassTimes)
    server.post = lambda _: RawResponse(0, 0, broken=f"{NO_CONNECTION}: refused")

    missing = server.turn(WIDTHS)

    assert isinstance(missing, Missing)
    assert NO_CONNECTION in missing.because
