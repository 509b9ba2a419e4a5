"""The redrafter worker: recurrent drafting with Apple's ml-recurrent-drafter in MLX, for Vicuna and llama targets.

Runs as `python -m gatekeeper.backends.workers.redrafter TARGET [DRAFTER] [--beam-width W] [--dtype bf16]` in the
environment that has the repository's package. Written from `recurrent_drafting/mlx` (0a543d71): `generate` yields the
whole token array after each verify step. The first step also gives the prefill's own token; a beam of length L holds
that token and L - 1 drafted ones; a step that meets the stop token is not cut there. Plain decoding is the package's
own autoregressive loop, which is greedy.
"""

import argparse
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.workers.loop import WorkerChannel, find_versions
from gatekeeper.backends.workers.rounds import count_rounds

FACTS = BackendFacts(
    name="redrafter",
    module="recurrent_drafting",
    install="install ml-recurrent-drafter: gatekeeper explain worker-protocol says how",
)
INSTALL = (
    "git clone https://github.com/apple/ml-recurrent-drafter and install it with its mlx extra, "
    "or name a Python that has it: see: gatekeeper explain worker-protocol"
)
BEAM_WIDTH = 10
DRAFT_TOKENS = 3
"""The package's own default is a beam 10 wide and 4 long."""
_MODULES = ("modeling_drafter", "modeling_llama", "recurrent_drafting", "autoregressive")
_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)


def vicuna(messages: Iterable[dict[str, Any]]) -> str:
    """Write a chat in the format of Vicuna 1.1: roles in capitals, and the stop token after each answer."""
    system, turns = _SYSTEM, ""
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "system":
            system = content
        elif message["role"] == "assistant":
            turns += f" ASSISTANT: {content}</s>"
        else:
            turns += ("" if turns.endswith("</s>") else " ") + f"USER: {content.lstrip()}"
    return f"{system}{turns} ASSISTANT:"


def unfold(steps: list[tuple[int, list[int]]], prompt: int, stop: int | None) -> list[tuple[int, bool, int]]:
    """Return (time, drafted, token) of each token after the *prompt* ones, cut behind the *stop* token.

    The last token of a step is taken to be the target's own, and so is the first of all. Where the limit or the stop
    token cut a step short its last may have been a drafted one: acceptance is understated by at most one token an
    answer, never overstated.
    """
    tokens: list[tuple[int, bool, int]] = []
    length = prompt
    for at_ns, sequence in steps:
        fresh = sequence[length:]
        length = max(length, len(sequence))
        if stop is not None and stop in fresh:
            fresh = fresh[: fresh.index(stop) + 1]
        for place, token in enumerate(fresh):
            tokens.append((at_ns, bool(tokens) and place < len(fresh) - 1, token))
        if stop is not None and tokens and tokens[-1][2] == stop:
            break
    return tokens


