"""How well we measure: our times against a server that says when it sent each token, on the same clock.

    python bench/fidelity.py [--streams 1 4 8 64] [--seconds 20] [--json]

A small server in C writes into every chunk when it sent it. It is asked by the very functions that ask a subject, from
one thread a stream. Paced: a token about every 10 ms; bursty: 1 to 5 tokens about every 48 ms. The error of a TTFT is
ours (request sent to first arrival) less the server's (request read to first token sent): both ways through the
kernel are in it. Gaps are pooled over all answers, between neighbouring chunks. Then the server sends as fast as it
can, one token a write, and the rate is counted until the last answer is understood.

Exit code 0: every goal holds; 1: one does not; 3: there is no C compiler here.
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

from gatekeeper.backends.chat import Said, understand
from gatekeeper.backends.stream import hear
from gatekeeper.terms.records import Answer

SOURCE = Path(__file__).with_name("fidelity_server.c")
FIRST_US = 20_000
PACES = {"paced": (10_000, 1), "bursty": (48_000, 5)}
"""Microseconds between bursts, and the most tokens of one."""
ANSWER_S = 0.6
"""About how long a paced answer takes; short ones, so that many of them end while others are heard."""
FLOOD_TOKENS = 2_000
FLOOD_STREAMS = 8
PROMISED = 8
"""Streams up to which the goals are promised."""
GOALS = {
    "TTFT error, median": (0.15e-3, "s"),
    "TTFT error, worst": (1e-3, "s"),
    "gap p99, relative error": (0.01, "1"),
    "CPU seconds per 1000 paced tokens": (0.15, "s"),
}
LEAST_RATE = 100_000

Told = tuple[Answer, Said]


@dataclass(frozen=True, slots=True)
class Row:
    """One load: how far our times were from the truth. Seconds."""

    pace: str
    streams: int
    answers: int
    tokens: int
    ttft_error_median: float
    ttft_error_worst: float
    gaps: dict[str, tuple[float, float]]
    """Of each quantile: the true gap, and ours."""
    cpu_per_1000: float

    def figures(self) -> tuple[float, ...]:
        """Return the figures the goals speak of, in their order."""
        true, ours = self.gaps["p99"]
        return self.ttft_error_median, self.ttft_error_worst, abs(ours / true - 1), self.cpu_per_1000


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


def together(streams: int, each: int, ask: Callable[[int], Told]) -> tuple[list[Told], float, float]:
    """Ask *each* times from each of *streams* threads; return the answers, the wall time and the CPU time."""
    told: list[Told] = []
    start = threading.Barrier(streams + 1)

    def listen(stream: int) -> None:
        start.wait()
        # Streams that begin apart end while others are heard, as they do in a soak.
        time.sleep(random.Random(stream).uniform(0, ANSWER_S) if streams > 1 else 0)
        told.extend([ask(stream * each + number) for number in range(each)])

    threads = [threading.Thread(target=listen, args=(stream,)) for stream in range(streams)]
    for thread in threads:
        thread.start()
    start.wait()
    wall, cpu = time.monotonic(), time.process_time()
    for thread in threads:
        thread.join()
    return told, time.monotonic() - wall, time.process_time() - cpu


def asker(url: str, gap_us: int, most: int, tokens: int) -> Callable[[int], Told]:
    """Return what asks for one answer of that pace; an answer with a fault ends the benchmark."""

    def ask(seed: int) -> Told:
        answer, said = understand(
            hear(f"{url}/{FIRST_US}/{gap_us}/{most}/{tokens}/{seed + 1}", b"{}", headers={}, timeout=30)
        )
        if answer.fault is not None or len(answer.arrivals) != tokens:
            raise SystemExit(f"{len(answer.arrivals)} of {tokens} tokens came: {answer.fault}")
        return answer, said

    return ask


def measure(url: str, pace: str, streams: int, seconds: float) -> Row:
    """Return how far off we are at one pace and number of streams."""
    gap_us, most = PACES[pace]
    tokens = round(ANSWER_S * 1e6 / gap_us * (1 + most) / 2)
    each = max(2, round(seconds / ANSWER_S / min(streams, PROMISED)))
    told, _, cpu = together(streams, each, asker(url, gap_us, most, tokens))
    errors, true, ours = [], [], []
    for answer, said in told:
        sent = [chunk.said["sent"] for chunk in said.chunks if chunk.arrived]
        seen = [arrival.at_ns for arrival in answer.arrivals]
        truth = sent[0] - said.chunks[0].said["received"]
        errors.append(abs(seen[0] - answer.sent_ns - truth) / 1e9)
        true += [(after - before) / 1e9 for before, after in pairwise(sent)]
        ours += [(after - before) / 1e9 for before, after in pairwise(seen)]
    quantiles = [statistics.quantiles(gaps, n=100, method="inclusive") for gaps in (true, ours)]
    return Row(
        pace,
        streams,
        len(told),
        len(told) * tokens,
        statistics.median(errors),
        max(errors),
        {f"p{p}": (quantiles[0][p - 1], quantiles[1][p - 1]) for p in (50, 95, 99)},
        cpu / (len(told) * tokens) * 1000,
    )


def flood(url: str, seconds: float) -> float:
    """Return how many tokens a second one process takes in and understands."""
    each = max(2, round(seconds * LEAST_RATE / FLOOD_TOKENS / FLOOD_STREAMS))
    told, wall, _ = together(FLOOD_STREAMS, each, asker(url, 0, 1, FLOOD_TOKENS))
    del wall
    first, last = min(answer.sent_ns for answer, _ in told), max(answer.ended_ns for answer, _ in told)
    return len(told) * FLOOD_TOKENS / ((last - first) / 1e9)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each load is kept up")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    compiler = shutil.which("cc")
    if compiler is None:
        sys.stderr.write("fidelity: there is no C compiler (cc) here, and so no server with known times\n")
        return 3
    with serving(compiler) as url:
        rows = [measure(url, pace, streams, options.seconds) for pace in PACES for streams in options.streams]
        rate = flood(url, options.seconds / 4)
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "tokens_per_second": rate}))
    else:
        print(
            f"{'pace':7}{'streams':>8}{'answers':>8}{'TTFT error, ms':>18}{'p50':>18}{'p95':>18}{'p99':>18}"
            f"{'off by':>8}{'CPU s':>8}"
        )
        for row in rows:
            errors = f"{row.ttft_error_median * 1e3:.3f} / {row.ttft_error_worst * 1e3:.3f}"
            gaps = "".join(f"{f'{true * 1e3:.3f} / {ours * 1e3:.3f}':>18}" for true, ours in row.gaps.values())
            off = row.gaps["p99"][1] / row.gaps["p99"][0] - 1
            print(f"{row.pace:7}{row.streams:8}{row.answers:8}{errors:>18}{gaps}{off:8.2%}{row.cpu_per_1000:8.4f}")
        print("TTFT error: median / worst of the answers; gaps in ms: true / ours; CPU seconds per 1000 tokens")
        print(f"taken in: {rate:,.0f} tokens/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
