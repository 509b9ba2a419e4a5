"""The mlx tap: the real mlx_lm.server, with the rounds of each speculative answer counted.

Runs as `python -m gatekeeper.backends.mlx_tap`, with the arguments of `mlx_lm.server`. For every token mlx-lm knows
whether the draft proposed it, and its server drops that; the tap records it and adds the counts to the usage chunk as
`usage.speculative`. It changes nothing else, and exits where it does not fit the installed mlx-lm.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from typing import Any

from gatekeeper.backends.workers.rounds import count_rounds

_HOOKS = (
    ("mlx_lm.server", "main", ()),
    ("mlx_lm.server", "stream_generate", ("draft_model", "max_tokens")),
    ("mlx_lm.server", "APIHandler.handle_completion", ("request", "stop_words")),
    ("mlx_lm.server", "APIHandler.completion_usage_response", ()),
    ("mlx_lm.generate", "speculative_generate_step", ("num_draft_tokens", "max_tokens")),
)
"""What the tap needs: module, name, and required parameters."""


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
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        known = () if found is None else signature(found).parameters
        lacks += [f"{module}.{path}"] if found is None else []
        lacks += [f"{module}.{path}({name})" for name in parameters if found is not None and name not in known]
    response = getattr(import_module("mlx_lm.generate"), "GenerationResponse", None)
    if "from_draft" not in getattr(response, "__dataclass_fields__", {}):
        lacks.append("mlx_lm.generate.GenerationResponse.from_draft")
    return lacks


def tapped(stream_generate: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
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

    def tallying(self: Any, request: Any, stop_words: Any) -> Any:
        self.num_draft_tokens = Tally.of(self.num_draft_tokens)
        return handle_completion(self, request, stop_words)

    def usage_with_rounds(self: Any, *args: Any, **kwargs: Any) -> Any:
        response, tally = usage_response(self, *args, **kwargs), self.num_draft_tokens
        if isinstance(tally, Tally) and tally.speculating:
            rounds = count_rounds(tally.flags, draft_tokens=int(tally), max_tokens=tally.max_tokens)
            response["usage"]["speculative"] = {**asdict(rounds), "tokens": len(tally.flags)}
        return response

    server.stream_generate = tapped(server.stream_generate)
    handler.handle_completion = tallying
    handler.completion_usage_response = usage_with_rounds


def main() -> None:
    """Run mlx_lm's own server, tapped."""
    install()
    import_module("mlx_lm.server").main()


if __name__ == "__main__":
    main()
