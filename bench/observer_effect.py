"""What observing costs: decode speed under our worker's loop against a bare loop over mlx-lm, token block by block.

    python bench/observer_effect.py --target models/little-target [--draft models/little-draft] [--starts 12]

Between two processes of one program memory lies elsewhere and the machine has another moment: that alone moves their
ratio by 1 to 4 %, more than observing costs. Here one process holds the models and decodes each answer twice, in the
plainest loop over mlx-lm's `stream_generate` and in our worker's own loop, five tokens of the one and five of the other
in turns, in random order; both must give the same tokens. The process is our worker, started and sent its requests over
its pipe as in a run, with its heartbeat read meanwhile. What driving it takes of a processor counts against us, as if
all of it had delayed the tokens. `--control` puts a second bare loop in our loop's place: what the bench itself adds.
A start of the process counts as one observation: its ratio (ours over bare) is the median of its blocks', which a busy
moment of the machine does not move; the result is the geometric mean over the starts, with Student's 95 % interval.
Exit code 0: the whole interval meets the goal; 1: all of it misses it; 3: unproven, use more starts or a quieter
machine. It also prints the cost of the worker's own loop, timed alone over prepared tokens: free of the machine's
noise, but without effects that only decoding has. With the little pair on two quiet cores 30 starts take about 20
minutes; `--starts 2 --answers 2` takes half a minute and only shows that it runs.
"""

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.backends.http.chat_request import resolve
from gatekeeper.backends.worker_backend.worker_process import WorkerProcess
from gatekeeper.backends.worker_backend.worker_protocol import read_line, request_line
from gatekeeper.backends.workers.answer_parts import generation
from gatekeeper.backends.workers.loop import WorkerChannel
from gatekeeper.backends.workers.mlx_lm import MlxLm, MlxWorker, Timed, observe, sampler_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.records import Setting, setting

GOAL = 0.995
BLOCK = 5
"""Tokens of one side between two turns: long beside a reading of the clock, short beside a change of the machine."""
WARM_UP = 1
"""Answers of each arm at the beginning of a start that are left out."""
LEAST_STARTS = 2
TIMEOUT_S = 120.0
SERVE = "serve"
"""The first word of the worker's own command line."""

