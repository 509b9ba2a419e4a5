"""What the sampler costs: its CPU time at 1 Hz, and the change of a system's speed with it on and off, paired.

    python bench/sampler.py                              # a CPU-bound loop as the subject
    python bench/sampler.py --target models/little-target   # greedy decoding by mlx-lm as the subject

Goal: at most 0.5 % of one core, which is 0.3 CPU seconds a minute.
"""

import argparse
import contextlib
import math
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.records import HostSample
from gatekeeper.host import Sampler

GOAL = 0.3
"""CPU seconds a minute."""

UNIT = 2.0
"""Seconds of work compared at a time: long enough for two samples."""

SUBJECT = """
import sys, time, mmap
held = mmap.mmap(-1, int(sys.argv[1]))
held[::4096] = b"x" * len(held[::4096])
target = sys.argv[2]
if target:
    from mlx_lm import load, stream_generate
    model, tokenizer = load(target)
    def work(count):
        for _ in range(count):
            for _ in stream_generate(model, tokenizer, "One, two, three, four,", max_tokens=64):
                pass
else:
    def work(count):
        total = 0
        for number in range(count * 100_000):
            total += number * number
begun = time.perf_counter(); work(1); count = 0
while time.perf_counter() - begun < 1.0:
    work(1); count += 1
count = max(1, round(count * float(sys.argv[3])))
print("ready", flush=True)
for _ in sys.stdin:
    begun = time.perf_counter(); work(count)
    print(time.perf_counter() - begun, flush=True)
"""


@contextlib.contextmanager
def subject(held: int, target: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds *held* bytes and does a unit of work for each line it is sent."""
    argv = [sys.executable, "-c", SUBJECT, str(held), target, str(UNIT)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the subject did not start")
        yield process
    finally:
        process.kill()
        process.wait()


def unit(process: subprocess.Popen[str]) -> float:
    """Return the seconds the subject took for one unit."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def cpu() -> float:
    """Return the CPU seconds of this process and of the tools it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def sampling(pid: int, seen: list[HostSample]) -> Sampler:
    """Return a sampler of this host at 1 Hz."""
    return Sampler(None, clock=SystemClock(), pids=lambda: (pid,), record=seen.append)


def cost(pid: int, seconds: float) -> None:
    """Print the sampler's CPU time a minute."""
    seen: list[HostSample] = []
    with sampling(pid, seen):
        begun, used = time.monotonic(), cpu()
        time.sleep(seconds)
        passed = time.monotonic() - begun
    used = cpu() - used  # the process that reads the host counts once it has ended
    per_minute = used / passed * 60
    late = [sample.late_ns / 1e6 for sample in seen]
    print(f"samples           {len(seen)} in {passed:.1f} s")
    print(f"CPU               {per_minute:.3f} s a minute = {per_minute / 60:.2%} of one core (goal {GOAL} s, 0.50 %)")
    print(f"CPU a sample      median {statistics.median(sample.took_ns for sample in seen) / 1e6:.2f} ms")
    print(f"lateness          median {statistics.median(late):.2f} ms, worst {max(late):.2f} ms")


def change(process: subprocess.Popen[str], pairs: int) -> None:
    """Print how the system's time changes with the sampler on, each pair in alternating order."""
    logs = []
    for number in range(pairs):
        times = {}
        for on in (False, True) if number % 2 == 0 else (True, False):
            with sampling(process.pid, []) if on else contextlib.nullcontext():
                times[on] = unit(process)
        logs.append(math.log(times[True] / times[False]))
    draws = random.Random(7)
    middles = sorted(statistics.median(draws.choices(logs, k=pairs)) for _ in range(2000))
    center, lo, hi = (math.expm1(value) for value in (statistics.median(logs), middles[100], middles[1899]))
    bounds = f"{lo:+.2%} to {hi:+.2%}, 90 % bootstrap over {pairs} pairs of {UNIT:g} s"
    print(f"time with it on   {center:+.2%}, median ({bounds})")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--held", type=int, default=1 << 30, help="bytes the subject holds")
    parser.add_argument("--target", default="", help="a model folder for mlx-lm; default: a CPU-bound loop")
    wanted = parser.parse_args()
    with subject(wanted.held, wanted.target) as process:
        cost(process.pid, wanted.seconds)
        change(process, wanted.pairs)


if __name__ == "__main__":
    main()
