"""What observing costs: decode speed under our worker against a bare loop over mlx-lm, paired and interleaved.

    python bench/observer_effect.py --target models/little-target [--draft models/little-draft] [--pairs 40] [--json]

Both sides are a process with the same models, driven over the same kind of pipe; the bare one runs mlx-lm's
`stream_generate` in the plainest loop there is, and takes its time from the first token to the last. One process works
at a time and the order of each pair is drawn. The ratio (worker over bare) is the median of the pairs', which a busy
moment of the machine does not move, with a 95 % bootstrap interval. Exit code 0: the whole interval meets the goal;
1: all of it misses it; 3: unproven, use more pairs or a quieter machine. It also prints the cost of the worker's own
loop, timed alone over prepared tokens: free of the machine's noise, but without effects that only decoding has.
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

from gatekeeper.backends import open_backend
from gatekeeper.backends.http.chat import resolve
from gatekeeper.backends.process import environment
from gatekeeper.backends.workers.mlx_lm import MlxLm, observe
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, SamplingParameters
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.subject import Subject

GOAL = 0.995
RESAMPLES = 2000

BARE = """
import json, sys, time
import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler
model, tokenizer = load(sys.argv[1])
draft = load(sys.argv[2])[0] if len(sys.argv) > 2 else None
print("ready", flush=True)
for line in sys.stdin:
    ask = json.loads(line)
    mx.random.seed(ask["seed"])
    more = {"draft_model": draft, "num_draft_tokens": ask["draft_tokens"]} if ask["draft"] else {}
    prompt = tokenizer.apply_chat_template(ask["messages"], add_generation_prompt=True)
    first, count, sampler = None, 0, make_sampler(ask["temperature"])
    for piece in stream_generate(
        model, tokenizer, prompt, max_tokens=ask["max_tokens"], sampler=sampler, **more
    ):
        first = first or time.monotonic_ns()
        count += 1
    print(json.dumps([count, time.monotonic_ns() - first]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of observing one arm."""

    arm: str
    pairs: int
    tokens: int
    worker_tokens_per_s: float
    bare_tokens_per_s: float
    ratio: float
    lo: float
    hi: float


def loop_cost_ns(tokens: int = 200_000) -> float:
    """Return what the worker's loop costs per token beyond an empty one, the least of seven tries."""
    piece = SimpleNamespace(token=1, from_draft=False, text=" a", finish_reason=None)
    beat = memoryview(bytearray(8)).cast("Q")
    keep = MlxLm(None, None, None, tokens).keep

    def spent(work: Callable[[], object]) -> int:
        began = time.perf_counter_ns()
        work()
        return time.perf_counter_ns() - began

    def empty() -> None:
        for _ in repeat(piece, tokens):
            pass

    ours = min(spent(lambda: observe(repeat(piece, tokens), keep, [], beat)) for _ in range(7))
    return (ours - min(spent(empty) for _ in range(7))) / tokens


class Bare:
    """The process without us."""

    def __init__(self, folders: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", BARE, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(with_package=True),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def speed(self, ask: DecodeRequest) -> tuple[int, float]:
        """Return the tokens of one answer and its decode tokens per second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(resolve(ask))).encode() + b"\n")
        self._process.stdin.flush()
        tokens, span_ns = json.loads(self._process.stdout.readline())
        return tokens, (tokens - 1) / (span_ns / 1e9)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def asks(which: Setting, pairs: int, max_tokens: int) -> list[DecodeRequest]:
    """Return one request per pair, at a temperature at which a stop token is rare, with the same seed on both sides."""
    message = {"role": "user", "content": "write a tale of the otter by the lake."}
    return [
        DecodeRequest(
            Canary.model_validate({"id": f"pair-{number}", "messages": [message]}),
            which,
            SamplingParameters(temperature=1.5, seed=number, max_tokens=max_tokens),
        )
        for number in range(pairs)
    ]


def compare(arm: str, which: Setting, worker: RunningSystem, bare: Bare, pairs: int, max_tokens: int) -> Result:
    """Measure one arm: the same requests on both sides, in random order."""
    draw, logs, tokens = random.Random(1), list[float](), 0
    seen: dict[str, list[float]] = {"worker": [], "bare": []}

    def by_worker(ask: DecodeRequest) -> tuple[int, float]:
        answer = worker.answer(ask)
        if answer.fault is not None or len(answer.arrivals) < 2:
            sys.exit(f"the worker failed: {answer.fault}")
        span = answer.arrivals[-1].at_ns - answer.arrivals[0].at_ns
        return len(answer.arrivals), (len(answer.arrivals) - 1) / (span / 1e9)

    sides = {"worker": by_worker, "bare": bare.speed}
    for number, ask in enumerate(asks(which, pairs + 2, max_tokens)):
        order = draw.sample(sorted(sides), 2)
        speeds = {side: sides[side](ask) for side in order}
        if speeds["worker"][0] != speeds["bare"][0]:
            sys.exit(f"{ask.canary.id}: the two sides gave different answers: {speeds}")
        # The first two pairs warm up both processes.
        if number >= 2:
            tokens += speeds["worker"][0]
            logs.append(math.log(speeds["worker"][1] / speeds["bare"][1]))
            for side in sides:
                seen[side].append(speeds[side][1])
    medians = sorted(statistics.median(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    lo, hi = (math.exp(medians[round(share * (RESAMPLES - 1))]) for share in (0.025, 0.975))
    return Result(
        arm,
        pairs=len(logs),
        tokens=tokens,
        worker_tokens_per_s=statistics.median(seen["worker"]),
        bare_tokens_per_s=statistics.median(seen["bare"]),
        ratio=math.exp(statistics.median(logs)),
        lo=lo,
        hi=hi,
    )


def main() -> int:
    """Measure both arms and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--num-draft-tokens", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    models = {"target": options.target} | ({"draft": options.draft} if options.draft else {})
    arms = {"plain": setting(draft=None)}
    if options.draft:
        arms["drafting"] = setting(draft="draft", num_draft_tokens=options.num_draft_tokens)
    cost = loop_cost_ns()
    bare = Bare([str(folder) for folder in models.values()])
    try:
        with tempfile.TemporaryDirectory() as logs:
            written = Subject.model_validate({"backend": "mlx", "target": "target", "drafts": list(models)[1:]})
            backend = open_backend(written, models=models, base=Path(), logs=Path(logs))
            with backend.start(arms.get("drafting", arms["plain"])) as worker:
                results = [
                    compare(arm, which, worker, bare, options.pairs, options.max_tokens) for arm, which in arms.items()
                ]
    finally:
        bare.close()
    if options.json:
        print(
            json.dumps(
                {"schema": 1, "goal": GOAL, "loop_cost_ns": cost, "arms": [asdict(one) for one in results]}, indent=2
            )
        )
    else:
        print(f"{'arm':10} pairs  tokens  worker tok/s  bare tok/s   ratio  95 % interval")
        for one in results:
            speeds = f"{one.worker_tokens_per_s:13.1f} {one.bare_tokens_per_s:11.1f}"
            print(f"{one.arm:10} {one.pairs:5} {one.tokens:7} {speeds} {one.ratio:7.4f}  {one.lo:.4f} to {one.hi:.4f}")
        share = cost * 1e-9 * max(one.bare_tokens_per_s for one in results)
        print(f"the worker's loop alone costs {cost:.0f} ns a token, {share:.4%} of one here; goal: ratio >= {GOAL}")
    if all(one.lo >= GOAL for one in results):
        return 0
    return 1 if any(one.hi < GOAL for one in results) else 3


if __name__ == "__main__":
    sys.exit(main())
