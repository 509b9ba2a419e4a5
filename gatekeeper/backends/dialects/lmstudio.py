"""The lmstudio dialect: LM Studio's own REST API, which takes the draft with each request and counts what it kept.

Fields: lmstudio.ai/docs, REST API v0, `stats` of a chat completion (draft counters since 0.3.10). How many tokens a
round proposes is LM Studio's own choice. Never run against LM Studio itself.
"""

from typing import Any

from gatekeeper.backends.dialects.counters import claiming, count, within
from gatekeeper.backends.dialects.dialect import Dialect, ServerRequest, chat_body
from gatekeeper.backends.http.chat import ChatResponse
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request; without `draft_model` the same model decodes plainly."""
    return chat_body(request) | ({} if request.draft is None else {"draft_model": request.draft})


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add what the last chunk's stats claim."""
    stats = within(response.last, "stats")
    return claiming(
        answer,
        drafted=count(stats.get("total_draft_tokens_count")),
        accepted=count(stats.get("accepted_draft_tokens_count")),
        decode_seconds=stats.get("generation_time"),
        prompt_seconds=stats.get("time_to_first_token"),
    )


DIALECT = Dialect(
    name="lmstudio",
    install='start its server (lms server start) and set url = "http://127.0.0.1:1234" in [subject]',
    draft_hint="LM Studio drops the draft where requests are batched: load the model for one request at a time, and "
    "look whether the draft's vocabulary fits the target's",
    body=body,
    read=read,
    path="/api/v0/chat/completions",
    health="/v1/models",
    named="listed",
    switches=True,
    restart_knobs=(),
    sight=Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.CLAIMED_ROUNDS,
)
