"""The mtplx dialect: MTPLX, whose draft is the target's own MTP heads, switched with each request.

For clients that it knows by name (OpenCode, Open WebUI, Pi …) it ignores the fields of a request, whatever its headers
allow. Where a turn finds no cache, `cache_miss_reason` in its stats says why; it is not read. Written from the source
of mtplx 2.12.2 (server/openai.py, server/request_policy.py, cli.py, launch_lane.py). On Linux it exits at start,
because it loads a library of macOS. Its answers are untested.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gatekeeper.backends.counters import claiming, claims_at, count, decode_seconds, within
from gatekeeper.backends.dialect import COMPLETIONS, STREAMED, Dialect, Get, ServerRequest, Start, chat_body, option
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import Answer
from gatekeeper.core.text import quote

_SETTINGS = "/v1/mtplx/settings"


def argv(start: Start) -> Iterator[str]:
    """Yield the command line, without the sessions on disk, which would reuse those of an earlier run."""
    yield from (*start.program, "--model", start.target, *start.address)
    yield from ("--stream-interval", "1")
    yield from option("--depth", start.length())
    if not start.cache:
        yield from ("--ssd-session-cache", "off")


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request: `ar` decodes plainly, although the heads are loaded."""
    mode = {"generation_mode": "ar"} if request.draft is None else {"generation_mode": "mtp"}
    depth = {} if request.resolved.draft_tokens is None else {"depth": request.resolved.draft_tokens}
    return chat_body(request) | mode | depth


_CLAIMS = claims_at(
    "mtplx_stats",
    drafted="drafted_tokens",
    accepted="accepted_drafts",
    rounds="verify_calls",
    tried_by_position="drafted_by_depth",
    accepted_by_position="accepted_by_depth",
    cached_tokens="cached_tokens",
    prompt_seconds="prompt_eval_time_s",
)


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims in its stats; an answer that was decoded with another depth is a fault."""
    stats = within(response.last, "mtplx_stats")
    used, requested = count(stats.get("mtp_depth")), count(stats.get("requested_mtp_depth"))
    if used is not None and requested is not None and used != requested:
        return replace(answer, fault=f"setting not applied: depth {used} instead of {requested}")
    mode = stats.get("generation_mode")
    drafting = mode == "mtp" if isinstance(mode, str) else None  # it is there without counts, too
    return claiming(_CLAIMS(answer, response), decode_seconds=decode_seconds(response), drafting=drafting)


def after_answer(get: Get, request: ServerRequest, answer: Answer) -> Answer:
    """Return a fault where the depth that a request names adapts all the same, by a policy of the server."""
    if request.knobs.get("num_draft_tokens") is None:
        return answer
    try:
        settings = within(json_value(get(_SETTINGS) or "{}", from_server=True))
    except ParseError:
        return answer
    policy = settings.get("adaptive_policy_effective")
    if policy is None or policy == "none":
        return answer
    reason = settings.get("adaptive_policy_reason") or f"adaptive_policy_effective is {policy}"
    return replace(answer, fault=f"setting not applied: the depth adapts ({quote(str(reason))})")


DIALECT = Dialect(
    name="mtplx",
    install="pip install mtplx (in an environment of its own; name it in subject.program)",
    draft_hint="serve with MTP loaded (--load-mtp, not --no-mtp), and allow requests to choose: "
    "MTPLX_CLIENT_CONTROLS_DEFAULT=honor",
    program=("mtplx", "serve"),
    packages=("mtplx", "mlx-lm", "mlx"),
    argv=argv,
    body=body,
    read=read,
    headers={"X-MTPLX-Allow-Client-Controls": "1"},
    steered_paths=(COMPLETIONS, "/v1/completions"),  # /v1/messages and /v1/responses pass no mode on
    client_hints=("user-agent", "x-client-name", "x-mtplx-client", "x-openwebui-*"),
    client_hint_fields={"metadata": {"client": None, "client_label": None}},
    switches=True,
    variables=("MTPLX_",),
    shipped="mtplx",
    restart_knobs=(),
    after_answer=after_answer,
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    own_drafts=frozenset({"mtp"}),
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.PROMPT_TIME,
)
