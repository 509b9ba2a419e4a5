"""What observing costs: decode speed under our worker against a bare loop over mlx-lm, paired and interleaved.

    python bench/observer_effect.py --target models/little-target [--draft models/little-draft] [--pairs 80] [--json]

Both sides are a process with the same models, driven over the same kind of pipe; the bare one runs mlx-lm's
`stream_generate` in the plainest loop there is, and takes its time from the first token to the last. One process works
at a time and the order of each pair is drawn. What differs between two processes of one program, such as where its
memory lies, lasts as long as they do: both start again after every ten pairs, and a start counts as one observation.
Its ratio (worker over bare) is the median of its pairs', which a busy moment of the machine does not move; the result
is the geometric mean over the starts, with Student's 95 % interval. Exit code 0: the whole interval meets the goal;
1: all of it misses it; 3: unproven, use more pairs or a quieter machine. It also prints the cost of the worker's own
loop, timed alone over prepared tokens: free of the machine's noise, but without effects that only decoding has.
With the little pair on two cores 80 pairs take about four minutes; `--pairs 20` takes one and only shows that it runs.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.backends import open_backend
from gatekeeper.backends.http.chat_request import resolve
from gatekeeper.backends.server_process import environment
from gatekeeper.backends.workers.mlx_lm import MlxLm, observe
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem, SamplingParameters
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo.subject_table import Subject

GOAL = 0.995
PAIRS_A_START, WARM_UP = 10, 2
"""Pairs of each arm between two starts of both sides, and those before them that warm up both."""
LEAST_STARTS = 2

Speed = Callable[[DecodeRequest], tuple[int, float]]
"""Gives the tokens of one answer and its decode tokens per second."""

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
class Pair:
    """The decode speeds of one request, in tokens per second."""

    tokens: int
    worker: float
    bare: float

    @property
    def log_ratio(self) -> float:
        """Return the logarithm of worker over bare."""
        return math.log(self.worker / self.bare)


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of observing one arm."""

    arm: str
    starts: int
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

    def speed(self, request: DecodeRequest) -> tuple[int, float]:
        """Return the tokens of one answer and its decode tokens per second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(resolve(request))).encode() + b"\n")
        self._process.stdin.flush()
        tokens, span_ns = json.loads(self._process.stdout.readline())
        return tokens, _speed(tokens, span_ns)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def requests(knobs: Setting, numbers: range, max_tokens: int) -> list[DecodeRequest]:
    """Return a request for each pair, at a temperature at which a stop token is rare, with one seed on both sides."""
    message = {"role": "user", "content": "write a tale of the otter by the lake."}
    return [
        DecodeRequest(
            Canary.model_validate({"id": f"pair-{number}", "messages": [message]}),
            knobs,
            SamplingParameters(temperature=1.5, seed=number, max_tokens=max_tokens),
        )
        for number in numbers
    ]


def worker_speed(worker: RunningSystem, request: DecodeRequest) -> tuple[int, float]:
    """Return the tokens of one answer and its decode tokens per second."""
    answer = worker.answer(request)
    if answer.fault is not None or not answer.arrivals:
        sys.exit(f"the worker failed: {answer.fault}")
    span_ns = answer.arrivals[-1].at_ns - answer.arrivals[0].at_ns
    return len(answer.arrivals), _speed(len(answer.arrivals), span_ns)


def _speed(tokens: int, span_ns: int) -> float:
    """Return tokens per second; NaN for an answer of one token, which one request in a thousand gets."""
    return (tokens - 1) / (span_ns / 1e9) if tokens > 1 else math.nan


def compare(worker: RunningSystem, bare: Bare, sent: Sequence[DecodeRequest]) -> list[Pair]:
    """Send the same requests to both sides, in random order; the first ones warm up and are left out."""
    draw, pairs = random.Random(sent[0].canary.id), []
    sides: dict[str, Speed] = {"worker": partial(worker_speed, worker), "bare": bare.speed}
    for request in sent:
        speeds = {side: sides[side](request) for side in draw.sample(sorted(sides), 2)}
        tokens, in_bare = speeds["worker"][0], speeds["bare"][0]
        if tokens != in_bare:
            sys.exit(f"{request.canary.id}: the two sides gave different answers: {speeds}")
        pairs.append(Pair(tokens, speeds["worker"][1], speeds["bare"][1]))
    return [pair for pair in pairs[WARM_UP:] if pair.tokens > 1]


def result_of(arm: str, starts: Sequence[Sequence[Pair]]) -> Result:
    """Return the ratio of one arm, from the pairs of each start."""
    logs = [statistics.median(pair.log_ratio for pair in pairs) for pairs in starts]
    pairs, center = [pair for start in starts for pair in start], statistics.mean(logs)
    half = student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Result(
        arm,
        starts=len(starts),
        pairs=len(pairs),
        tokens=sum(pair.tokens for pair in pairs),
        worker_tokens_per_s=statistics.median(pair.worker for pair in pairs),
        bare_tokens_per_s=statistics.median(pair.bare for pair in pairs),
        ratio=math.exp(center),
        lo=math.exp(center - half),
        hi=math.exp(center + half),
    )


def measure(
    backend: Backend, folders: list[str], arms: Mapping[str, Setting], starts: int, max_tokens: int
) -> list[Result]:
    """Start both sides *starts* times, and send each start's requests of every arm."""
    pairs: dict[str, list[list[Pair]]] = {arm: [] for arm in arms}
    each = WARM_UP + PAIRS_A_START
    for start in range(starts):
        bare = Bare(folders)
        try:
            with backend.start(arms.get("drafting", arms["plain"])) as worker:
                for arm, knobs in arms.items():
                    sent = requests(knobs, range(start * each, (start + 1) * each), max_tokens)
                    pairs[arm].append(compare(worker, bare, sent))
                    ratio = math.exp(statistics.median(pair.log_ratio for pair in pairs[arm][-1]))
                    print(f"start {start + 1} of {starts}, {arm}: {ratio:.4f}", file=sys.stderr)
        finally:
            bare.close()
    return [result_of(arm, of_arm) for arm, of_arm in pairs.items()]


