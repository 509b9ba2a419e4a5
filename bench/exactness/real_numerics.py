"""What differs on this machine by numerics alone: the little pair in llama-server and in MLX, with rounded weights.

    python -m bench.exactness.real_numerics

Plain answers are decoded token by token, and read again: in llama-server the beginning of an answer as a prompt, in MLX
passes of several tokens. And a draft answers the same prompts.
"""

import argparse
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm import load

from bench.gguf_pair import Server
from gatekeeper.backends.workers.answer_parts import generation
from gatekeeper.backends.workers.target_reader import TargetReader
from tools import write_gguf

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("json", "code", "prose", "math")
GGUF_KINDS = ("F32", "F16", "Q8_0", "Q4_0")
DRAFT_TOKENS = 3
PLACES = 12
"""Places of an answer whose beginning is read as a prompt."""


@dataclass(frozen=True, slots=True)
class Row:
    """One engine with one type of weights."""

    engine: str
    weights: str
    places: int
    moved: int
    """Places where the lead of the best token is not the same in both kinds of passes."""
    flips: int
    """Places where another token is the best."""
    widest: float
    """The largest change of a lead, in nats."""
    answers: int
    differing: int
    """Answers of the draft that are not plain decoding's."""

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        flips = f"{self.flips} ({self.flips / self.places:.2%})"
        shown = (self.engine, self.weights, self.places, self.moved, flips, f"{self.widest:.3g}")
        return (*map(str, shown), f"{self.differing} of {self.answers}")


@dataclass(slots=True)
class Counts:
    """Sums over the answers of one row."""

    changes: list[float]
    flips: int = 0
    answers: int = 0
    differing: int = 0

    def add(self, gaps: Iterable[float | None], other_gaps: Iterable[float | None]) -> None:
        """Add the leads of the same two tokens in both kinds of passes; None where a third one leads."""
        for gap, other in zip(gaps, other_gaps, strict=True):
            self.flips += other is None or other < 0
            if gap is not None:
                self.changes.append(gap if other is None else abs(gap - other))

    def row(self, engine: str, weights: str) -> Row:
        """Return the row of the table."""
        moved = sum(change > 0 for change in self.changes)
        widest = max(self.changes, default=math.nan)
        return Row(engine, weights, len(self.changes), moved, self.flips, widest, self.answers, self.differing)


def canaries(count: int) -> Iterator[dict[str, Any]]:
    """Yield the first *count* canaries of each kind."""
    for kind in KINDS:
        lines = (ROOT / "canaries" / "little" / f"{kind}.jsonl").read_text("utf-8").splitlines()
        yield from map(json.loads, lines[:count])


def mlx_row(count: int, bits: int | None, kind: str, width: int) -> Row:
    """Return what passes of *width* tokens change in MLX, and how many answers a draft changes."""
    model, tokenizer = load(str(ROOT / "models/little-target"))[:2]
    draft = load(str(ROOT / "models/little-draft"))[0]
    model.set_dtype(getattr(mx, kind))
    if bits is not None:
        nn.quantize(model, group_size=64, bits=bits)
    reader, counts = TargetReader(model, {}, memoryview(bytearray(8)).cast("Q")), Counts([])
    for canary in canaries(count):
        prompt = list(tokenizer.apply_chat_template(canary["messages"], add_generation_prompt=True))
        limit, ends = canary["max_tokens"], tokenizer.eos_token_ids
        plain = _until(generation.generate_step(mx.array(prompt), model, max_tokens=limit), ends)
        drafted = _until(
            generation.speculative_generate_step(
                mx.array(prompt), model, draft, num_draft_tokens=width - 1, max_tokens=limit
            ),
            ends,
        )
        read = reader.widths(prompt, plain, width)
        counts.add(read["gaps"], read["wide_gaps"])
        counts.answers, counts.differing = counts.answers + 1, counts.differing + (plain != drafted)
    return counts.row(f"MLX, {width} rows", kind if bits is None else f"{bits} bits, {kind}")


