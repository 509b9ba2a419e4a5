"""Which format one record of a log has, and the conversations in it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gatekeeper.canaries.conversation import Conversation, UnusableError, from_request
from gatekeeper.canaries.otel_spans import spans
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.policy import WORKLOAD_HEADER

Json = dict[str, Any]

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""How SPEED-Bench begins a prompt that its prepare script has to fill in."""
UNSORTED = frozenset({"unknown", "default"})
"""What our proxy calls requests that name a workload without a route, and those that no rule fits."""


class UnfilledError(UnusableError):
    """A prompt of a benchmark whose text is still to be fetched from its source."""


def conversations(record: object) -> Iterator[Conversation | UnusableError]:
    """Yield each conversation of one record, and an error for each that cannot become a canary."""
    if not isinstance(record, dict):
        yield UnusableError("a record that is not an object")
    elif "resourceSpans" in record:
        yield from spans(record)
    elif {"question_id", "category"} <= record.keys() and record.keys() & {"turns", "multiturn"}:
        turns = record.get("turns", record.get("messages"))
        yield from _benchmark(turns if isinstance(turns, list) else [], record["category"])
    else:
        try:
            yield _conversation(record)
        except UnusableError as error:
            yield error


def _benchmark(turns: list[Any], category: object) -> Iterator[Conversation | UnusableError]:
    """Yield the conversation of a prompt of SPEED-Bench, Spec-Bench or MT-Bench, and an error for each later turn.

    *turns* are texts or messages of users, said one after another. The model's own answers belong between them, and
    the messages of a canary are fixed: so its prompt is the first turn.
    """
    messages = [{"role": "user", "content": turn} if isinstance(turn, str) else turn for turn in turns]
    if any(PLACEHOLDER in str(message) for message in messages):
        yield UnfilledError("a prompt that is not filled in: its text is to be fetched from its source")
        return
    later = messages[1:] if all(isinstance(turn, dict) and turn.get("role") == "user" for turn in messages) else []
    kept = messages[: len(messages) - len(later)]
    try:
        yield replace(from_request({"messages": kept}, workload=category), is_benchmark=True)
    except UnusableError as error:
        yield error
        return
    for _ in later:
        yield UnusableError("a later turn of a benchmark's prompt, which needs the answer to the turn before")


def _conversation(record: Json) -> Conversation:
    if isinstance(inner := record.get("standard_logging_object"), dict):
        record = inner
    if "call_type" in record or "model_parameters" in record:
        return _litellm(record)

    if "custom_id" in record and "body" not in record and "request" not in record:
        raise UnusableError("a response without its request: import the input file of the batch")
    for name in ("request", "body"):
        if name in record:
            return _exchange(record, _object(record[name]))
    if "digest" in record and "rule" in record:
        raise UnusableError("a record without its prompt: start the proxy with --keep-prompts, and import that file")
    # Prompt and answer stand beside each other.
    holds_answer = isinstance(record.get("choices"), list) or isinstance(record.get("output"), list)
    response = record if holds_answer else record.get("response", record.get("completion"))
    return from_request(record, response, workload=_workload(record))


def _exchange(record: Json, request: Json) -> Conversation:
    """Return the conversation of a record with a request, and maybe its response: our proxy's, a batch, a gateway's."""
    body = _object(request["body"]) if "body" in request else request
    response = record.get("response")
    if isinstance(response, dict) and "body" in response:
        response = response["body"]
    if isinstance(response, str) and response.lstrip().startswith("{"):
        response = _object(response)
    written = (request.get("headers"), record.get("headers"))
    headers = next((headers for headers in written if isinstance(headers, dict)), {})
    in_header = {str(name).lower(): value for name, value in headers.items()}.get(WORKLOAD_HEADER)
    workload = _workload(record) or in_header or _workload(body)
    if record.get("kind") == "completion" and workload in UNSORTED:
        workload = None
    return from_request(body, response, workload=workload, answer_tokens=record.get("completion_tokens"))


def _litellm(record: Json) -> Conversation:
    parameters = record.get("model_parameters")
    request = {**(parameters if isinstance(parameters, dict) else {}), "messages": record.get("messages")}
    request["model"] = record.get("model_group") or record.get("model")
    if record.get("status") == "failure":
        raise UnusableError("a request that failed")
    if isinstance(request["messages"], str):  # a data base writes it as text
        request["messages"] = _value(request["messages"])
    metadata = record.get("metadata")
    inner = metadata.get("requester_metadata") if isinstance(metadata, dict) else None
    tags = record.get("request_tags")
    workload = _workload(inner if isinstance(inner, dict) else {}) or _workload(record)
    if workload is None and isinstance(tags, list):
        workload = next((tag[9:] for tag in tags if isinstance(tag, str) and tag.startswith("workload:")), None)
    return from_request(
        request, record.get("response"), workload=workload, answer_tokens=record.get("completion_tokens") or None
    )


def _workload(record: Mapping[str, Any]) -> str | None:
    """Return the name of the workload in a record or its metadata."""
    metadata = record.get("metadata")
    for place in (record, metadata if isinstance(metadata, dict) else {}):
        if isinstance(name := place.get("workload"), str) and name.strip():
            return name
    return None


def _object(value: object) -> Json:
    parsed = _value(value) if isinstance(value, str) else value
    if not isinstance(parsed, dict):
        raise UnusableError("a request whose body is not an object")
    return parsed


def _value(text: str) -> Any:
    try:
        return json_value(text, from_server=True)
    except ParseError:
        raise UnusableError("a request that is not JSON") from None
