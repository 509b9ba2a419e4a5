"""Records of live requests: `live.jsonl` without prompts, and on request a private file with them."""

import json
import os
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.backends.http.scores import choice_of
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.system.files import open_regular, write_all
from gatekeeper.live.ended_request import EndedRequest
from gatekeeper.live.watch_log import Log

LIMIT = 64_000_000
"""Bytes after which live.jsonl is renamed to live.jsonl.1: about 100,000 requests a file."""
REPLIES = ("content", "text")
REASONING = ("reasoning_content", "reasoning")


class LiveRecords:
    """Appends records; a disk that is full ends no request, it is reported once."""

    def __init__(
        self, path: Path, prompts: Path | None, wall: Callable[[], datetime], say: Callable[[str], None]
    ) -> None:
        """Open *path*, and *prompts* where prompts are kept; raise for a file that cannot be written."""
        self._say, self.trouble, self._lock = say, "", threading.Lock()
        self._log = Log(path, wall=wall, state=dict, limit=LIMIT)
        self._log.__enter__()
        self._prompts = None if prompts is None else _private(prompts)

    def write(self, kind: str, **record: Any) -> None:
        """Append one record."""
        try:
            with self._lock:
                self._log.write(kind, schema=1, **record)
            self.trouble = ""
        except GatekeeperError as error:
            self._fail(error.message)

    def write_request(self, ended: EndedRequest) -> None:
        """Append the line of a request, and its texts to the private file where prompts are kept."""
        self.write("request", **record_line(ended))
        if self._prompts is None or (record := completion(ended)) is None:
            return
        try:
            write_all(self._prompts, json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        except OSError as error:
            self._fail(f"prompts are not kept: {error.strerror}")

    @property
    def keeps_prompts(self) -> bool:
        """Return whether requests and answers are kept."""
        return self._prompts is not None

    def _fail(self, message: str) -> None:
        if message != self.trouble:
            self._say(f"{message}: requests are still answered")
        self.trouble = message

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
    pieces = (_parsed(line[5:]) for line in content.splitlines() if line.startswith(b"data:"))
    documents = [piece for piece in pieces if isinstance(piece, dict)] if streamed else [_parsed(content)]
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


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
