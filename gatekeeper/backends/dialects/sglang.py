"""The sglang dialect: SGLang's server, which reports the rounds of each request where it is asked for them.

Flags: docs.sglang.io, speculative decoding. Per-request counts: sgl-project/sglang pull requests 11441 (counted) and
33518 (in the chat protocol). Never run on a Mac.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gatekeeper.backends.dialects.counters import claims_at
from gatekeeper.backends.dialects.dialect import STREAMED, Dialect, ServerRequest, Start, chat_body, option
from gatekeeper.backends.http.chat import ChatResponse
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer

_OWN = {"ngram": "NGRAM", "mtp": "NEXTN"}
"""Drafts that are no files of their own, and SGLang's name for how they draft."""
_STANDALONE = "STANDALONE"
"""A draft that is a model of its own."""


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, "--model-path", start.target, *start.address, "--enable-cache-report")
    if start.draft is not None:
        yield from _drafting(start, start.draft)
    if not start.cache:
        yield "--disable-radix-cache"


def _drafting(start: Start, draft: str) -> Iterator[str]:
    """Yield the options of the draft; a chain of N tokens and the target's own are N + 1 tokens a round."""
    yield from ("--speculative-algorithm", start.subject.draft_method or _OWN.get(draft, _STANDALONE))
    yield from option("--speculative-draft-model-path", None if draft in _OWN else draft)
    if (tokens := start.knobs.get("num_draft_tokens")) is None:
        return
    if draft != "ngram":
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
    found = _counts(answer, response)
    return found if found.claims.rounds else replace(answer, claims=replace(found.claims, rounds=None))


DIALECT = Dialect(
    name="sglang",
    install="pip install sglang (in an environment of its own; name ENV/bin/python -m sglang.launch_server as program)",
    draft_hint="look for `speculative_algorithm` in its log, and update it: older ones report no counts per request",
    program=("python", "-m", "sglang.launch_server"),
    argv=argv,
    body=body,
    read=read,
    named="listed",
    packages=("sglang", "torch"),
    version_path="/get_server_info",
    version_key="version",
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    restart_knobs=("draft", "num_draft_tokens"),
    caches="start",
    own_drafts=frozenset(_OWN),
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD,
)
