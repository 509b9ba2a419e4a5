"""The lmstudio dialect: LM Studio's own REST API, which takes the draft with each request and counts accepted tokens.

Fields: lmstudio.ai/docs, REST API v0, `stats` of a chat completion (draft counters since 0.3.10). How many tokens a
round proposes is LM Studio's own choice. Never run against LM Studio itself.
"""

from gatekeeper.backends.backend_facts import ModelStore
from gatekeeper.backends.counters import claims_at
from gatekeeper.backends.dialect import STREAMED, Dialect, StatedWindow, body_with_draft
from gatekeeper.backends.models import locate
from gatekeeper.core.metrics.metric import Sight

DIALECT = Dialect(
    name="lmstudio",
    install='start its server (lms server start) and set url = "http://127.0.0.1:1234" in [subject]',
    draft_hint="LM Studio drops the draft where requests are batched: load the model for one request at a time, and "
    "check that the draft's vocabulary fits the target's",
    attached="lms",
    shipped="lmstudio",
    keeps_models=ModelStore(locate.in_lm_studio, "lms get"),
    window=StatedWindow("/api/v0/models", "data", ("loaded_context_length",), "the model's context length"),
    body=body_with_draft,
    read=claims_at(
        "stats",
        drafted="total_draft_tokens_count",
        accepted="accepted_draft_tokens_count",
        decode_seconds="generation_time",
    ),
    path="/api/v0/chat/completions",
    health="/v1/models",
    model_name="listed",
    switches=True,
    restart_knobs=(),
    sight=STREAMED | Sight.CLAIMED_ROUNDS,
)