class RedrafterWorker:
    """A llama target and its drafter."""

    def __init__(
        self, package: SimpleNamespace, options: argparse.Namespace, beat: memoryview, loading: list[str]
    ) -> None:
        self._package, self._width, self._beat = package, options.beam_width, beat
        self._mx = import_module("mlx.core")
        dtype = {"bf16": self._mx.bfloat16, "fp16": self._mx.float16, "fp32": self._mx.float32}[options.dtype]
        loading[:] = [options.target]
        self._tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(options.target)
        self._target = package.modeling_llama.load_model(options.target)
        self._target.set_dtype(dtype)
        self._model = None
        if options.draft is not None:
            loading[:] = [options.draft]
            drafter = package.modeling_drafter.load_model(options.draft)
            drafter.set_dtype(dtype)
            self._model = package.recurrent_drafting.ReDrafterModel(llm=self._target, drafter=drafter)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; what goes wrong while generating is the answer's fault."""
        timed: list[tuple[int, Any]] = []
        prompt: list[int] = []
        fault = None
        if request["seed"] is not None:
            self._mx.random.seed(request["seed"])
        self._mx.reset_peak_memory()
        sent = time.monotonic_ns()
        try:
            prompt = self._prompt(request)
            self._observe(self._generate(request, self._mx.array([prompt])), timed)
        except Exception as error:  # noqa: BLE001  whatever generation raises is a result
            fault = f"{type(error).__name__}: {error}"
        ended = time.monotonic_ns()
        stop = self._tokenizer.eos_token_id
        steps = [(at_ns, sequence[0].tolist()) for at_ns, sequence in timed]
        tokens = unfold(steps, len(prompt), stop)
        ids = [token for _, _, token in tokens]
        stopped = bool(ids) and ids[-1] == stop
        speculating = request["setting"]["draft"] is not None
        drafted = [flag for _, flag, _ in tokens[1:]]
        width = self._draft_tokens(request)
        # The beam is as long at the end of an answer as before it: no limit shortens the last proposal.
        rounds = count_rounds(drafted, draft_tokens=width, max_tokens=len(drafted) + width) if speculating else None
        return {
            "sent_ns": sent,
            "ended_ns": ended,
            "arrivals": [(at_ns, 1, speculating and flag, token) for at_ns, flag, token in tokens],
            "output_tokens": len(tokens),
            "text": self._tokenizer.decode(ids[:-1] if stopped else ids, skip_special_tokens=True),
            "finish": "stop" if stopped else "length" if len(ids) >= request["max_tokens"] else None,
            "prompt_tokens": len(prompt) or None,
            "rounds": rounds and asdict(rounds),
            "memory_active": self._mx.get_active_memory(),
            "memory_peak": self._mx.get_peak_memory(),
            "fault": fault,
        }

    def _observe(self, steps: Iterable[Any], timed: list[tuple[int, Any]]) -> None:
        """Collect each step when it is computed; nothing else happens during the measurement."""
        now, compute = time.monotonic_ns, self._mx.eval
        for sequence in steps:
            compute(sequence)
            timed.append((now(), sequence))
            self._beat[0] += 1

    def _generate(self, request: dict[str, Any], prompt: Any) -> Iterable[Any]:
        """Return the steps of an answer, each the whole token array so far; raise ValueError for missing options."""
        if beyond := [name for name in ("top_p", "top_k", "min_p") if request[name] is not None]:
            raise ValueError(f"ml-recurrent-drafter cannot sample with {', '.join(beyond)}")
        rules, limit = self._package.recurrent_drafting, prompt.shape[1] + request["max_tokens"]
        pad = self._tokenizer.pad_token_id
        special = rules.SpecialTokens(0 if pad is None else pad, self._tokenizer.eos_token_id)
        greedy = request["temperature"] == 0
        if request["setting"]["draft"] is not None:
            assert self._model is not None
            beam = self._package.modeling_drafter.BeamShape(self._width, self._draft_tokens(request) + 1)
            sampling = rules.SamplingArgs(1.0 if greedy else request["temperature"], greedy)
            steps: Iterable[Any] = self._model.generate(prompt, limit, beam, sampling, special)
            return steps
        if not greedy:
            raise ValueError("plain decoding of ml-recurrent-drafter is greedy; set temperature = 0")
        plainly = self._package.autoregressive.streaming_generate(self._target, prompt, limit, special)
        return (step[0] if isinstance(step, tuple) else step for step in plainly)

    def _prompt(self, request: dict[str, Any]) -> list[int]:
        if request["tools"]:
            raise ValueError("ml-recurrent-drafter has no chat template for tools")
        tokens: list[int] = list(self._tokenizer(vicuna(request["messages"])).input_ids)
        return tokens

    def _draft_tokens(self, request: dict[str, Any]) -> int:
        return int(request["setting"].get("num_draft_tokens") or DRAFT_TOKENS)


def main() -> None:
    """Load the package and the models, then answer until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--beam-width", type=int, default=BEAM_WIDTH)
    parser.add_argument("--dtype", choices=["bf16", "fp16", "fp32"], default="bf16")
    options = parser.parse_args()
    channel = WorkerChannel()

    def load(loading: list[str]) -> RedrafterWorker:
        try:  # after the greeting: a plan needs no package
            package = SimpleNamespace(**{name: import_module(f"recurrent_drafting.mlx.{name}") for name in _MODULES})
        except ImportError as error:
            channel.give_up(f"{type(error).__name__}: {error}", INSTALL)
        return RedrafterWorker(package, options, channel.beat, loading)

    channel.serve(
        {
            "name": "redrafter",
            "sees": ["arrivals", "token_count", "text", "token_ids", "rounds", "plain", "cold"],
            "knobs": ["draft", "num_draft_tokens", "max_tokens"],
            "shares_process": True,
            "versions": find_versions("recurrent-drafting", "mlx", "mlx-lm", "transformers", "numpy"),
        },
        load,
    )


if __name__ == "__main__":
    main()