Last = tuple[int, str | None]
"""The last token of a block, and why the answer ended with it; None where it goes on."""
Side = tuple[Iterator[Any], Callable[[Iterable[Any]], Last]]
"""The pieces of one answer, and the loop that runs over a block of them."""
Block = tuple[int, int]
"""Nanoseconds of one block: in the bare loop, in ours."""


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of observing one arm."""

    arm: str
    starts: int
    blocks: int
    bare_tokens_per_s: float
    driving: float
    """The share of the time for which driving the worker held a processor."""
    ratio: float
    lo: float
    hi: float


@dataclass(slots=True)
class Start:
    """What one start of the worker gave of one arm."""

    blocks: list[Block]
    driving: float = 0.0

    @property
    def log_ratio(self) -> float:
        """Return the logarithm of our speed over the bare one."""
        return statistics.median(math.log(bare / ours) for bare, ours in self.blocks) + math.log(1 - self.driving)


def bare_loop(pieces: Iterable[Any]) -> Last:
    """Run over *pieces* in the plainest loop there is."""
    piece: Any = None
    for piece in pieces:  # noqa: B007  the last one is looked at below
        pass
    return piece.token, piece.finish_reason


def blocks_of(
    sides: tuple[Side, Side], seed: int, reseed: Callable[[int], None], drain: Callable[[], None]
) -> list[Block]:
    """Decode one answer on both *sides* in turns, each block from its own seed; return their times.

    A block lasts until *drain* has waited for what mlx-lm computes ahead. The first token, which has the prompt's time
    in it, and the block in which the answer ends are left out.
    """
    draw = random.Random(seed)
    blocks: list[Block] = []
    for number in count():
        spans: list[int] = [0, 0]
        last: list[Last] = [(0, None)] * 2
        for side in draw.sample((0, 1), 2):
            pieces, loop = sides[side]
            block = islice(pieces, BLOCK if number else 1)
            reseed(seed + number)
            began = time.monotonic_ns()
            last[side] = loop(block)
            drain()
            spans[side] = time.monotonic_ns() - began
        if last[0] != last[1]:
            raise ValueError(f"the two loops gave different answers: {last}")
        if last[0][1] is not None:
            return blocks
        if number:
            blocks.append((spans[0], spans[1]))
    raise AssertionError


class TwoLoops(MlxWorker):
    """Our worker, which decodes each answer in a bare loop too, and answers with the times of both."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Decode one answer on both sides."""
        prompt, speculating = self.prompt(request), bool(request["setting"]["draft"])
        decoding = self.decoding(request, speculating=speculating)
        timed: Timed = []
        drafting = {"draft_model": decoding.draft, "num_draft_tokens": decoding.draft_tokens} if speculating else {}

        def bare() -> Side:
            pieces = generation.stream_generate(
                self.model,
                self.tokenizer,
                prompt,
                max_tokens=request["max_tokens"],
                sampler=sampler_for(request),
                **drafting,
            )
            return pieces, bare_loop

        def our_loop(pieces: Iterable[Any]) -> Last:
            observe(pieces, decoding.keep, timed, self._beat)
            _, (token, _, _, finish) = timed[-1]
            return token, finish

        def drain() -> None:
            mx.synchronize(generation.generation_stream)

        second = bare() if request["control"] else (iter(decoding.pieces(prompt)), our_loop)
        return {"blocks": blocks_of((bare(), second), request["seed"], mx.random.seed, drain)}


def loop_cost_ns(tokens: int = 200, answers: int = 200) -> float:
    """Return what the worker's loop costs per token of an answer beyond an empty one, the least of seven tries."""
    piece = SimpleNamespace(token=1, from_draft=False, text=" a", finish_reason=None)
    beat = memoryview(bytearray(8)).cast("Q")
    keep = MlxLm(None, None, None, tokens).keep

    def least(loop: Callable[[Iterable[Any]], object]) -> int:
        spans = []
        for _ in range(7):
            began = time.perf_counter_ns()
            for _ in range(answers):
                loop(repeat(piece, tokens))
            spans.append(time.perf_counter_ns() - began)
        return min(spans)

    ours, empty = least(lambda pieces: observe(pieces, keep, [], beat)), least(bare_loop)
    return (ours - empty) / (tokens * answers)


def requests(knobs: Setting, numbers: Iterable[int], max_tokens: int) -> Iterator[DecodeRequest]:
    """Yield requests at a temperature at which a stop token is rare."""
    message = {"role": "user", "content": "write a tale of the otter by the lake."}
    for number in numbers:
        canary = Canary.model_validate({"id": f"answer-{number}", "messages": [message]})
        yield DecodeRequest(canary, knobs, SamplingParameters(1.5, seed=number << 20, max_tokens=max_tokens))


def receive(worker: WorkerProcess) -> dict[str, Any]:
    """Return the worker's next line; exit with the reason where it failed."""
    line = read_line(worker.receive(TIMEOUT_S, time.monotonic() + TIMEOUT_S))
    if "failed" in line:
        sys.exit(f"the worker failed: {line['failed']}; its log: {worker.log.read_text()[-2000:]}")
    return line


def start_of(worker: WorkerProcess, sent: Iterable[DecodeRequest], *, control: bool) -> Start:
    """Send requests of one arm to a started worker."""
    blocks: list[Block] = []
    held = passed = 0.0
    for number, request in enumerate(sent):
        worker.send(request_line(number, resolve(request), request.setting, control=control), TIMEOUT_S, math.inf)
        receive(worker)  # it begins
        began, began_held = time.monotonic(), time.process_time()
        line = worker.receive(TIMEOUT_S, math.inf)
        held, passed = held + time.process_time() - began_held, passed + time.monotonic() - began
        if number >= WARM_UP:
            blocks += read_line(line)["blocks"]
    return Start(blocks, held / passed)


