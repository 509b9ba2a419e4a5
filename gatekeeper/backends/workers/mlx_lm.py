"""The mlx worker: mlx-lm in a process of its own, one JSON line per answer.

Runs as `python -m gatekeeper.backends.workers.mlx_lm TARGET [DRAFT]`, by docs/reference/worker-protocol.md.
Nothing is written during an answer: times are kept in a list, so the pipe is not measured. Packages that decode in
another way with mlx-lm's models and tokenizers have their own `Decoding`.
"""

import argparse
import inspect
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm import load
from mlx_lm.sample_utils import make_sampler

from gatekeeper.backends.workers.answer_parts import Token, answer_parts, generation
from gatekeeper.backends.workers.loop import WorkerChannel, find_versions, release
from gatekeeper.backends.workers.rounds import count_rounds
from gatekeeper.backends.workers.target_reader import TargetReader
from gatekeeper.core.records import Rounds

READINGS = frozenset({"gap_after", "forced", "replay", "widths"})
"""Keys of requests for a reading, which is no answer."""
READS_FIRST = release("mlx-lm") >= (0, 31, 2)
"""Whether the target reads the prompt before the draft proposes, as mlx-lm does since 0.31.2."""
SEES = ("arrivals", "token_count", "text", "token_ids", "rounds", "plain", "cold")
CONDITIONS = ("temperature", "max_tokens", "thinking")


Timed = list[tuple[int, Any]]
"""The kept part of each piece, with its time."""


class Decoding(Protocol):
    """One way to decode one answer."""

    def pieces(self, prompt: list[int]) -> Iterable[Any]:
        """Generate."""

    def keep(self, piece: Any) -> Any:
        """Return the part of a piece that is kept; this runs during the measurement."""

    def tokens(self, timed: Timed) -> list[tuple[int, Token]]:
        """Return the tokens, each with its time, once the answer is over."""

    def rounds(self, drafted: list[bool]) -> Rounds | None:
        """Count the rounds from the flags of drafted tokens; None for plain decoding."""

    def prompt_read_at(self) -> int | None:
        """Return when the prompt had been read, but for its last token; None where that is not known."""


@dataclass(frozen=True)
class MlxLm:
    """Decoding as mlx-lm does it, plainly or with a draft model."""

    model: Any
    tokenizer: Any
    sampler: Any
    max_tokens: int
    draft: Any = None
    draft_tokens: int = 0
    reading: Mapping[str, int] = field(default_factory=dict)
    """Options of mlx-lm for reading prompts and for the cache, in both arms."""
    begun: list[int] = field(default_factory=list)
    """When the first token was sampled, of target or draft: then all of the prompt but its last token was read."""
    sampled: list[Any] = field(default_factory=list)
    """What was sampled, not read before the answer is over: each drafted token, then all of the pass that verified."""

    def pieces(self, prompt: list[int]) -> Iterable[Any]:
        """Generate pieces of one token each."""
        more = {} if self.draft is None else {"draft_model": self.draft, "num_draft_tokens": self.draft_tokens}
        pieces: Iterable[Any] = generation.stream_generate(
            self.model,
            self.tokenizer,
            prompt,
            max_tokens=self.max_tokens,
            sampler=self._sample_tokens,
            **more,
            **self.reading,
        )
        return pieces

    def _sample_tokens(self, logprobs: Any) -> Any:
        if not self.begun:
            self.begun.append(time.monotonic_ns())
        tokens = self.sampler(logprobs)
        if self.draft is not None:
            self.sampled.append(tokens)
        return tokens

    def prompt_read_at(self) -> int | None:
        """Return when the prompt had been read, but for its last token."""
        return self.begun[0] if self.begun and (self.draft is None or READS_FIRST) else None

    def keep(self, piece: Any) -> tuple[int, bool, str, str | None]:
        """Keep a token without its log-probabilities, which would hold a vocabulary-sized array each.

        A plain tuple takes half the time of a Token, and the garbage collector stops following it.
        """
        return piece.token, piece.from_draft, piece.text, piece.finish_reason

    def tokens(self, timed: Timed) -> list[tuple[int, Token]]:
        """Return what was kept: a piece is a token."""
        return [(at_ns, Token(*kept)) for at_ns, kept in timed]

    def rounds(self, drafted: list[bool]) -> Rounds | None:
        """Count the rounds of a speculating answer."""
        if self.draft is None:
            return None
        counted = count_rounds(drafted, draft_tokens=self.draft_tokens, max_tokens=self.max_tokens)
        proposals, chosen = self._sampled_by_round()
        return replace(counted, proposals=proposals, chosen=chosen)

    def _sampled_by_round(self) -> tuple[str, str]:
        """Return of each round what was sampled one by one, the drafted tokens, and then in the pass of several.

        The answer has no part in it, so that one which does not fit these rounds is seen.
        """
        rounds: list[str] = []
        chosen: list[str] = []
        drafted: list[str] = []
        for tokens in self.sampled:
            if tokens.size == 1:
                drafted.append(str(tokens.item()))
            else:
                rounds.append(" ".join(drafted))
                chosen.append(" ".join(map(str, tokens.tolist())))
                drafted = []
        return ";".join(rounds), ";".join(chosen)


