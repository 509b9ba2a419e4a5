"""The little pair on this machine: acceptance, speed against plain decoding and pass rate per workload."""

import argparse
import json
import math
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from mlx_lm import load, stream_generate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script, from anywhere

from models.corpus import WORKLOADS, passes

ROOT = Path(__file__).resolve().parents[1]
PLAIN = 0  # the arm without a draft


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer; seconds since the request, per token."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    rounds: int
    drafted: int
    accepted: int
    first_burst: int
    text: str

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first round; what came with that round was paid for before the clock began."""
        waited = self.seconds[-1] - self.seconds[0]
        return (len(self.tokens) - self.first_burst) / waited if len(self.tokens) > self.first_burst else math.nan


@dataclass(frozen=True, slots=True)
class Row:
    """One workload with one draft length; ratios are over plain decoding, geometric means over canaries."""

    workload: str
    num_draft_tokens: int
    canaries: int
    acceptance: float | None
    acceptance_length: float
    decode_ratio: float
    answer_ratio: float
    tokens_equal: float
    pass_rate: float
    decode_throughput: float


def bursts(from_draft: Iterable[bool]) -> list[int]:
    """Count the tokens each round delivered; a round ends with the target's own token, or with the answer."""
    counts, open_round = list[int](), False
    for drafted in from_draft:
        if open_round:
            counts[-1] += 1
        else:
            counts.append(1)
        open_round = drafted
    return counts


def ask(target: Any, tokenizer: Any, draft: Any, canary: dict[str, Any], draft_tokens: int) -> Answer:
    """Generate one answer and read the clock at every token."""
    prompt = tokenizer.apply_chat_template(canary["messages"], tools=canary.get("tools"), add_generation_prompt=True)
    speculation = {"draft_model": draft, "num_draft_tokens": draft_tokens} if draft_tokens else {}
    limit = canary["max_tokens"]
    tokens, seconds, from_draft, text = [], [], [], []
    asked = time.perf_counter()
    for piece in stream_generate(target, tokenizer, prompt, max_tokens=limit, **speculation):
        seconds.append(time.perf_counter() - asked)
        tokens.append(piece.token)
        from_draft.append(piece.from_draft)
        text.append(piece.text)
    delivered = bursts(from_draft)
    begins = accumulate(delivered, initial=0)
    return Answer(
        tokens=tuple(tokens),
        seconds=tuple(seconds),
        rounds=len(delivered),
        # mlx-lm drafts no further than the answer may go
        drafted=sum(min(draft_tokens, limit - begin) for begin, _ in zip(begins, delivered, strict=False)),
        accepted=sum(from_draft),
        first_burst=delivered[0],
        text="".join(text),
    )


def summarize(
    workload: str, draft_tokens: int, canaries: list[dict[str, Any]], answers: dict[int, list[Answer]]
) -> Row:
    """Compare one arm with the plain answers to the same canaries."""
    plain, arm = answers[PLAIN], answers[draft_tokens]
    drafted = sum(answer.drafted for answer in arm)
    accepted = sum(answer.accepted for answer in arm)
    speeds = [mine.decode_rate / other.decode_rate for mine, other in zip(arm, plain, strict=True)]
    totals = [
        (len(mine.tokens) / mine.seconds[-1]) / (len(other.tokens) / other.seconds[-1])
        for mine, other in zip(arm, plain, strict=True)
    ]
    kept = [passes(canary["expect"], answer.text) for canary, answer in zip(canaries, arm, strict=True)]
    equal = [mine.tokens == other.tokens for mine, other in zip(arm, plain, strict=True)]
    return Row(
        workload=workload,
        num_draft_tokens=draft_tokens,
        canaries=len(canaries),
        acceptance=accepted / drafted if drafted else None,
        acceptance_length=sum(len(answer.tokens) for answer in arm) / sum(answer.rounds for answer in arm),
        decode_ratio=geometric_mean(speed for speed in speeds if math.isfinite(speed)),
        answer_ratio=geometric_mean(totals),
        tokens_equal=sum(equal) / len(equal),
        pass_rate=sum(kept) / len(kept),
        decode_throughput=geometric_mean(answer.decode_rate for answer in arm if math.isfinite(answer.decode_rate)),
    )


def measure(target: Path, draft: Path, canaries: Path, count: int, lengths: list[int]) -> list[Row]:
    """Send every canary once per arm, one arm right after the other, in an order that rotates."""
    model, tokenizer = load(str(target))
    helper, _ = load(str(draft))
    arms, rows = [PLAIN, *lengths], []
    for workload in WORKLOADS:
        with (canaries / f"{workload}.jsonl").open(encoding="utf-8") as lines:
            chosen = [json.loads(line) for line in lines][:count]
        for arm in arms:
            ask(model, tokenizer, helper, chosen[0], arm)  # warm-up
        answers: dict[int, list[Answer]] = defaultdict(list)
        for turn, canary in enumerate(chosen):
            for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
                answers[arm].append(ask(model, tokenizer, helper, canary, arm))
        rows += [summarize(workload, arm, chosen, answers) for arm in arms]
    return rows


def table(rows: list[Row]) -> str:
    """Write the rows as a Markdown table."""
    lines = [
        "| workload | k | acceptance | tokens/round | decode ratio | answer ratio | equal | pass | decode tok/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        acceptance = "-" if row.acceptance is None else f"{row.acceptance:.2f}"
        lines.append(
            f"| {row.workload} | {row.num_draft_tokens or 'plain'} | {acceptance} | {row.acceptance_length:.2f} "
            f"| {row.decode_ratio:.2f} | {row.answer_ratio:.2f} | {row.tokens_equal:.0%} | {row.pass_rate:.0%} "
            f"| {row.decode_throughput:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the little pair in process, arms interleaved.")
    parser.add_argument("--target", type=Path, default=ROOT / "models/little-target")
    parser.add_argument("--draft", type=Path, default=ROOT / "models/little-draft")
    parser.add_argument("--canaries", type=Path, default=ROOT / "canaries/little")
    parser.add_argument("--count", type=int, default=24, help="canaries per workload (default: 24)")
    parser.add_argument("--lengths", default="2,3,4,6", help="draft lengths (default: 2,3,4,6)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    chosen = parser.parse_args()
    lengths = [int(length) for length in chosen.lengths.split(",")]
    rows = measure(chosen.target, chosen.draft, chosen.canaries, chosen.count, lengths)
    if chosen.json:
        versions = {name: version(name) for name in ("mlx", "mlx-lm", "numpy")}
        names = {"target": chosen.target.name, "draft": chosen.draft.name}
        print(
            json.dumps(
                {**names, "host": platform.platform(), "versions": versions, "rows": [asdict(row) for row in rows]}
            )
        )
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