def result_of(arm: str, starts: Sequence[Start]) -> Result:
    """Return the ratio of one arm, from all starts."""
    logs, blocks = [start.log_ratio for start in starts], [block for start in starts for block in start.blocks]
    center, half = statistics.mean(logs), student_quantile(0.975, len(logs) - 1) * standard_error(logs)
    return Result(
        arm,
        starts=len(starts),
        blocks=len(blocks),
        bare_tokens_per_s=BLOCK * 1e9 / statistics.median(bare for bare, _ in blocks),
        driving=statistics.mean(start.driving for start in starts),
        ratio=math.exp(center),
        lo=math.exp(center - half),
        hi=math.exp(center + half),
    )


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of *values*."""
    return statistics.stdev(values) / math.sqrt(len(values))


def measure(options: argparse.Namespace, arms: Mapping[str, Setting]) -> list[Result]:
    """Start the worker as often as *options* say, and send each start's requests of every arm."""
    folders = [str(folder) for folder in (options.target, options.draft) if folder]
    command = [sys.executable, "-P", __file__, SERVE, *folders]
    by_arm: dict[str, list[Start]] = {arm: [] for arm in arms}
    numbers = count(1)
    with tempfile.TemporaryDirectory() as logs:
        for start in range(options.starts):
            worker = WorkerProcess(command, log=Path(logs) / f"{start}.log", folder=Path.cwd(), with_package=True)
            try:
                receive(worker)  # it greets
                receive(worker)  # it is ready
                for arm, knobs in arms.items():
                    sent = requests(knobs, islice(numbers, WARM_UP + options.answers), options.max_tokens)
                    by_arm[arm].append(start_of(worker, sent, control=options.control))
                    ratio = math.exp(by_arm[arm][-1].log_ratio)
                    print(f"start {start + 1} of {options.starts}, {arm}: {ratio:.4f}", file=sys.stderr)
            finally:
                worker.close()
    return [result_of(arm, starts) for arm, starts in by_arm.items()]


def serve(target: str, draft: str | None = None) -> None:
    """Be the worker."""
    channel = WorkerChannel()
    channel.serve({"name": "two-loops"}, lambda loading: TwoLoops(target, draft, channel.beat, loading))


def main() -> int:
    """Measure both arms and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--num-draft-tokens", type=int, default=4)
    parser.add_argument("--starts", type=int, default=12, help=f"of the worker, at least {LEAST_STARTS}")
    parser.add_argument("--answers", type=int, default=10, help="of each arm and start")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--control", action="store_true", help="a bare loop in our loop's place")
    options = parser.parse_args()
    options.starts = max(LEAST_STARTS, options.starts)
    arms = {"plain": setting(draft=None)}
    if options.draft:
        arms["drafting"] = setting(draft="draft", num_draft_tokens=options.num_draft_tokens)
    cost, results = loop_cost_ns(), measure(options, arms)
    print(f"{'arm':10} starts  blocks  bare tok/s  driving   ratio  95 % interval")
    for result in results:
        counts = f"{result.starts:6} {result.blocks:7} {result.bare_tokens_per_s:11.1f} {result.driving:8.3%}"
        print(f"{result.arm:10} {counts} {result.ratio:7.4f}  {result.lo:.4f} to {result.hi:.4f}")
    share = cost * 1e-9 * max(result.bare_tokens_per_s for result in results)
    print(f"the worker's loop alone costs {cost:.0f} ns a token, {share:.4%} of one here; goal: ratio >= {GOAL}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    if all(result.lo >= GOAL for result in results):
        return 0
    return 1 if any(result.hi < GOAL for result in results) else 3


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(*sys.argv[2:])
    sys.exit(main())
