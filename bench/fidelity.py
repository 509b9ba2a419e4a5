"""How exactly we measure: our times against a server that reports when it sent each token, on the same clock.

    python bench/fidelity.py [--streams 1 4 8 64] [--seconds 20] [--json]

A small server in C writes into every chunk when it sent it. Requests go through the same functions as in a run, from
one thread per stream. Paced: a token about every 10 ms; bursty: 1 to 5 tokens about every 48 ms. The error of a TTFT is
ours (request sent to first arrival) minus the server's (request read to first token sent), including both ways through
the kernel. Gaps are pooled over all answers, between neighbouring chunks; inside a burst they are microseconds, and one
read may bring several tokens. Then eight streams send as fast as they can, one token per write, and the throughput of
one process is measured twice: only reading the sockets, and parsing too.

Exit code 0: every goal is met at up to eight streams; 1: one is not; 3: there is no C compiler.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from gatekeeper.backends.http.chat import ChatResponse, read_answer
from gatekeeper.backends.http.stream import RawResponse, post
from gatekeeper.core.records import Answer

SOURCE = Path(__file__).with_name("fidelity_server.c")
FIRST_US = 20_000
PACES = {"paced": (10_000, 1), "bursty": (48_000, 5)}
"""Microseconds between bursts, and the most tokens of one."""
ANSWER_S = 0.6
"""About how long a paced answer takes; short, so that many of them end while others are read."""
FLOOD_TOKENS, FLOOD_STREAMS = 4_000, 8
GOAL_STREAMS = 8
"""Streams up to which the goals apply; more are only measured."""

Told = tuple[Answer, ChatResponse]
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Row:
    """One load: how far our times were from the truth. Seconds."""

    pace: str
    streams: int
    answers: int
    ttft_error_median: float
    ttft_error_worst: float
    gaps: dict[str, tuple[float, float]]
    """Of each quantile: the true gap, and ours."""
    cpu_per_1000: float


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that may not be crossed."""

    name: str
    read: Callable[[Row], float]
    at_most: float
    written: Callable[[float], str]


def p99_off(row: Row) -> float:
    true, ours = row.gaps["p99"]
    return abs(ours / true - 1)


GOALS = (
    Goal("TTFT error, median", lambda row: row.ttft_error_median, 0.15e-3, lambda s: f"{s * 1e3:.3f} ms"),
    Goal("TTFT error, worst", lambda row: row.ttft_error_worst, 1e-3, lambda s: f"{s * 1e3:.3f} ms"),
    Goal("p99 of the gaps, off by", p99_off, 0.01, lambda share: f"{share:.2%}"),
    Goal("CPU time per 1000 tokens", lambda row: row.cpu_per_1000, 0.15, lambda s: f"{s:.3f} s"),
)
LEAST_RATE = 100_000


