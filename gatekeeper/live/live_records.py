"""A live request and what became of it, and its records: `live.jsonl` without prompts, a private file with them."""

import json
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.backends.dialect import Dialect
from gatekeeper.backends.http.scores import choice_of
from gatekeeper.backends.server_requests import describe_draft, drafted_in, read_claims
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.system.files import append_whole, open_regular
from gatekeeper.live.answer_meter import MOST_PARSED, AnswerMeter
from gatekeeper.live.live_evidence import Observation
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.request_routes import RequestDecision
from gatekeeper.live.server_load import IDLE, LoadMet
from gatekeeper.live.watch_log import Log

CLIENT_LEFT = "client left"
STOPPED = "the proxy was stopping"
UNREADABLE = "the body is no JSON object that can be read, so that the proxy cannot choose how it is decoded"
NOT_PLAIN = "at this path no server is known to decode plainly"
OWN_LIMIT = "the proxy has no more connections or memory for this request"
NOT_ITS_FAULT = frozenset({CLIENT_LEFT, STOPPED, UNREADABLE, NOT_PLAIN, OWN_LIMIT})
"""Ends of an answer that say nothing of the server."""
UNDECIDED = RequestDecision("unknown", "none", False, "")
MOST_COUNT = 2**53
"""Most tokens that a server may say it counted: a float holds every whole number up to here."""
LIMIT = 64_000_000
"""Bytes after which live.jsonl is renamed to live.jsonl.1: about 100,000 requests a file."""
REPLIES = ("content", "text")
REASONING = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class EndedRequest:
    """Filled in while a request is answered; `measure` completes it once it has ended."""

    method: str
    arrived: datetime
    meter: AnswerMeter
    request: LiveRequest
    decision: RequestDecision = UNDECIDED
    target: str = "plain"
    """The server that answered, or was tried last; `none` where the proxy itself refused it."""
    status: int | None = None
    fault: str | None = None
    """Why its answer is none, or not whole."""
    failed: str = ""
    """Why a server that was tried did not answer."""
    seconds: float = 0.0
    tokens: int | None = None
    prompt_tokens: int | None = None
    drafted: int | None = None
    """Tokens that its server says it drafted; None where it does not tell."""
    draft_claim: str | None = None
    """How it was drafted, as its server says; None where it does not say so."""
    is_unread: bool = False
    """What its server says of it could not be read."""
    id: str = ""
    """Random, and drawn at its end."""

    def measure(self, now_ns: int, dialect: Dialect | None) -> None:
        """Take the time and the tokens of an answer that has ended, by the *dialect* of its server."""
        self.id = secrets.token_hex(8)
        usage = self.meter.finish()
        self.seconds = (now_ns - self.meter.begun_ns) / 1e9
        self.tokens, self.prompt_tokens = _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens"))
        if dialect is not None:
            documents = list(self.meter.reports())
            is_long = not self.meter.streamed and self.meter.size > MOST_PARSED
            self.is_unread = self.meter.compressed or (is_long and not documents)
            claims = read_claims(dialect, documents)
            self.drafted, self.draft_claim = drafted_in(claims), describe_draft(claims)

    @property
    def is_not_plain(self) -> bool:
        """Return whether it was to be decoded plainly, and its server says that it was drafted."""
        return self.target == "plain" and self.draft_claim is not None

    @property
    def ttft(self) -> float | None:
        """Return the seconds to its first text; None where it has none."""
        first_ns = self.meter.first_ns
        return None if first_ns is None else (first_ns - self.meter.begun_ns) / 1e9

    @property
    def decoding(self) -> LoadMet:
        """Return what was in flight while it was written."""
        return self.meter.served.decoding if self.meter.served is not None else IDLE

    @property
    def is_evidence(self) -> bool:
        """Return whether it counts for or against its arm: the arm was drawn, and the end is the server's."""
        drawn = self.decision.arm is not None and self.fault not in NOT_ITS_FAULT and self.failed not in NOT_ITS_FAULT
        is_answer = self.status is None or not 400 <= self.status < 500
        # In both arms alike: what is left out in one of them alone would choose among its answers.
        is_known = not self.is_unread or bool(self.fault or self.failed)
        return drawn and is_answer and is_known and not self.is_not_plain