def observe(pieces: Iterable[Any], keep: Callable[[Any], Any], timed: Timed, beat: memoryview) -> None:
    """Collect *pieces* with their times; nothing else happens during the measurement."""
    now = time.monotonic_ns
    for piece in pieces:
        timed.append((now(), keep(piece)))
        beat[0] += 1


def sampler_for(request: dict[str, Any]) -> Any:
    """Return mlx-lm's sampler for a request."""
    return make_sampler(
        request["temperature"],
        top_p=request["top_p"] or 0.0,
        min_p=request["min_p"] or 0.0,
        top_k=request["top_k"] or 0,
    )


class MlxWorker:
    """A loaded target, with or without a draft."""

    def __init__(
        self,
        target: str,
        draft: str | None,
        beat: memoryview,
        loading: list[str],
        reading: Mapping[str, int] | None = None,
    ) -> None:
        wire_once()
        self._beat = beat
        self._reading = reading or {}
        loading[:] = [target]
        self.model, self.tokenizer = load(target)[:2]
        self._draft = None
        if draft is not None:
            loading[:] = [draft]
            self._draft = load(draft)[0]
        step = inspect.signature(generation.speculative_generate_step)
        self._draft_tokens: int = step.parameters["num_draft_tokens"].default

    def prompt(self, request: dict[str, Any]) -> list[int]:
        """Return the tokens of the chat as the tokenizer's template writes them."""
        more = {} if request["thinking"] is None else {"enable_thinking": request["thinking"]}
        tokens = self.tokenizer.apply_chat_template(
            [_message(message) for message in request["messages"]],
            tools=request["tools"] or None,
            add_generation_prompt=True,
            tokenize=True,
            **more,
        )
        return list(tokens)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request, or return what the target makes of some tokens."""
        if not READINGS.isdisjoint(request):
            return self._read_again(request)
        return self.reply(request, self.decoding(request, speculating=bool(request["setting"]["draft"])))

    def decoding(self, request: dict[str, Any], *, speculating: bool) -> MlxLm:
        """Return mlx-lm's decoding for a request."""
        sampler, most = sampler_for(request), request["max_tokens"]
        if not speculating:
            return MlxLm(self.model, self.tokenizer, sampler, most, reading=self._reading)
        draft_tokens = request["setting"].get("num_draft_tokens", self._draft_tokens)
        return MlxLm(self.model, self.tokenizer, sampler, most, self._draft, draft_tokens, reading=self._reading)

    def reply(self, request: dict[str, Any], decoding: Decoding) -> dict[str, Any]:
        """Answer with *decoding*; what goes wrong while generating is the answer's fault."""
        now = time.monotonic_ns
        timed: Timed = []
        prompt: list[int] = []
        fault = None
        if request["seed"] is not None:
            mx.random.seed(request["seed"])
        mx.reset_peak_memory()
        sent = reading = now()
        try:
            prompt = self.prompt(request)
            reading = now()
            observe(decoding.pieces(prompt), decoding.keep, timed, self._beat)
        except Exception as error:  # noqa: BLE001  whatever generation raises is a result
            fault = f"{type(error).__name__}: {error}"
        ended = now()
        tokens = decoding.tokens(timed)
        pieces = [piece for _, piece in tokens]
        rounds = decoding.rounds([piece.drafted for piece in pieces])
        try:
            text, calls = answer_parts(self.tokenizer, prompt, pieces, request["tools"])
        except Exception as error:  # noqa: BLE001  a tool parser may fail on any text
            text, calls, fault = "", [], fault or f"unreadable answer: {type(error).__name__}: {error}"
        finish = pieces[-1].finish if pieces else None
        read_at = decoding.prompt_read_at() if len(prompt) > 1 else None
        return {
            "sent_ns": sent,
            "ended_ns": ended,
            "arrivals": [(at_ns, 1, piece.drafted, piece.id) for at_ns, piece in tokens],
            "output_tokens": len(tokens),
            "text": text,
            "tool_calls": calls,
            "finish": "tool_calls" if calls and finish == "stop" else finish,
            "prompt_tokens": len(prompt) or None,
            "prompt_read": len(prompt) - 1 if read_at is not None else None,
            "prompt_seconds": (read_at - reading) / 1e9 if read_at is not None else None,
            "rounds": rounds and asdict(rounds),
            "memory_active": mx.get_active_memory(),
            "memory_peak": mx.get_peak_memory(),
            "fault": fault,
        }

    def _read_again(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what the target makes of given tokens after the prompt; a failure is the reading's fault."""
        reader = TargetReader(self.model, self._reading, self._beat)
        try:
            prompt = self.prompt(request)
            if "gap_after" in request:
                return {"gap": reader.gap(prompt + request["gap_after"])}
            if "widths" in request:
                return reader.widths(prompt, request["widths"], request["width"])
            if "replay" in request:
                return reader.replay(request, prompt, request["rounds"])
            return self._find_partings(reader, request, prompt)
        except Exception as error:  # noqa: BLE001  whatever the model raises is a fault of the reading
            return {"fault": f"{type(error).__name__}: {error}"}

    def _find_partings(self, reader: TargetReader, request: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
        """Return where the target's greedy token is another than the given, and whether plain decoding ends there."""
        tokens = request["forced"]
        parted = reader.find_partings(prompt, tokens, request["width"])
        stops = [index for index, token in enumerate(tokens) if token in self.tokenizer.eos_token_ids]
        ended = stops == [len(tokens) - 1] if stops else len(tokens) == request["max_tokens"]
        return {"parted": parted, "ended": bool(ended and tokens)}


def wire_once() -> None:
    """Let the GPU keep the model's memory from now on, as `mlx_lm.server` does.

    `stream_generate` wires it for an answer and gives it back, which each first token would pay for: about 35 ms a
    gigabyte. With the limit set before, it is given back to the same limit.
    """
    if mx.metal.is_available():
        tell = getattr(mx, "device_info", None) or mx.metal.device_info  # older releases tell it by metal alone
        mx.set_wired_limit(int(tell()["max_recommended_working_set_size"]))


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return *message* as templates expect it: one text, and the arguments of its calls parsed."""
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


def main() -> None:
    """Load the models, then answer until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--prefill-chunk", type=int)
    parser.add_argument("--kv-bits", type=int)
    arguments = parser.parse_args()
    reading = {} if arguments.prefill_chunk is None else {"prefill_step_size": arguments.prefill_chunk}
    if arguments.kv_bits is not None:  # from the first token on: mlx-lm would begin at the 5,000th
        reading |= {"kv_bits": arguments.kv_bits, "quantized_kv_start": 0}
    channel = WorkerChannel()
    channel.serve(
        {
            "name": "mlx-lm",
            "sees": [*SEES, "logits", "forced", "prompt_time", "replay", "widths"],
            "knobs": ["draft", "num_draft_tokens", *CONDITIONS],
            "shares_process": True,
            "versions": find_versions("mlx", "mlx-lm", "transformers", "numpy"),
        },
        lambda loading: MlxWorker(arguments.target, arguments.draft, channel.beat, loading, reading),
    )


if __name__ == "__main__":
    main()
