"""The rapid-mlx dialect: `rapid-mlx serve`, whose drafting is configured by one JSON argument.

Plain decoding and suffix drafts, which it does not count, were run on Linux with rapid-mlx 0.16.10; the rest was read
in its source. Without MTP heads in the target it exits at start with the reason. For some models MTP is on by default,
so plain decoding has to be requested; the depth adapts unless that is switched off. Other keys of its config, such as
`tree_budget` of ddtree and `min_confidence` of suffix, keep their defaults: an SLO's own `command` sets them.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gatekeeper.backends.counters import claiming, count, dropped_prompt, speculative_decoding, within
from gatekeeper.backends.dialect import STREAMED, Dialect, Start
from gatekeeper.backends.dialects import ddtree, vllm_mlx
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.lossy_options import DROPS, LossyOption
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer

_OWN = frozenset({"mtp", "suffix", "dspark"})
_FIXED_BLOCK = frozenset({"dflash"})
"""Methods that draft the block their draft was trained with: their config may not name a length, and the server of
0.16.10 ends at start where it does."""
_IGNORED = "has no effect: rapid-mlx accepts and ignores it"


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, start.target, *start.address, "--stream-interval", "1")
    yield from ("--no-spec-decode",) if start.draft is None else ("--speculative-config", json.dumps(drafting(start)))


def drafting(start: Start) -> dict[str, Any]:
    """Return its speculative config: its own method, or a draft's path and the SLO's method."""
    assert start.draft is not None
    if start.draft in _OWN:
        config: dict[str, Any] = {"method": start.draft}
    else:
        config = {"method": start.subject.draft_method or "dflash", "model": start.draft}
    if (tokens := start.length()) is not None:
        if config["method"] in _FIXED_BLOCK:
            message = f"rapid-mlx takes no draft length with {config['method']}, which drafts the block of its draft"
            raise InputError(message, hint="remove num_draft_tokens from [sweep] and [sweep.default]")
        config["num_speculative_tokens"] = tokens
    # A fixed depth must not change during the measurement.
    return config | ({"disable_auto_k": True} if config["method"] == "mtp" else {})


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims in the last chunk's metrics; an answer to a compressed prompt is a fault."""
    if compressed := within(response.last, "metrics", "prompt_compression"):
        original, remaining = (count(compressed.get(f"{which}_tokens")) for which in ("original", "kept"))
        return replace(answer, fault=dropped_prompt("prompt_compression", original=original, remaining=remaining))
    metrics = within(response.last, "metrics", "speculative_decoding")
    return claiming(answer, **speculative_decoding(metrics))


LOSSY = (*vllm_mlx.LOSSY, *ddtree.LOSSY, LossyOption("pflash", DROPS, lossless=("off",)))
"""Those of vllm-mlx, too: it is a fork of it, and takes its options; its method ddtree is that of DDTree-MLX."""

DIALECT = Dialect(
    name="rapid-mlx",
    install="pip install rapid-mlx (in an environment of its own; name it in subject.program)",
    draft_hint="pass --speculative-config: it ignores --draft-model and --num-draft-tokens",
    program=("rapid-mlx", "serve"),
    packages=("rapid-mlx", "mlx-lm", "mlx"),
    argv=argv,
    read=read,
    health="/v1/models",
    model_name="listed",
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    restart_knobs=("draft", "num_draft_tokens"),
    cache_off=("--disable-prefix-cache",),
    own_drafts=_OWN,
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD,
    lossy=LOSSY,
    ignored=(LossyOption("draft-model", _IGNORED), LossyOption("num-draft-tokens", _IGNORED)),
)
