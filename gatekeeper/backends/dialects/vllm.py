"""The vllm dialect: `vllm serve`, whose counters stand under /metrics for Prometheus.

Flags and counters: docs.vllm.ai, speculative decoding and production metrics. Never run on a Mac.
"""

import json
from collections.abc import Iterator
from typing import Any

from gatekeeper.backends.dialects.counters import claiming, count, spec_decode, within
from gatekeeper.backends.dialects.dialect import Counters, Dialect, Get, Start
from gatekeeper.backends.http.chat import ChatResponse
from gatekeeper.backends.process import HOST
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer

_OWN = frozenset({"ngram", "mtp", "suffix"})


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, start.target, "--host", HOST, "--port", str(start.port))
    if start.draft is not None:
        yield from ("--speculative-config", json.dumps(drafting(start)))
    if not start.cache:
        yield "--no-enable-prefix-caching"


def drafting(start: Start) -> dict[str, Any]:
    """Return its speculative config."""
    method, own = start.subject.draft_method, start.draft in _OWN
    config: dict[str, Any] = {"method": method or start.draft} if own else {"model": start.draft}
    if method is not None:
        config["method"] = method
    if (tokens := start.knobs.get("num_draft_tokens")) is not None:
        config["num_speculative_tokens"] = tokens
    return config


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add what the usage chunk claims, where the server was started with --per-request-spec-decode-metrics."""
    told = within(response.last, "metrics", "speculative_decoding")
    return claiming(
        answer,
        drafted=count(told.get("num_draft_tokens")),
        accepted=count(told.get("num_accepted_draft_tokens")),
        rounds=count(told.get("num_spec_steps")),
    )


def counters(get: Get) -> Counters | None:
    """Read the cumulative counters."""
    return spec_decode(get("/metrics"), "vllm:")


DIALECT = Dialect(
    name="vllm",
    install="pip install vllm (in an environment of its own; name it in subject.program)",
    draft_hint="look for `speculative_config` in its log: a config it does not know is passed over",
    program=("vllm", "serve"),
    argv=argv,
    read=read,
    counters=counters,
    named="listed",
    version_path="/version",
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    restart_knobs=("draft", "num_draft_tokens"),
    caches="start",
    own_drafts=_OWN,
    sight=Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.CLAIMED_ROUNDS | Sight.COLD,
)
