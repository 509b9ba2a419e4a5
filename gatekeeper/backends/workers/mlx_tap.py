"""The mlx tap: the real mlx_lm.server, with the rounds of each speculative answer counted.

Runs as `python -m gatekeeper.backends.workers.mlx_tap`, with the arguments of `mlx_lm.server`. For every token mlx-lm
knows whether the draft proposed it, and its server drops that; the tap records it and adds the counts to the usage
chunk as `usage.speculative`; `/metrics` has their sums over all requests. It changes nothing else, and exits where it
does not fit the installed mlx-lm.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from threading import Lock
from typing import Any

from gatekeeper.backends.workers.rounds import count_rounds

_HOOKS = (
    ("mlx_lm.server", "main", ()),
    ("mlx_lm.server", "stream_generate", ("draft_model", "max_tokens")),
    ("mlx_lm.server", "APIHandler.handle_completion", ("request", "stop_words")),
    ("mlx_lm.server", "APIHandler.completion_usage_response", ()),
    ("mlx_lm.server", "APIHandler.do_GET", ()),
    ("mlx_lm.generate", "speculative_generate_step", ("num_draft_tokens", "max_tokens")),
)
"""What the tap needs: module, name, and required parameters."""


PREFIX = "mlx_tap:"
METRICS = "/metrics"
_totals = {"draft_tokens": 0, "accepted_tokens": 0, "drafts": 0}
_totals_lock = Lock()


def add_totals(drafted: int, accepted: int, rounds: int) -> None:
    """Add one answer to the sums, which hold every request of this server."""
    with _totals_lock:
        for name, count in (("draft_tokens", drafted), ("accepted_tokens", accepted), ("drafts", rounds)):
            _totals[name] += count


def metrics() -> str:
    """Return the sums as Prometheus text, with the names that vLLM and llama-server have for them."""
    with _totals_lock:
        return "".join(f"{PREFIX}spec_decode_num_{name}_total {count}\n" for name, count in _totals.items())


class Tally(int):
    """A request's number of draft tokens, which also carries the flags of its tokens through the server to the tap."""

    flags: list[bool]
    max_tokens: int
    speculating: bool

    @classmethod
    def of(cls, number: int) -> "Tally":
        """Return *number* with an empty tally."""
        tally = cls(number)
        tally.flags, tally.max_tokens, tally.speculating = [], 0, False
        return tally


def missing_hooks() -> list[str]:
    """Name what this mlx-lm lacks."""
    lacks = []
    for module, path, parameters in _HOOKS:
        hook: Any = import_module(module)
        for name in path.split("."):
            hook = getattr(hook, name, None)
        taken = () if hook is None else signature(hook).parameters
        lacks += [f"{module}.{path}"] if hook is None else []
        lacks += [f"{module}.{path}({name})" for name in parameters if hook is not None and name not in taken]
    response = getattr(import_module("mlx_lm.generate"), "GenerationResponse", None)
    if "from_draft" not in getattr(response, "__dataclass_fields__", {}):
        lacks.append("mlx_lm.generate.GenerationResponse.from_draft")
    return lacks


def tap_stream(stream_generate: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a *stream_generate* that records in the request's tally which tokens the draft proposed."""

    def noting(*args: Any, **kwargs: Any) -> Iterator[Any]:
        tally = kwargs.get("num_draft_tokens")
        if not isinstance(tally, Tally):
            yield from stream_generate(*args, **kwargs)
            return
        tally.speculating = kwargs.get("draft_model") is not None
        tally.max_tokens = kwargs["max_tokens"]
        note = tally.flags.append
        for piece in stream_generate(*args, **{**kwargs, "num_draft_tokens": int(tally)}):
            note(bool(piece.from_draft))
            yield piece

    return noting


def install() -> None:
    """Put the tap into mlx_lm.server; exit with a message where it does not fit."""
    lacks = missing_hooks()
    if lacks:
        sys.exit(f"gatekeeper's tap does not fit this mlx-lm; it lacks: {', '.join(lacks)}")
    server: Any = import_module("mlx_lm.server")
    handler = server.APIHandler
    handle_completion, usage_response = handler.handle_completion, handler.completion_usage_response
    do_get = handler.do_GET

    def tallying(self: Any, request: Any, stop_words: Any) -> Any:
        self.num_draft_tokens = tally = Tally.of(self.num_draft_tokens)
        try:
            return handle_completion(self, request, stop_words)
        finally:  # also for a client that asks for no usage, or hangs up
            if tally.speculating and tally.flags:
                rounds = count_rounds(tally.flags, draft_tokens=int(tally), max_tokens=tally.max_tokens)
                add_totals(rounds.drafted, rounds.accepted, rounds.rounds)

    def usage_with_rounds(self: Any, *args: Any, **kwargs: Any) -> Any:
        response, tally = usage_response(self, *args, **kwargs), self.num_draft_tokens
        if isinstance(tally, Tally) and tally.speculating:
            rounds = count_rounds(tally.flags, draft_tokens=int(tally), max_tokens=tally.max_tokens)
            response["usage"]["speculative"] = {**asdict(rounds), "tokens": len(tally.flags)}
        return response

    def get_with_metrics(self: Any) -> None:
        if self.path != METRICS:
            do_get(self)
            return
        content = metrics().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    server.stream_generate = tap_stream(server.stream_generate)
    handler.handle_completion = tallying
    handler.completion_usage_response = usage_with_rounds
    handler.do_GET = get_with_metrics


def main() -> None:
    """Run mlx_lm's own server, tapped."""
    install()
    import_module("mlx_lm.server").main()


if __name__ == "__main__":
    main()