@contextmanager
def serving(compiler: str) -> Iterator[str]:
    """Compile the server, start it, and end it by closing its standard input."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fidelity_server"
        subprocess.run([compiler, "-O2", "-pthread", "-o", program, SOURCE], check=True)
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            try:
                yield f"http://127.0.0.1:{int(server.stdout.readline())}"
            finally:
                server.stdin.close()


def together(streams: int, each: int, apart: float, ask: Callable[[int], One]) -> tuple[list[One], float, float]:
    """Send *each* requests from each of *streams* threads; return the answers, the wall time and the CPU time.

    Streams that begin up to *apart* seconds apart end while others are read, as they do in a soak.
    """
    told: list[One] = []
    start = threading.Barrier(streams + 1)

    def listen(stream: int) -> None:
        start.wait()
        time.sleep(random.Random(stream).uniform(0, apart))
        told.extend([ask(stream * each + number) for number in range(each)])

    threads = [threading.Thread(target=listen, args=(stream,)) for stream in range(streams)]
    for thread in threads:
        thread.start()
    start.wait()
    wall, cpu = time.monotonic(), time.process_time()
    for thread in threads:
        thread.join()
    if len(told) != streams * each:
        raise SystemExit(f"only {len(told)} of {streams * each} answers arrived; the error is above")
    return told, time.monotonic() - wall, time.process_time() - cpu


def told(received: RawResponse, tokens: int) -> Told:
    """Return what was understood; an answer with a fault ends the benchmark."""
    answer, said = read_answer(received)
    if answer.fault is not None or len(answer.arrivals) != tokens:
        raise RuntimeError(f"{len(answer.arrivals)} of {tokens} tokens came: {answer.fault}")
    return answer, said


def request(url: str, seed: int, *, first: int, gap: int, most: int, tokens: int) -> RawResponse:
    return post(f"{url}/{first}/{gap}/{most}/{tokens}/{seed + 1}", b"{}", headers={}, timeout=30)


def measure(url: str, pace: str, streams: int, seconds: float) -> Row:
    """Return how far off we are at one pace and number of streams."""
    gap, most = PACES[pace]
    tokens = round(ANSWER_S * 1e6 / gap * (1 + most) / 2)
    each = max(2, round(seconds / ANSWER_S / min(streams, GOAL_STREAMS)))

    def ask(seed: int) -> Told:
        return told(request(url, seed, first=FIRST_US, gap=gap, most=most, tokens=tokens), tokens)

    answers, _, cpu = together(streams, each, ANSWER_S, ask)
    errors, true, ours = [], [], []
    for answer, said in answers:
        sent = [said.chunks[number].fields["sent"] for number in said.arrived]
        seen = [arrival.at_ns for arrival in answer.arrivals]
        errors.append(abs(seen[0] - answer.sent_ns - (sent[0] - said.chunks[0].fields["received"])) / 1e9)
        true += [(after - before) / 1e9 for before, after in pairwise(sent)]
        ours += [(after - before) / 1e9 for before, after in pairwise(seen)]
    quantiles = [statistics.quantiles(gaps, n=100, method="inclusive") for gaps in (true, ours)]
    gaps = {f"p{p}": (quantiles[0][p - 1], quantiles[1][p - 1]) for p in (50, 95, 99)}
    cpu_per_1000 = cpu / (len(answers) * tokens) * 1000
    return Row(pace, streams, len(answers), statistics.median(errors), max(errors), gaps, cpu_per_1000)


def flood(url: str, seconds: float) -> dict[str, float]:
    """Return how many tokens a second one process reads, and how many it reads and understands."""
    each = max(2, round(seconds * LEAST_RATE / FLOOD_TOKENS / FLOOD_STREAMS))

    def read(seed: int) -> RawResponse:
        return request(url, seed, first=0, gap=0, most=1, tokens=FLOOD_TOKENS)

    _, reading, _ = together(FLOOD_STREAMS, each, 0, read)
    _, understanding, _ = together(FLOOD_STREAMS, each, 0, lambda seed: told(read(seed), FLOOD_TOKENS)[0].fault)
    tokens = FLOOD_STREAMS * each * FLOOD_TOKENS
    return {"read": tokens / reading, "read and understood": tokens / understanding}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each load lasts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    compiler = shutil.which("cc")
    if compiler is None:
        sys.stderr.write("fidelity: there is no C compiler (cc) here, and so no server with known send times\n")
        return 3
    with serving(compiler) as url:
        rows = [measure(url, pace, streams, options.seconds) for pace in PACES for streams in options.streams]
        rates = flood(url, options.seconds / 4)
    meant = [row for row in rows if row.streams <= GOAL_STREAMS]
    kept = all(goal.read(row) <= goal.at_most for row in meant for goal in GOALS)
    kept = kept and all(rate >= LEAST_RATE for rate in rates.values())
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "tokens_per_second": rates}))
    else:
        print(table(rows, rates))
        print(f"{'every goal is met' if kept else 'a goal is missed'} at up to {GOAL_STREAMS} streams")
    return 0 if kept else 1


def table(rows: list[Row], rates: dict[str, float]) -> str:
    """Return the figures for people; those that miss a goal are marked."""
    heads = ("pace", "streams", "answers", "p50 of the gaps, true/ours", "p95", "p99", *(goal.name for goal in GOALS))
    lines = [heads]
    for row in rows:
        gaps = [f"{true * 1e3:.2f}/{ours * 1e3:.2f} ms" for true, ours in row.gaps.values()]
        judged = [f"{goal.written(goal.read(row))}{' !' * (goal.read(row) > goal.at_most)}" for goal in GOALS]
        lines.append((row.pace, str(row.streams), str(row.answers), *gaps, *judged))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    out += [f"{name}: {rate:,.0f} tokens/s{' !' * (rate < LEAST_RATE)}" for name, rate in rates.items()]
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main())
