"""The ollama dialect: Ollama's own chat API, one JSON object per line; it does not report acceptance.

A model's draft is named in its Modelfile. Another `draft_num_predict` makes it reload the model; 0 decodes plainly.
Under a grammar its MLX runner drafts only since 2026-08-29. Fields: docs/api.md of ollama, read at fb307609.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gatekeeper.backends.backend_facts import ModelStore
from gatekeeper.backends.counters import claiming, number_of
from gatekeeper.backends.dialect import Dialect, ServerRequest, StatedWindow
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.chat_request import request_fields
from gatekeeper.backends.models import model_stores
from gatekeeper.core.canary import OPTIONS
from gatekeeper.core.records import Answer

_MOVED = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "stop": "stop",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repeat_penalty",
}
"""Fields of OpenAI's API that are in `options` here, under the name that they have there."""


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request: here the sampling fields are in `options`, and `format` is the schema itself."""
    fields = request_fields(request.resolved, model=request.model, think=request.resolved.thinking)
    fields.pop("stream_options")
    response_format = fields.pop("response_format", {})
    if response_format.get("type") == "json_object":
        fields["format"] = "json"
    elif response_format.get("type") == "json_schema":
        fields["format"] = response_format["json_schema"]["schema"]
    options = {option: fields.pop(name) for name, option in _MOVED.items() if name in fields}
    if request.draft is None:
        options["draft_num_predict"] = 0
    elif request.resolved.draft_tokens is not None:
        options["draft_num_predict"] = request.resolved.draft_tokens
    return fields | {"options": options}


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the durations claimed in the last line; loading a model during an answer spoils them: a fault."""
    if (_seconds(response.last, "load_duration") or 0.0) > _LOADED_S:
        return replace(answer, fault="setting not applied: the model was loaded during this answer")
    return claiming(
        answer,
        prompt_seconds=_seconds(response.last, "prompt_eval_duration"),
        decode_seconds=_seconds(response.last, "eval_duration"),
    )


_LOADED_S = 1.0
"""For a loaded model Ollama reports a few milliseconds here; a real load takes seconds."""


def _seconds(fields: Mapping[str, Any], name: str) -> float | None:
    value = number_of(fields.get(name))
    return None if value is None else value * 1e-9


DIALECT = Dialect(
    name="ollama",
    install="start it twice (ollama serve, with another port in OLLAMA_HOST), and set url and plain_url in [subject]",
    draft_hint="the model needs a DRAFT in its Modelfile, and a runner that reads draft_num_predict",
    attached="ollama",
    variables=("OLLAMA_",),
    shipped="ollama",
    keeps_models=ModelStore(model_stores.in_ollama, "ollama pull", only=True),
    window=StatedWindow("/api/ps", "models", ("context_length",), "OLLAMA_CONTEXT_LENGTH"),
    body=body,
    read=read,
    path="/api/chat",
    steered_paths=("/api/chat", "/api/generate"),  # requests to /v1 and below have no options
    health="/api/version",
    version_path="/api/version",
    model_name="listed",
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    options=frozenset({"response_format"} | set(OPTIONS) & set(_MOVED)),
    restart_knobs=("draft", "num_draft_tokens"),
    by_request=frozenset({"num_draft_tokens"}),
    own_drafts=frozenset({"modelfile"}),
)
