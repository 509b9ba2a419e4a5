"""The mlx worker: mlx-lm in a process of its own, one JSON line per answer; the only file that imports mlx_lm.

Runs as `python -m gatekeeper.backends.mlx_worker TARGET [DRAFT] --beat FD`. It reads requests from stdin, one JSON
object a line, and writes to stdout: `{"ready": …}` or `{"failed": …}` once, then for each request `{"begin": id}` and
`{"id": id, …}`. Nothing is written between the two: times are kept in a list and the pipe stays outside what is
measured. A counter in shared memory tells the parent that tokens still come. When stdin ends, the parent is gone and
the worker exits.
"""

import argparse
import inspect
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from queue import SimpleQueue
from typing import Any, NamedTuple, TextIO

import mlx.core as mx
from mlx_lm import load
from mlx_lm.sample_utils import make_sampler

from gatekeeper.backends.rounds import count_rounds

# `import mlx_lm.generate` yields the function of that name, not the module.
generation = import_module("mlx_lm.generate")


class Seen(NamedTuple):
    """A token as mlx-lm yielded it."""

    token: int
    drafted: bool
    text: str
    finish: str | None


def observe(pieces: Iterable[Any], times: list[int], seen: list[Seen], beat: memoryview) -> None:
    """Take *pieces* in, each with the time it came; this is all that happens inside a measured interval."""
    now = time.monotonic_ns
    for piece in pieces:
        times.append(now())
        # Kept without the log-probabilities, which would hold a vocabulary-sized array for every token.
        seen.append(Seen(piece.token, piece.from_draft, piece.text, piece.finish_reason))
        beat[0] += 1


