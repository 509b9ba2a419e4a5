"""The lmstudio dialect: LM Studio's own REST API, which takes the draft with each request and counts accepted tokens.

Fields: lmstudio.ai/docs, REST API v0, `stats` of a chat completion (draft counters since 0.3.10). How many tokens a
round proposes is LM Studio's own choice. The MTP heads of a GGUF model are switched where it is loaded (`lms load
--speculative-draft-mtp`, lms of June 2026), so drafting is a second instance of the model, under a name of its own.
Never run against LM Studio itself.
"""

from dataclasses import replace
from typing import Any

from gatekeeper.backends.backend_facts import ModelStore
from gatekeeper.backends.counters import claims_at
from gatekeeper.backends.dialect import (
    COMPLETIONS,
    STREAMED,
    Dialect,
    ServerRequest,
    StatedWindow,
    body_with_draft,
    chat_body,
)
from gatekeeper.backends.models import model_stores
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer

_MTP = "mtp"
"""The draft that is part of the target, and the end of the name of the instance that has it."""


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request, which names its draft or the instance that drafts with its own heads."""
    return chat_body(request) | {"model": _instance(request)} if request.draft == _MTP else body_with_draft(request)


def _instance(request: ServerRequest) -> str:
    return f"{request.model}-{_MTP}"


def of_its_instance(request: ServerRequest, answer: Answer) -> Answer:
    """Return a fault for an answer by another instance than the one that was requested."""
    name, answered = _instance(request), answer.claims.model
    if request.draft != _MTP or answered in {None, name}:
        return answer
    return replace(answer, fault=f"setting not applied: {answered} answered instead of {name}, which is not loaded")


DIALECT = Dialect(
    name="lmstudio",
    install='start its server (lms server start) and set url = "http://127.0.0.1:1234" in [subject]',
    draft_hint="LM Studio takes no draft where requests are batched (0.4.21 answers an error, older ones ignore it), or"
    " for a model that reads images: load the model for one request at a time, and check that the draft's vocabulary "
    "fits the target's; MTP heads need `lms load --speculative-draft-mtp`",
    attached="lms",
    shipped="lmstudio",
    keeps_models=ModelStore(model_stores.in_lm_studio, "lms get"),
    window=StatedWindow("/api/v0/models", "data", ("loaded_context_length",), "the model's context length"),
    body=body,
    read=claims_at(
        "stats",
        drafted="total_draft_tokens_count",
        accepted="accepted_draft_tokens_count",
        decode_seconds="generation_time",
    ),
    path="/api/v0/chat/completions",
    steered_paths=("/api/v0/chat/completions", COMPLETIONS),  # where draft_model is documented
    health="/v1/models",
    model_name="listed",
    switches=True,
    restart_knobs=(),
    own_drafts=frozenset({_MTP}),
    corrected=of_its_instance,
    sight=STREAMED | Sight.CLAIMED_ROUNDS,
)