def _until(pieces: Iterable[Sequence[Any]], ends: set[int]) -> list[int]:
    tokens: list[int] = []
    for piece in pieces:
        tokens.append(int(piece[0]))
        if tokens[-1] in ends:
            break
    return tokens


def llama_row(program: str, count: int, kind: str, folder: Path) -> Row:
    """Return what reading as a prompt changes in llama-server, and how many answers a draft changes."""
    target, draft = (folder / f"{name}-{kind}.gguf" for name in ("target", "draft"))
    write_gguf.write(ROOT / "models/little-target", target, kind=kind)
    write_gguf.write(ROOT / "models/little-draft", draft)
    drafting = ("--model-draft", str(draft), "--spec-type", "draft-simple", "--spec-draft-n-max", str(DRAFT_TOKENS))
    plain, speculating = _Asked(program, target, folder / "log"), _Asked(program, target, folder / "log", *drafting)
    tokenizer, counts = load(str(ROOT / "models/little-draft"))[1], Counts([])
    try:
        for number, canary in enumerate(canaries(count)):
            prompt = list(tokenizer.apply_chat_template(canary["messages"], add_generation_prompt=True))
            answer = plain.answer(prompt, canary["max_tokens"])
            tokens = [place["id"] for place in answer]
            with_draft = [place["id"] for place in speculating.answer(prompt, canary["max_tokens"])]
            counts.answers, counts.differing = counts.answers + 1, counts.differing + (tokens != with_draft)
            chosen = np.random.default_rng(number).permutation(len(tokens))[:PLACES].tolist()
            leads = [_leads(answer[index], plain.answer(prompt + tokens[:index], 1)[0]) for index in chosen]
            counts.add(*zip(*leads, strict=True))
    finally:
        plain.close()
        speculating.close()
    return counts.row("llama-server, as a prompt", kind)


def _leads(decoded: dict[str, Any], read: dict[str, Any]) -> tuple[float, float | None]:
    """Return the lead of the best token over the second while decoding, and of the same two where they were read."""
    first, second = decoded["top_logprobs"][:2]
    here = {entry["id"]: entry["logprob"] for entry in read["top_logprobs"]}
    lead = first["logprob"] - second["logprob"]
    return lead, here[first["id"]] - here[second["id"]] if read["id"] in {first["id"], second["id"]} else None


class _Asked(Server):
    """A llama-server that answers requests for tokens with log-probabilities."""

    def answer(self, prompt: list[int], limit: int) -> list[dict[str, Any]]:
        """Return the places of a greedy answer."""
        request = {"prompt": prompt, "n_predict": limit, "temperature": 0, "cache_prompt": False, "n_probs": 5}
        places: list[dict[str, Any]] = self.ask("/completion", request)["completion_probabilities"]
        return places


def rows(count: int, report: Callable[[str], None] = print) -> list[Row]:
    """Measure every engine and type of weights that is here, *count* canaries of a kind each."""
    measured = [mlx_row(count, bits, "bfloat16", DRAFT_TOKENS + 1) for bits in (None, 4, 8)]
    program = environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if program is None:
        report("no llama-server: set LLAMA_SERVER, e.g. to what tools/build_llama_server prints")
        return measured
    with tempfile.TemporaryDirectory() as folder:
        return measured + [llama_row(program, count, kind, Path(folder)) for kind in GGUF_KINDS]


HEADER = ("engine", "weights", "places", "moved", "flips", "widest change", "answers that a draft changes")


def table(measured: Sequence[Row]) -> str:
    """Write the rows as a Markdown table."""
    lines = [HEADER, ("---",) * len(HEADER), *(row.cells() for row in measured)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12, help="canaries a kind (default: 12)")
    print(table(rows(parser.parse_args().count)))


if __name__ == "__main__":
    main()