class _Worker:
    """Loaded models and what answers with them."""

    def __init__(self, target: str, draft: str | None, beat: memoryview, loading: list[str]) -> None:
        self._beat = beat
        loading[:] = [target]
        self._model, self._tokenizer = load(target)[:2]
        self._draft = None
        if draft is not None:
            loading[:] = [draft]
            self._draft = load(draft)[0]
        step = inspect.signature(generation.speculative_generate_step)
        self._draft_tokens: int = step.parameters["num_draft_tokens"].default

    def prompt(self, ask: dict[str, Any]) -> list[int]:
        """Return the tokens of the chat as the tokenizer's template writes them."""
        more = {} if ask["thinking"] is None else {"enable_thinking": ask["thinking"]}
        tokens = self._tokenizer.apply_chat_template(
            [_message(one) for one in ask["messages"]],
            tools=ask["tools"] or None,
            add_generation_prompt=True,
            tokenize=True,
            **more,
        )
        return list(tokens)

    def answer(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; what goes wrong while generating is the answer's fault."""
        now = time.monotonic_ns
        speculating = bool(ask["draft"])
        draft_tokens = self._draft_tokens if ask["draft_tokens"] is None else ask["draft_tokens"]
        more = {"draft_model": self._draft, "num_draft_tokens": draft_tokens} if speculating else {}
        times: list[int] = []
        seen: list[Seen] = []
        prompt: list[int] = []
        fault = None
        sampler = make_sampler(
            ask["temperature"], top_p=ask["top_p"] or 0.0, min_p=ask["min_p"] or 0.0, top_k=ask["top_k"] or 0
        )
        if ask["seed"] is not None:
            mx.random.seed(ask["seed"])
        mx.reset_peak_memory()
        sent = now()
        try:
            prompt = self.prompt(ask)
            pieces = generation.stream_generate(
                self._model, self._tokenizer, prompt, max_tokens=ask["max_tokens"], sampler=sampler, **more
            )
            observe(pieces, times, seen, self._beat)
        except Exception as error:  # noqa: BLE001  whatever generation raises is what the subject did
            fault = f"{type(error).__name__}: {error}"
        ended = now()
        drafted = [one.drafted for one in seen]
        rounds = count_rounds(drafted, draft_tokens=draft_tokens, max_tokens=ask["max_tokens"]) if speculating else None
        try:
            text, calls = self._parts(prompt, seen, ask["tools"])
        except Exception as error:  # noqa: BLE001  a tool parser chokes on what the model wrote
            text, calls, fault = "", [], fault or f"unreadable answer: {type(error).__name__}: {error}"
        finish = seen[-1].finish if seen else None
        return {
            "sent_ns": sent,
            "ended_ns": ended,
            "times": times,
            "tokens": [one.token for one in seen],
            "drafted": drafted,
            "text": text,
            "tool_calls": calls,
            "finish": "tool_calls" if calls and finish == "stop" else finish,
            "prompt_tokens": len(prompt) or None,
            "rounds": rounds and asdict(rounds),
            "memory_active": mx.get_active_memory(),
            "memory_peak": mx.get_peak_memory(),
            "fault": fault,
        }

    def gap(self, ask: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
        """Return how far the target's best logit lies above its second after the prompt and *tokens*."""
        try:
            whole = mx.array(self.prompt(ask) + tokens)
            _, logprobs = next(generation.generate_step(whole, self._model, max_tokens=1))
        except Exception as error:  # noqa: BLE001  what the subject cannot tell is told as a fault
            return {"gap": None, "fault": f"{type(error).__name__}: {error}"}
        top: Any = mx.sort(logprobs.astype(mx.float32).flatten())[-2:].tolist()
        return {"gap": top[1] - top[0]}

    def _parts(
        self, prompt: list[int], seen: list[Seen], tools: list[dict[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """Return the text and the tool calls of an answer, told apart by the state machine of mlx-lm's own server."""
        machine, tokenizer = generation.TextStateMachine, self._tokenizer
        initial = "normal"
        if tokenizer.has_thinking and tokenizer.rfind_think_start(prompt) > tokenizer.rfind_think_end(prompt):
            initial = "reasoning"
        initial = tokenizer.response_initial_state or initial
        state = generation.make_text_state_machine(tokenizer).make_state(initial)
        segments: list[tuple[str | None, str]] = []
        for one in seen:
            if one.finish == "stop":
                # The stop token's text, and what was held back as the start of a marker, are no part of the answer.
                break
            state, split = machine.split(state, one.text)
            segments += split
            if one.finish == "length":
                state, flushed, name = machine.flush(state)
                segments.append((name, flushed))
        text, spans, before = "", [""], initial
        for name, said in segments:
            if name == "tool":
                spans[-1] += said
            elif name == "normal":
                if before == "tool":
                    spans.append("")
                text += said
            before = name or before
        return text, [call for span in spans if span for call in self._calls(span, tools)]

    def _calls(self, span: str, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            parsed = self._tokenizer.tool_parser(span, tools or None)
        except (ValueError, KeyError, TypeError):
            return []
        calls = parsed if isinstance(parsed, list) else [parsed]
        return [
            {
                "type": "function",
                "function": {**call, "arguments": json.dumps(call.get("arguments"), ensure_ascii=False)},
            }
            for call in calls
            if isinstance(call, dict)
        ]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return *message* as templates expect it: its parts joined to one text, the arguments of its calls parsed."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content)
    written = {**message, "content": content or ""}
    if message.get("tool_calls"):
        written["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return written


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function", {})
    arguments = function.get("arguments")
    return (
        {**call, "function": {**function, "arguments": json.loads(arguments)}} if isinstance(arguments, str) else call
    )


def _requests() -> SimpleQueue[dict[str, Any]]:
    """Return the requests of stdin as they come; its end ends this process, also in the middle of an answer."""
    queue: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            queue.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return queue


def main() -> None:
    """Load the models, then answer until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--beat", type=int, required=True)
    arguments = parser.parse_args()
    # Libraries print to stdout; what they say goes to the log, and the protocol keeps a descriptor of its own.
    lines: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(message: dict[str, Any]) -> None:
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    requests = _requests()
    beat = memoryview(mmap.mmap(arguments.beat, mmap.PAGESIZE)).cast("Q")
    loading: list[str] = []
    try:
        worker = _Worker(arguments.target, arguments.draft, beat, loading)
    except Exception as error:
        tell({"failed": f"{type(error).__name__}: {error}", "loading": loading})
        raise
    tell({"ready": True})
    while True:
        request = requests.get()
        tell({"begin": request["id"]})
        reply = worker.gap(**request["gap"]) if "gap" in request else worker.answer(request["ask"])
        tell({"id": request["id"], **reply})


if __name__ == "__main__":
    main()