def observation(ended: EndedRequest) -> Observation:
    """Return what a request is evidence of."""
    decision, meter = ended.decision, ended.meter
    return Observation(
        workload=decision.workload,
        arm=decision.arm or "",
        epoch=decision.epoch,
        conversation=decision.conversation or ended.id,
        prompt_chars=ended.request.prompt_chars,
        streamed=meter.streamed,
        speed=meter.chars_per_s,
        ttft=ended.ttft,
        failed=bool(ended.fault or ended.failed),
        whole_speed=meter.chars / ended.seconds if meter.chars and ended.seconds > 0 else None,
        waiting=meter.served.waiting if meter.served is not None else IDLE,
        decoding=ended.decoding,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT else None


class LiveRecords:
    """Appends records; a disk that is full ends no request, it is reported once."""

    def __init__(self, path: Path, prompts: Path | None, say: Callable[[str], None]) -> None:
        """Open *path*, and *prompts* where prompts are kept; raise for a file that cannot be written."""
        self._say, self._lock = say, threading.Lock()
        self._troubles = {"records": "", "prompts": ""}
        """What was said last of each file; empty: it could be written."""
        self._log = Log(path, wall=SystemClock().wall, state=dict, limit=LIMIT)
        self._log.__enter__()
        self._prompts = None if prompts is None else _private(prompts)

    def write(self, kind: str, **record: Any) -> None:
        """Append one record."""
        try:
            with self._lock:
                self._log.write(kind, schema=1, **record)
            self._troubles["records"] = ""
        except GatekeeperError as error:
            self._fail("records", error.message)

    def write_request(self, ended: EndedRequest) -> None:
        """Append the line of a request, and its texts to the private file where prompts are kept."""
        self.write("request", **record_line(ended))
        if self._prompts is None or (record := completion(ended)) is None:
            return
        try:
            append_whole(self._prompts, json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            self._troubles["prompts"] = ""
        except OSError as error:
            self._fail("prompts", f"prompts are not kept: {error.strerror}")

    @property
    def keeps_prompts(self) -> bool:
        """Return whether requests and answers are kept."""
        return self._prompts is not None

    def _fail(self, file: str, message: str) -> None:
        if message != self._troubles[file]:
            self._say(f"{message}: requests are still answered")
        self._troubles[file] = message

    def close(self) -> None:
        """Close both files."""
        self._log.__exit__(None, None, None)
        if self._prompts is not None:
            os.close(self._prompts)


def record_line(ended: EndedRequest) -> dict[str, Any]:
    """Return the line of a request in live.jsonl, which holds no prompt."""
    decision, meter = ended.decision, ended.meter
    return _head(ended) | {
        "rule": decision.rule,
        "because": f"{decision.because}; {ended.failed}" if ended.failed else decision.because,
        "arm": decision.arm,
        "conversation": decision.conversation or None,
        "in_flight": ended.decoding.same,
        "in_flight_elsewhere": ended.decoding.elsewhere,
        "method": ended.method,
        "path": ended.request.path,
        "stream": meter.streamed,
        "status": ended.status,
        "fault": ended.fault,
        "drafted": ended.drafted,
        "prompt_chars": ended.request.prompt_chars,
        "answer_chars": meter.chars,
        "duration_s": ended.seconds,
        "bytes": meter.size,
        "digest": meter.digest,
    }


def completion(ended: EndedRequest) -> dict[str, Any] | None:
    """Return a request and its answer, to be kept; None where the answer is not whole or was not kept."""
    request, meter = ended.request, ended.meter
    is_whole = meter.keeps and ended.fault is None and ended.status == 200
    if not is_whole or request.body is None or not (content := meter.body()):
        return None
    # An uncertified workload keeps its name here: it may be the next to be certified.
    head = _head(ended) | {"workload": request.workload or ended.decision.workload}
    answer = answer_of(content, streamed=meter.streamed)
    return {"schema": 1, "kind": "completion", **head, "request": request.body, "response": answer}


def _head(ended: EndedRequest) -> dict[str, Any]:
    tokens, decode_s = ended.tokens, ended.meter.decode_s
    return {
        "id": ended.id,
        "time": stamp(ended.arrived),
        "workload": ended.decision.workload,
        "route": ended.target,
        "prompt_tokens": ended.prompt_tokens,
        "completion_tokens": tokens,
        "ttft_s": ended.ttft,
        "decode_tok_s": (tokens - 1) / decode_s if tokens and tokens > 1 and decode_s else None,
    }


def _private(path: Path) -> int:
    """Open a file that only its owner may read."""
    try:
        opened = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode=0o600)
        os.fchmod(opened, 0o600)
    except OSError as error:
        hint = "name a file in a folder that you may write to"
        raise InputError(f"--keep-prompts {path}: {error.strerror}", hint=hint) from error
    return opened


def answer_of(content: bytes, *, streamed: bool) -> dict[str, Any]:
    """Return the text, reasoning, tool calls and end of an answer, as its server wrote them."""
    pieces = (_parse_json(line[5:]) for line in content.splitlines() if line.startswith(b"data:"))
    documents = [piece for piece in pieces if isinstance(piece, dict)] if streamed else [_parse_json(content)]
    texts: dict[str, list[str]] = {"text": [], "reasoning": []}
    calls: dict[int, dict[str, str]] = {}
    finish = None
    for document in documents:
        choice = choice_of(document)
        finish = choice.get("finish_reason") or finish
        part = choice.get("delta") or choice.get("message") or choice
        if isinstance(part, dict):
            for name, keys in (("text", REPLIES), ("reasoning", REASONING)):
                texts[name] += [part[key] for key in keys if isinstance(part.get(key), str)]
            _add_calls(calls, part.get("tool_calls"))
    answer: dict[str, Any] = {name: "".join(parts) for name, parts in texts.items()}
    return {**answer, "tool_calls": [calls[number] for number in sorted(calls)], "finish_reason": finish}


def _add_calls(calls: dict[int, dict[str, str]], written: object) -> None:
    """Append what a part says of tool calls to those so far; a part without numbers has them in their order."""
    for number, call in enumerate(written if isinstance(written, list) else ()):
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
            index = call.get("index")
            texts = calls.setdefault(index if isinstance(index, int) else number, {"name": "", "arguments": ""})
            for key in texts:
                texts[key] += str(function.get(key) or "")


def _parse_json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
