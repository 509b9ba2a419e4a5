"""How exactly we measure: our times against a server that reports when it sent each token, on the same clock.

    python bench/fidelity.py [--streams 1 4 8 64] [--seconds 20] [--busy]

A small server in C writes into every chunk when it sent it. Requests go through the same functions as in a run, from
one thread per stream. Paced: a token about every 10 ms; bursty: 1 to 5 tokens about every 48 ms; fast: a token about
every 3 ms from each of 64 streams. The error of a TTFT is ours (request sent to first arrival) minus the server's
(request read to first token sent), including both ways through the kernel. Gaps are pooled over all answers, between
neighbouring chunks; inside a burst they are microseconds, and one read may bring several tokens. *Read late* is how
long after the kernel received it a piece was read, at worst; where times are the kernel's, it is no part of the error.
With --busy, as many processes as there are cores compute meanwhile. Then 32 streams send as fast as they can, one token
per write, and the throughput of one process is measured three times: only reading the sockets, parsing too, and by a
bare reader of one thread that parses each event with json.loads.

Exit code 0: every goal is met; 1: one is not; 3: there is no C compiler.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from gatekeeper.backends.http.chat_answer import ChatResponse, read_answer
from gatekeeper.backends.http.stream import RawResponse, post
from gatekeeper.core.records import Answer

SOURCE = Path(__file__).with_name("fidelity_server.c")
FIRST_US = 20_000
FAST, FAST_STREAMS = "fast", 64
PACES = {"paced": (10_000, 1), "bursty": (48_000, 5), FAST: (3_000, 1)}
"""Microseconds between bursts, and the most tokens of one."""
ANSWER_S = 0.6
"""About how long a paced answer takes; short, so that many of them end while others are read."""
FLOOD_TOKENS, FLOOD_STREAMS = 500, 32
GOAL_STREAMS = 8
"""Streams up to which the goals of paced and bursty loads apply; more are only measured."""

Parsed = tuple[Answer, ChatResponse]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Row:
    """One load: how far our times were from the truth. Seconds."""

    pace: str
    streams: int
    busy: bool
    answers: int
    ttft_error_median: float
    ttft_error_p99: float
    ttft_error_worst: float
    gaps: dict[str, tuple[float, float]]
    """Of each quantile: the true gap, and ours."""
    cpu_per_1000: float
    read_late: float | None
    """None: the kernel stamped no answer, or not all."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that may not be crossed."""

    name: str
    read: Callable[[Row], float]
    at_most: Callable[[Row], float | None]
    """None: the row is only measured."""
    written: Callable[[float], str]

    def is_missed(self, row: Row) -> bool:
        """Tell whether *row* crosses it."""
        most = self.at_most(row)
        return most is not None and self.read(row) > most


def p99_off(row: Row) -> float:
    true, ours = row.gaps["p99"]
    return abs(ours / true - 1)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def few_streams(at_most: float) -> Callable[[Row], float | None]:
    return lambda row: at_most if row.streams <= GOAL_STREAMS else None


def most_error(row: Row) -> float | None:
    """Return the goal of the worst TTFT; a busy machine has the kernel's times on Linux alone."""
    if row.pace == FAST:
        return 10e-3
    return None if row.streams > GOAL_STREAMS else 0.3e-3 if row.busy and sys.platform == "linux" else 1e-3


GOALS = (
    Goal("TTFT error, median", lambda row: row.ttft_error_median, few_streams(0.15e-3), milliseconds),
    Goal("p99", lambda row: row.ttft_error_p99, lambda row: 3e-3 if row.pace == FAST else None, milliseconds),
    Goal("worst", lambda row: row.ttft_error_worst, most_error, milliseconds),
    Goal("p99 of the gaps, off by", p99_off, few_streams(0.01), lambda share: f"{share:.2%}"),
    Goal("CPU time per 1000 tokens", lambda row: row.cpu_per_1000, few_streams(0.15), lambda s: f"{s:.3f} s"),
)
READ, PARSED, BARE = "read", "read and parsed", "bare reader"
LEAST_RATE = 100_000
LEAST_SHARE = 0.5
"""Of the rate of a bare reader of one thread."""


