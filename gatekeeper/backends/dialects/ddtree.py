"""The ddtree dialect: ddtree_server.py of DDTree-MLX, which answers in one piece and greedily.

It reports cycles and tokens per cycle (definition C), and not how many tokens its trees proposed. Without a stream
there are no latencies. Written from a fork of its source; never run on a Mac.
"""

from typing import Any

from gatekeeper.backends.counters import by_length, claiming, count, within
from gatekeeper.backends.dialect import Dialect, ServerRequest, chat_body
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.lossy_options import ACCEPTS, LossyOption
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request."""
    fields = chat_body(request)
    fields.pop("stream_options")
    budget = {} if request.resolved.draft_tokens is None else {"tree_budget": request.resolved.draft_tokens}
    return fields | {"stream": False} | budget


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims in its stats."""
    stats = within(response.last, "ddtree_stats")
    rounds = count(stats.get("cycles"))
    return claiming(answer, rounds=rounds, accepted=by_length(rounds, stats.get("avg_acceptance")))


LOSSY = (LossyOption("DDTREE_EXACT_COMMIT", ACCEPTS, lossless=("1", "true")),)

DIALECT = Dialect(
    name="ddtree",
    install='give the commands: command = ["python", "ddtree_server.py", "--model", "{target}", "--draft", "{draft}", '
    '"--port", "{port}"], and for plain_command a server such as mlx_lm.server',
    draft_hint="check tree_budget, and the draft it was started with",
    body=body,
    read=read,
    health="/v1/models",
    model_name="listed",
    knobs=frozenset({"num_draft_tokens"}),
    streams=1,
    sight=Sight.TOKEN_COUNT | Sight.TEXT,
    lossy=LOSSY,
    greedy_only=True,
)
