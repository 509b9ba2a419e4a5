"""The sglang dialect: SGLang's server, which reports the rounds of each request where it is asked for them.

Flags: docs.sglang.io, speculative decoding. Counts of each request:
sgl-project/sglang pull requests 11441 (counted) and 33518 (in the chat protocol). Never run on a Mac.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gatekeeper.backends.counters import claims_at
from gatekeeper.backends.dialect import (
    COMMON_OPTIONS,
    STREAMED,
    Dialect,
    ServerRequest,
    Start,
    StatedWindow,
    chat_body,
    option,
    request_scores,
)
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.scores import by_final_message
from gatekeeper.backends.lossy_options import ACCEPTS, GREEDY, INVENTS, LossyOption
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer

_OWN = {"ngram": "NGRAM", "mtp": "NEXTN"}
"""Drafts that are no files of their own, and SGLang's name for how they draft."""
_CHAINS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})
"""Algorithms of 0.5.23 that draft token by token; a look-up, DFLASH, DSPARK and UNO draft a block, without steps."""
_STANDALONE = "STANDALONE"
"""A draft that is a model of its own."""


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, "--model-path", start.target, *start.address, "--enable-cache-report")
    if start.draft is not None:
        yield from _drafting(start, start.draft)


def _drafting(start: Start, draft: str) -> Iterator[str]:
    """Yield the options of the draft; a chain of N tokens and the target's own are N + 1 tokens a round."""
    yield from ("--speculative-algorithm", start.subject.draft_method or _OWN.get(draft, _STANDALONE))
    yield from option("--speculative-draft-model-path", None if draft in _OWN else draft)
    if (tokens := start.length()) is None:
        return
    if (start.subject.draft_method or _OWN.get(draft, _STANDALONE)) in _CHAINS:
        yield from ("--speculative-num-steps", str(tokens), "--speculative-eagle-topk", "1")
    yield from ("--speculative-num-draft-tokens", str(tokens + 1))


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request, which asks for its own counts; an older server ignores the field."""
    return {**chat_body(request), "return_spec_tokens_details": True}


_counts = claims_at(
    "sglext",
    "spec_tokens_details",
    drafted="spec_num_proposed_drafts",
    accepted="spec_num_correct_drafts",
    rounds="spec_verify_ct",
)


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the counts of this request; plain decoding reports zeros, or nothing."""
    claiming = _counts(answer, response)
    return claiming if claiming.claims.rounds else replace(answer, claims=replace(claiming.claims, rounds=None))


LOSSY = (
    LossyOption("speculative-accept-threshold-*", ACCEPTS, lossless=("1.0",)),
    LossyOption("SGLANG_SIMULATE_ACC_*", INVENTS, lossless=("-1", "0", "", "false")),
    LossyOption("SIMULATE_ACC_*", INVENTS, lossless=("-1", "0", "", "false")),
    LossyOption("SGLANG_NGRAM_FORCE_GREEDY_VERIFY", GREEDY, lossless=("0", "", "false", "no", "n")),
)
"""Rows of srt/arg_groups/fields/spec.py and srt/environ.py, 0.5.23; older versions have variables without SGLANG_."""

DIALECT = Dialect(
    name="sglang",
    install="pip install sglang (in an environment of its own; name ENV/bin/python -m sglang.launch_server as program)",
    draft_hint="look for `speculative_algorithm` in its log, and update it: older ones report no counts per request",
    program=("python", "-m", "sglang.launch_server"),
    argv=argv,
    body=body,
    read=read,
    model_name="listed",
    options=COMMON_OPTIONS | {"regex", "ebnf"},
    packages=("sglang", "torch"),
    version_path="/server_info",
    version_key="version",
    settings_path="/server_info",
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    restart_knobs=("draft", "num_draft_tokens"),
    cache_off=("--disable-radix-cache",),
    model_options=frozenset({"--model-path", "--speculative-draft-model-path"}),
    window=StatedWindow(option="--context-length"),
    own_drafts=frozenset(_OWN),
    scored=request_scores,
    continued=partial(by_final_message, request_scores),
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.LOGPROBS,
    lossy=LOSSY,
)