def main() -> int:
    """Measure both arms and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--num-draft-tokens", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=80, help=f"of each arm; rounded up to {PAIRS_A_START} a start")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    models = {"target": options.target} | ({"draft": options.draft} if options.draft else {})
    arms = {"plain": setting(draft=None)}
    if options.draft:
        arms["drafting"] = setting(draft="draft", num_draft_tokens=options.num_draft_tokens)
    cost = loop_cost_ns()
    with tempfile.TemporaryDirectory() as logs:
        subject = Subject.model_validate({"backend": "mlx", "target": "target", "drafts": list(models)[1:]})
        backend = open_backend(subject, models=models, base=Path(), logs=Path(logs))
        starts = max(LEAST_STARTS, math.ceil(options.pairs / PAIRS_A_START))
        results = measure(backend, [str(folder) for folder in models.values()], arms, starts, options.max_tokens)
    if options.json:
        arms_written = [asdict(result) for result in results]
        print(json.dumps({"schema": 2, "goal": GOAL, "loop_cost_ns": cost, "arms": arms_written}, indent=2))
    else:
        print(f"{'arm':10} starts  pairs  tokens  worker tok/s  bare tok/s   ratio  95 % interval")
        for result in results:
            speeds = f"{result.worker_tokens_per_s:13.1f} {result.bare_tokens_per_s:11.1f}"
            counts = f"{result.starts:6} {result.pairs:6} {result.tokens:7}"
            print(f"{result.arm:10} {counts} {speeds} {result.ratio:7.4f}  {result.lo:.4f} to {result.hi:.4f}")
        share = cost * 1e-9 * max(result.bare_tokens_per_s for result in results)
        print(f"the worker's loop alone costs {cost:.0f} ns a token, {share:.4%} of one here; goal: ratio >= {GOAL}")
        print(f"load average {os.getloadavg()[0]:.1f}")
    if all(result.lo >= GOAL for result in results):
        return 0
    return 1 if any(result.hi < GOAL for result in results) else 3


if __name__ == "__main__":
    sys.exit(main())