@contextmanager
def serving(compiler: str) -> Iterator[int]:
    """Compile the server and start it; yield its port, and end it by closing its standard input."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fidelity_server"
        subprocess.run([compiler, "-O2", "-pthread", "-o", program, SOURCE], check=True)
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            try:
                yield int(server.stdout.readline())
            finally:
                server.stdin.close()


def compute() -> None:
    """Keep a core busy, as any process of a user may."""
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    while True:
        pass


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with a process of its own."""
    processes = [multiprocessing.Process(target=compute, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def together(streams: int, each: int, apart: float, send: Callable[[int], Result]) -> tuple[list[Result], float, float]:
    """Send *each* requests from each of *streams* threads; return the results, the wall time and the CPU time.

    Streams that begin up to *apart* seconds apart end while others are read, as they do in a soak.
    """
    results: list[Result] = []
    start = threading.Barrier(streams + 1)

    def run_stream(stream: int) -> None:
        start.wait()
        time.sleep(random.Random(stream).uniform(0, apart))
        results.extend([send(stream * each + number) for number in range(each)])

    threads = [threading.Thread(target=run_stream, args=(stream,)) for stream in range(streams)]
    for thread in threads:
        thread.start()
    start.wait()
    wall, cpu = time.monotonic(), time.process_time()
    for thread in threads:
        thread.join()
    if len(results) != streams * each:
        raise SystemExit(f"only {len(results)} of {streams * each} answers arrived; the error is above")
    return results, time.monotonic() - wall, time.process_time() - cpu


def parsed(raw: RawResponse, tokens: int) -> Parsed:
    """Return the answer and the response; an answer with a fault ends the benchmark."""
    answer, response = read_answer(raw)
    if answer.fault is not None or len(answer.arrivals) != tokens:
        raise RuntimeError(f"{len(answer.arrivals)} of {tokens} tokens came: {answer.fault}")
    return answer, response


def request(port: int, seed: int, *, first: int, gap: int, most: int, tokens: int) -> RawResponse:
    url = f"http://127.0.0.1:{port}/{first}/{gap}/{most}/{tokens}/{seed + 1}"
    return post(url, b"{}", headers={}, timeout=30)


def measure(port: int, pace: str, streams: int, seconds: float, *, busy: bool) -> Row:
    """Return how far off we are at one pace and number of streams."""
    gap, most = PACES[pace]
    tokens = round(ANSWER_S * 1e6 / gap * (1 + most) / 2)
    each = max(2, round(seconds / ANSWER_S / min(streams, GOAL_STREAMS)))

    def send(seed: int) -> Parsed:
        return parsed(request(port, seed, first=FIRST_US, gap=gap, most=most, tokens=tokens), tokens)

    with busy_cores() if busy else contextlib.nullcontext():
        answers, _, cpu = together(streams, each, ANSWER_S, send)
    errors, true, ours, delays = [], [], [], []
    for answer, response in answers:
        sent = [response.chunks[number].fields["sent"] for number in response.arrived]
        arrived = [arrival.at_ns for arrival in answer.arrivals]
        errors.append(abs(arrived[0] - answer.sent_ns - (sent[0] - response.chunks[0].fields["received"])) / 1e9)
        true += [(after - before) / 1e9 for before, after in pairwise(sent)]
        ours += [(after - before) / 1e9 for before, after in pairwise(arrived)]
        delays.append(answer.read_delay_ns)
    quantiles = [statistics.quantiles(gaps, n=100, method="inclusive") for gaps in (true, ours)]
    gaps = {f"p{p}": (quantiles[0][p - 1], quantiles[1][p - 1]) for p in (50, 95, 99)}
    stamped = [delay / 1e9 for delay in delays if delay is not None]
    return Row(
        pace, streams, busy, len(answers),
        ttft_error_median=statistics.median(errors),
        ttft_error_p99=statistics.quantiles(errors, n=100, method="inclusive")[98],
        ttft_error_worst=max(errors),
        gaps=gaps,
        cpu_per_1000=cpu / (len(answers) * tokens) * 1000,
        read_late=max(stamped) if len(stamped) == len(answers) else None,
    )  # fmt: skip


def flood(port: int, seconds: float) -> dict[str, float]:
    """Return how many tokens a second one process reads, how many it parses too, and how many a bare reader does."""
    each = max(2, round(seconds * LEAST_RATE / FLOOD_TOKENS / FLOOD_STREAMS))

    def read(seed: int) -> RawResponse:
        return request(port, seed, first=0, gap=0, most=1, tokens=FLOOD_TOKENS)

    _, reading, _ = together(FLOOD_STREAMS, each, 0, read)
    _, parsing, _ = together(FLOOD_STREAMS, each, 0, lambda seed: parsed(read(seed), FLOOD_TOKENS)[0].fault)
    tokens = FLOOD_STREAMS * each * FLOOD_TOKENS
    return {READ: tokens / reading, PARSED: tokens / parsing, BARE: bare_rate(port, each)}


def bare_rate(port: int, each: int) -> float:
    """Return the tokens a second of one thread that reads all streams by selectors, and parses events by json.loads."""
    begun, tokens = time.monotonic(), 0
    for _ in range(each):
        with selectors.DefaultSelector() as selector:
            for stream in range(FLOOD_STREAMS):
                sock = socket.create_connection(("127.0.0.1", port))
                sock.sendall(f"POST /0/0/1/{FLOOD_TOKENS}/{stream} HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}".encode())
                sock.setblocking(False)
                selector.register(sock, selectors.EVENT_READ, bytearray())
            while selector.get_map():
                for key, _ in selector.select():
                    tokens += bare_read(selector, key)
    return tokens / (time.monotonic() - begun)


def bare_read(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> int:
    """Read one socket, and parse its events; return how many tokens came."""
    assert isinstance(key.fileobj, socket.socket)
    received, tokens = key.fileobj.recv(1 << 16), 0
    time.monotonic_ns()
    *events, rest = (bytes(key.data) + received).split(b"\n\n")
    key.data[:] = rest
    for event in events:
        if event.startswith(b"data: {"):
            choices = json.loads(event[6:])["choices"]
            tokens += bool(choices and choices[0]["delta"].get("content"))
    if not received:
        selector.unregister(key.fileobj)
        key.fileobj.close()
    return tokens


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each load lasts")
    parser.add_argument("--busy", action="store_true", help="keep every core busy meanwhile")
    options = parser.parse_args()
    compiler = shutil.which("cc")
    if compiler is None:
        sys.stderr.write("fidelity: there is no C compiler (cc) here, and so no server with known send times\n")
        return 3
    loads = [(pace, streams) for pace in PACES if pace != FAST for streams in options.streams]
    loads += [(FAST, FAST_STREAMS)] * (not options.busy)
    with serving(compiler) as port:
        rows = [measure(port, *load, options.seconds, busy=options.busy) for load in loads]
        rates = {} if options.busy else flood(port, options.seconds / 4)
    kept = not any(goal.is_missed(row) for row in rows for goal in GOALS) and not slow(rates)
    print(table(rows, rates))
    print("every goal is met" if kept else "a goal is missed (!)")
    return 0 if kept else 1


def slow(rates: dict[str, float]) -> bool:
    """Tell whether a rate of the flood misses its goal; nothing is missed where there was none."""
    return bool(rates) and (min(rates[READ], rates[PARSED]) < LEAST_RATE or rates[PARSED] < LEAST_SHARE * rates[BARE])


def table(rows: list[Row], rates: dict[str, float]) -> str:
    """Return the figures for people; those that miss a goal are marked."""
    lines = [(
        "pace", "streams", "answers", "p50 of the gaps, true/ours", "p95", "p99", *(goal.name for goal in GOALS),
        "read late",
    )]  # fmt: skip
    for row in rows:
        gaps = [f"{true * 1e3:.2f}/{ours * 1e3:.2f} ms" for true, ours in row.gaps.values()]
        judged = [f"{goal.written(goal.read(row))}{' !' * goal.is_missed(row)}" for goal in GOALS]
        late = "not known" if row.read_late is None else milliseconds(row.read_late)
        lines.append((row.pace, str(row.streams), str(row.answers), *gaps, *judged, late))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    out += [f"{name}: {rate:,.0f} tokens/s" for name, rate in rates.items()]
    if rates:
        out.append(f"read and parsed at {rates[PARSED] / rates[BARE]:.2f} of the bare reader{' !' * slow(rates)}")
    return "\n".join([*out, f"load average {os.getloadavg()[0]:.1f}"])


if __name__ == "__main__":
    sys.exit(main())
