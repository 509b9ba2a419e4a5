"""The vllm dialect: `vllm serve`, whose counters are under /metrics for Prometheus.

Flags and counters: docs.vllm.ai, speculative decoding and production metrics. 0.32.0 was run on Linux,
plain and with a draft model; never on a Mac.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gatekeeper.backends.counters import (
    claiming,
    count,
    decode_seconds,
    spec_decode,
    speculative_decoding,
    with_all_rounds,
    within,
)
from gatekeeper.backends.dialect import (
    COMMON_OPTIONS,
    STREAMED,
    Counters,
    Dialect,
    Get,
    Start,
    StatedWindow,
    request_scores,
)
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.scores import Ask, by_final_message
from gatekeeper.backends.lossy_options import ACCEPTS, INVENTS, LossyOption
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer

_OWN = frozenset({"ngram", "mtp", "suffix"})
_CACHED_TOKENS = "--enable-prompt-tokens-details"
"""Reports how many tokens of a prompt were cached, which 0.33 does not by default."""
_PER_REQUEST = "--per-request-spec-decode-metrics"
"""Reports the counts of each request with its answer, in versions whose --help lists it."""


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, start.target, *start.address)
    if start.cache and _CACHED_TOKENS in start.help():
        yield _CACHED_TOKENS
    if start.draft is not None:
        yield from ("--speculative-config", json.dumps(drafting(start)))
        if _PER_REQUEST in start.help():
            yield from (_PER_REQUEST, "summary")


def drafting(start: Start) -> dict[str, Any]:
    """Return its speculative config."""
    method, is_part = start.subject.draft_method, start.draft in _OWN
    config: dict[str, Any] = {"method": method or start.draft} if is_part else {"model": start.draft}
    if method is not None:
        config["method"] = method
    if (tokens := start.length()) is not None:
        config["num_speculative_tokens"] = tokens
    return config


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims of this request, where it reports them."""
    claims = speculative_decoding(within(response.last, "metrics", "speculative_decoding"))
    return claiming(answer, decode_seconds=decode_seconds(response), **claims)


def counters(get: Get) -> Counters | None:
    """Read the cumulative counters."""
    return spec_decode(get("/metrics"), "vllm:")


LOSSY = (
    LossyOption("rejection-sample-method", ACCEPTS, lossless=("standard", "block", "strict", "probabilistic")),
    LossyOption("synthetic-acceptance-*", INVENTS),
    LossyOption("typical-acceptance-*", ACCEPTS),
    LossyOption("posterior-*", ACCEPTS),
    LossyOption("acceptance-method", ACCEPTS, lossless=("rejection_sampler",)),
    LossyOption("spec-decoding-acceptance-method", ACCEPTS, lossless=("rejection_sampler",)),
)
"""Rows of vllm/config/speculative.py: `fly` and `synthetic` of 0.33 are lossy. Older versions call `standard` strict
or probabilistic; the last four rows are of its first engine, V0."""


def count_tokens(ask: Ask, text: str) -> int | None:
    """Return how many tokens a text has."""
    answer = ask("/tokenize", {"prompt": text, "add_special_tokens": False})
    return count(answer.get("count")) if isinstance(answer, Mapping) else None


DIALECT = Dialect(
    name="vllm",
    install="pip install vllm (in an environment of its own; name it in subject.program)",
    draft_hint="look for `speculative_config` in its log: an unknown config is ignored",
    program=("vllm", "serve"),
    help="--help=all",  # without a value, only the names of the groups of options
    argv=argv,
    # Only where it reports them per request; else `counters`.
    read=read,
    count_tokens=count_tokens,
    counters=counters,
    corrected=with_all_rounds,  # it counts no step without a draft
    model_name="listed",
    options=COMMON_OPTIONS | {"structured_outputs"},
    version_path="/version",
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    restart_knobs=("draft", "num_draft_tokens"),
    cache_off=("--no-enable-prefix-caching",),
    variables=("VLLM_", "CUDA_VISIBLE_DEVICES"),
    window=StatedWindow(option="--max-model-len"),
    own_drafts=_OWN,
    scored=request_scores,
    continued=partial(by_final_message, request_scores),
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.LOGPROBS,
    lossy=LOSSY,
)
