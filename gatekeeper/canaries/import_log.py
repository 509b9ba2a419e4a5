"""From a log of chat requests to canary sets and a soak profile with their mix."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w

from gatekeeper.canaries.logged_request import (
    SAMPLING,
    LoggedRequest,
    UnusableError,
    find_conversations,
    read_log,
    read_request,
)
from gatekeeper.canaries.redaction import Redactor
from gatekeeper.core.canary import json_schema
from gatekeeper.core.canary import parse as parse_canaries
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.text import inert_json

Json = dict[str, Any]

TIERS = (("short", 600), ("medium", 4000))
"""Each with the characters of messages and tools that it ends below; longer prompts are `long`."""
ROOM = 1.25
"""The limit of a canary without one of its own is this much over the recorded answer."""
STEP, LEAST_LIMIT = 16, 64
"""Limits are whole multiples of the one, and none is under the other: another model may use more words."""
CONVERSATIONS = "-conversations"
"""Ends the name of the set that holds a workload's conversations."""
REPORT, PROFILE = "import.json", "profile.toml"
NOT_SET = "not set"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(slots=True)
class _Workload:
    """The requests of one workload: all of them, and the first of those that are alike."""

    requests: list[LoggedRequest] = field(default_factory=list)
    first_by_prompt: dict[str, LoggedRequest] = field(default_factory=dict)

    def add(self, request: LoggedRequest) -> None:
        self.requests.append(request)
        self.first_by_prompt.setdefault(request.prompt, request)

    def choose(self, most: int) -> list[LoggedRequest]:
        """Return up to *most* distinct requests, evenly over the whole log."""
        distinct = list(self.first_by_prompt.values())
        if len(distinct) <= most:
            return distinct
        return [distinct[number * len(distinct) // most] for number in range(most)]


def import_logs(
    logs: Sequence[Path], out: Path, *, most: int = 128, conversations_most: int = 0,
    redact_with: str | None = None, force: bool = False,
) -> Json:  # fmt: skip
    """Write the canaries of *logs* into the folder *out*, and return what was done; *most* canaries a workload.

    Up to *conversations_most* conversations a workload become sets of their own, every turn a canary. *redact_with* is
    a command that each text goes through; without one nothing is removed.
    """
    _refuse_to_overwrite(logs, out, force=force)
    redactor = None if redact_with is None else Redactor(redact_with)
    workloads, unusable = _read_workloads(logs)
    if not workloads:
        reasons = "; ".join(f"{reason} ({first})" for reason, (_, first) in unusable[:3])
        raise InputError(
            f"no request in {', '.join(map(str, logs))} can become a canary: {reasons or 'no line is in it'}",
            hint='write one request a line as JSON, such as {"messages": [{"role": "user", "content": "…"}]}: '
            "see: gatekeeper explain your-canaries",
        )
    total = sum(len(workload.requests) for workload in workloads.values())
    sets: dict[str, list[Json]] = {}
    summaries = []
    for name, workload in sorted(workloads.items()):
        canaries = [
            _write_canary(_redact_request(request, redactor), f"{name}-{number:03d}", name)
            for number, request in enumerate(workload.choose(most), start=1)
        ]
        sets[f"{name}.jsonl"] = canaries
        summary = _summarise(name, canaries, workload, total)
        if conversations := find_conversations(workload.requests)[:conversations_most]:
            turns: list[Json] = []
            for number, conversation in enumerate(conversations, start=1):
                last = _redact_request(conversation[-1], redactor)
                turns += _write_turns(conversation, last, f"{name}-conversation-{number:03d}", name)
            file = f"{name}{CONVERSATIONS}.jsonl"
            sets[file] = turns
            summary["conversations"] = {"file": file, "count": len(conversations), "turns": len(turns)}
        summaries.append(summary)
    requests = [request for workload in workloads.values() for request in workload.requests]
    document: Json = {
        "schema": 1,
        "output": str(out),
        "logs": [str(log) for log in logs],
        "requests": total,
        "unusable": [{"why": reason, "count": count, "first": first} for reason, (count, first) in unusable],
        "repeated": total - sum(len(workload.first_by_prompt) for workload in workloads.values()),
        "lost": dict(Counter(name for request in requests for name in request.lost).most_common()),
        "sampling": _count_sampling(requests),
        "workloads": summaries,
        "redacted_with": redact_with,
        "profile": str(out / PROFILE),
    }
    texts = {file: _lines(canaries) for file, canaries in sets.items()}
    for file, text in texts.items():
        parse_canaries(text, file)
    texts[PROFILE] = _write_profile(out, document)
    texts[REPORT] = inert_json(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"
    _write_files(out, texts)
    return document


def _refuse_to_overwrite(logs: Sequence[Path], out: Path, *, force: bool) -> None:
    """Raise InputError where the canaries would replace a log, or without *force* canaries of before."""
    if inside := [log for log in logs if log.resolve().parent == out.resolve() and log.suffix == ".jsonl"]:
        hint = "choose another -o: the files *.jsonl of that folder are replaced"
        raise InputError(f"the log {inside[0].name} is in {out}, where canaries are to be written", hint=hint)
    if not force and out.is_dir() and (earlier := sorted(out.glob("*.jsonl"))):
        raise InputError(
            f"{out} holds canaries already: {earlier[0].name}",
            hint="a frozen set must not change under a run: choose another -o, or --force to replace it",
        )


def _read_workloads(logs: Sequence[Path]) -> tuple[dict[str, _Workload], list[tuple[str, tuple[int, str]]]]:
    """Return the requests of the logs by workload, and why lines can become no canary: how many, where the first is.

    The commonest reason comes first.
    """
    workloads: dict[str, _Workload] = defaultdict(_Workload)
    unusable: dict[str, tuple[int, str]] = {}
    for path in logs:
        for line, request in read_log(path, read_request):
            if isinstance(request, UnusableError):
                count, first = unusable.get(str(request), (0, f"{path.name}:{line}"))
                unusable[str(request)] = count + 1, first
            else:
                name = _NOT_IN_NAMES.sub("-", request.workload).strip("-._").lower()
                workloads[name[:60] or "all"].add(request)
    return workloads, sorted(unusable.items(), key=lambda reason: -reason[1][0])


def _redact_request(request: LoggedRequest, redactor: Redactor | None) -> LoggedRequest:
    return request if redactor is None else redactor.redact_request(request)


def _write_canary(request: LoggedRequest, name: str, workload: str) -> Json:
    fields: Json = {
        "id": name,
        "category": workload,
        "tier": next((tier for tier, end in TIERS if request.characters < end), "long"),
        "messages": list(request.messages),
        "max_tokens": _limit(request),
        "thinking": request.thinking,
        "tools": list(request.tools) or None,
        **request.options,
        "expect": propose_expectation(request),
    }
    return {key: value for key, value in fields.items() if value is not None}


def _write_turns(conversation: Sequence[LoggedRequest], last: LoggedRequest, name: str, workload: str) -> list[Json]:
    """Return the turns of a conversation as canaries; all are cut from its *last* one, so that each begins the next."""
    turns = []
    for turn, request in enumerate(conversation, start=1):
        fields: Json = {
            "id": f"{name}-{turn:02d}",
            "category": workload,
            "conversation": name,
            "turn": turn,
            "messages": list(last.messages[: len(request.messages)]),
            "max_tokens": _limit(request),
            "thinking": request.thinking,
            "tools": list(last.tools) or None,
            **last.options,
        }
        turns.append({key: value for key, value in fields.items() if value is not None})
    return turns


def _limit(request: LoggedRequest) -> int | None:
    """Return the most tokens of the answer: as requested, or a little over what was answered."""
    if request.answer is None:
        return request.max_tokens
    answered = max(LEAST_LIMIT, STEP * -(-int(request.answer.length * ROOM) // STEP))
    return answered if request.max_tokens is None else min(request.max_tokens, answered)


def propose_expectation(request: LoggedRequest) -> Json | None:
    """Return what to expect of the answer, where request and recorded answer show it; None: its speed alone is judged.

    A schema or a call counts only where the recorded answer keeps it: one that it breaks would fail both arms.
    """
    answer = request.answer
    if answer is not None and answer.calls:
        return _expect_calls(request, answer.calls)
    schema = _requested_schema(request)
    if schema is None:
        return None
    try:
        json_schema.check(schema)
        right = answer is None or json_schema.accepts(schema, json_value(answer.text))
    except ParseError:
        return None
    return {"json_schema": schema} if right else None


def _requested_schema(request: LoggedRequest) -> Json | None:
    """Return the schema that the request names in any server's field; of any object where it names none."""
    outputs = request.options.get("structured_outputs", {})
    for own in (request.options.get("json_schema"), request.options.get("guided_json"), outputs.get("json")):
        if isinstance(own, dict):
            return own
    form = request.options.get("response_format")
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_object":
        return {"type": "object"}
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return schema if isinstance(schema, dict) else None


def _expect_calls(request: LoggedRequest, calls: Sequence[Json]) -> Json | None:
    """Return the calls that were made, where each names an offered tool and has arguments that are an object."""
    offered = {tool["function"]["name"]: tool["function"].get("parameters") for tool in request.tools}
    expected = []
    for call in calls:
        name, schema = call["function"]["name"], offered.get(call["function"]["name"])
        try:
            arguments = json_value(call["function"]["arguments"] or "{}")
            if isinstance(schema, dict):
                json_schema.check(schema)
        except ParseError:
            return None
        is_valid = not isinstance(schema, dict) or json_schema.accepts(schema, arguments)
        if name not in offered or not is_valid or not isinstance(arguments, dict):
            return None
        # A list in an expectation is a choice of values: each argument is a choice of one.
        expected.append({"name": name, "arguments": {key: [argument] for key, argument in arguments.items()}})
    return {"tool_call": expected[0]} if len(expected) == 1 else {"tool_calls": expected}


def _summarise(name: str, canaries: Sequence[Json], workload: _Workload, total: int) -> Json:
    kinds = Counter(next(iter(canary["expect"])) if "expect" in canary else "speed only" for canary in canaries)
    size = median(request.characters for request in workload.first_by_prompt.values())
    return {
        "name": name,
        "file": f"{name}.jsonl",
        "requests": len(workload.requests),
        "share": round(len(workload.requests) / total, 4),
        "distinct": len(workload.first_by_prompt),
        "canaries": len(canaries),
        "expect": dict(kinds.most_common()),
        "tier": next((tier for tier, end in TIERS if size < end), "long"),
    }


def _count_sampling(requests: Sequence[LoggedRequest]) -> dict[str, dict[str, int]]:
    """Return how many requests had each value of a field of [sampling], the commonest first; none of unused fields."""
    counts = {}
    for name in SAMPLING:
        values = Counter(json.dumps(request.sampling[name]) if name in request.sampling else NOT_SET
                         for request in requests)  # fmt: skip
        if values.keys() != {NOT_SET}:
            counts[name] = dict(values.most_common())
    return counts


def _lines(canaries: Sequence[Json]) -> str:
    return "".join(inert_json(json.dumps(canary, ensure_ascii=False)) + "\n" for canary in canaries)


def _write_profile(out: Path, document: Json) -> str:
    files = ", ".join(Path(log).name for log in document["logs"][:5])
    return tomli_w.dumps(
        {
            "schema": 1,
            "name": _NOT_IN_NAMES.sub("-", out.resolve().name),
            "why": f"The mix of {document['requests']} requests imported from {files}.",
            "mix": {summary["name"]: round(100 * summary["share"], 2) or 0.01 for summary in document["workloads"]},
            "arrival": "closed",
            "idle": "0 s",
            "background": {"memory": "0 GB", "cpu": 0.0, "disk_read": "0 MB/s"},
        }
    )


def _write_files(out: Path, texts: dict[str, str]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("*.jsonl"):
            old.unlink()
        for name, text in texts.items():
            write_atomically(out / name, text)
    except OSError as error:
        message = f"cannot write {error.filename or out}: {error.strerror}"
        raise GatekeeperError(message, hint="choose another -o") from error
