"""How near `[capacity]` comes to a capacity that is known, and in what time, beside the searches of other tools.

python -m bench.capacity                                      # ours alone
python -m bench.capacity --guidellm GUIDELLM --aiperf AIPERF  # programs in environments of their own
python -m bench.capacity --simulated 300                      # how often our interval holds the truth, without a server

For each capacity a server of `bench.capacity_server` is started whose 95 % quantile of the time per token meets the
bound half a stream above it. Each search takes it as it is installed, the others with 72 answers a probe, of which ours
has at least 79. Two times are printed, both by the server's clock: from the first request of a search to its
last answer, and the part of it with a request under way, which leaves out what a program does between its probes.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

from bench.capacity_server import Q95, TOKENS
from gatekeeper.analysis.stats.bound_tests import is_broken, is_kept, measured_quantile
from gatekeeper.analysis.stats.intervals import WeightedValues, samples_needed
from gatekeeper.analysis.stats.stream_search import SHORT, Reach, StreamProbe, StreamReading, most_streams
from gatekeeper.core.slo.capacity_table import Capacity
from gatekeeper.core.verdict import Outcome

ROOT = Path(__file__).resolve().parents[1]
BASE, STEP, SPREAD = 0.04, 0.004, 0.05
MOST = 32
"""Streams that each search may try."""
ANSWERS = 72
PROMPTS = 96


@dataclass(frozen=True)
class Found:
    """What a search said of a capacity, and how long it took."""

    least: int | None
    most: int | None
    """The upper end of an interval, where it gives one."""
    seconds: float
    under_way: float
    answers: int

    def error(self, capacity: int) -> int | None:
        """Return how many streams its number is off: the most that it says keep the bound."""
        return None if self.least is None else abs(self.least - capacity)


@contextmanager
def known_server(*options: str) -> Iterator[str]:
    """Start the server; yield its address."""
    command = [sys.executable, "-m", "bench.capacity_server", "--base", str(BASE), "--step", str(STEP)]
    server = subprocess.Popen(
        [*command, "--spread", str(SPREAD), *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


def bound_of(capacity: int) -> float:
    """Return the seconds per token that a capacity keeps in 95 % of the answers, and one stream more does not."""
    return (BASE + STEP * (capacity - 0.5)) * math.exp(Q95 * SPREAD)


def timed(url: str, least: int | None, most: int | None, since: float = 0.0) -> Found:
    """Return what a search found, with the server's times of its requests *since* then."""
    with urlopen(f"{url}/record") as answer:  # noqa: S310 (our own server)
        spans = sorted(span[:2] for span in json.load(answer)["spans"] if span[0] >= since)
    under_way, until = 0.0, 0.0
    for begun, ended in spans:
        under_way += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return Found(least, most, until - spans[0][0] if spans else 0.0, under_way, len(spans))


def ours(url: str, bound: float, folder: Path) -> Found:
    """Run `gatekeeper certify`; only its search counts, not the soak before it."""
    canaries = ({"id": f"c-{n}", "messages": [{"role": "user", "content": f"Say {n}."}]} for n in range(PROMPTS))
    (folder / "known.jsonl").write_text("".join(f"{json.dumps(canary)}\n" for canary in canaries))
    (folder / "slo.toml").write_text(
        f"""schema = 1
name = "known"
[subject]
backend = "openai"
target = "{ROOT / "models" / "little-target"}"
served_model_name = "known"
url = "{url}/v1"
[[workload]]
name = "known"
canaries = "known.jsonl"
speculation = "optional"
[sweep]
repeats = 1
[soak]
duration = "1 s"
concurrency = 4
[capacity]
streams = {MOST}
[[objective]]
metric = "tpot_p95"
at_most = "{bound * 1000:.3f} ms"
why = "the bench knows how many streams keep it"
"""
    )
    command = [sys.executable, "-m", "gatekeeper", "certify", "slo.toml", "--out", "run", "--quiet"]
    ran = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)
    if not (folder / "run" / "verdict.json").exists():
        raise SystemExit(ran.stderr)
    verdict = json.loads((folder / "run" / "verdict.json").read_text())
    capacity = verdict["workloads"][0].get("capacity")
    if capacity is None:
        raise SystemExit(f"no capacity was measured: {verdict['workloads'][0]['because']}\n{ran.stderr}")
    lines = map(json.loads, (folder / "run" / "events.jsonl").read_text().splitlines()[:-1])
    begun = next(event["at"] for event in lines if event.get("detail", {}).get("stage") == "capacity")
    least, most = (capacity["plain"][end] for end in ("at_least", "at_most"))
    return timed(url, least, most, datetime.fromisoformat(begun).timestamp())


def _environment() -> dict[str, str]:
    import os  # noqa: PLC0415 (here alone)

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def guidellm(program: str, url: str, bound: float, folder: Path) -> Found:
    """Run the goodput profile of GuideLLM, which asks for 95 % of the requests within the bound."""
    prompts = ({"prompt": f"Say {n}."} for n in range(PROMPTS * 10))
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    objectives = {"kind": "generative", "slo": {"tpot_ms": bound * 1000}}
    command = [
        program, "run", "--backend", f"kind=openai_http,target={url},model=known",
        "--profile", f"kind=goodput,max_streams={MOST},tolerance=0.01",
        "--constraint", f"kind=max_requests,count={ANSWERS}", "--metrics", json.dumps(objectives),
        "--data", "kind=json_file,path=prompts.jsonl", "--output", "kind=json,path=found.json",
        "--disable-console-interactive",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    search = json.loads((folder / "found.json").read_text())["conclusions"][0]
    return timed(url, search["best_passing_streams"], None)


def aiperf(program: str, url: str, bound: float, folder: Path) -> Found:
    """Run AIPerf's recipe of the highest concurrency under an objective."""
    prompts = ({"text": f"Say {n}."} for n in range(PROMPTS))
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    command = [
        program, "profile", "--url", url, "--model", "known", "--endpoint-type", "chat", "--streaming",
        "--use-server-token-count", "--tokenizer", str(ROOT / "models" / "little-target"),
        "--input-file", "prompts.jsonl", "--custom-dataset-type", "single_turn",
        "--search-recipe", "max-concurrency-under-sla", "--itl-sla-ms", f"{bound * 1000:.3f}",
        "--concurrency-max", str(MOST), "--request-count", str(ANSWERS), "--artifact-dir", "found", "--ui", "none",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    boundary: dict[str, Any] = json.loads((folder / "found" / "search_history.json").read_text())["boundary_summary"]
    value = (boundary.get("feasible_max") or {}).get("value")
    return timed(url, round(value) if value is not None else None, None)


def simulated(capacity: int, longest: float, random_numbers: random.Random) -> tuple[Reach, float]:
    """Return what our search finds of a server with these times, and the seconds that its probes take."""
    bound, drawn, total = bound_of(capacity), dict[int, list[float]](), 0.0

    def read(probe: StreamProbe) -> StreamReading:
        nonlocal total
        gap = BASE + STEP * (probe.streams - 1)
        least = max(samples_needed(0.95, 1 - probe.error), 2 * probe.streams) if probe.full else SHORT
        count, answers = probe.times * max(least, probe.streams), drawn.setdefault(probe.streams, [])
        total += max(0, count - len(answers)) * TOKENS * gap / probe.streams
        answers += [gap * random_numbers.lognormvariate(0, SPREAD) for _ in range(count - len(answers))]
        values = WeightedValues.of((str(number), [(value, 1.0)]) for number, value in enumerate(answers[:count]))
        share, seconds = measured_quantile(values, 0.95) / bound, count * TOKENS * gap / probe.streams
        if is_broken(values, bound, 0.95, probe.error_broken):
            return StreamReading(Outcome.FAIL, share, seconds)
        kept = probe.full and is_kept(values, bound, 0.95, probe.error)
        return StreamReading(Outcome.PASS if kept else Outcome.UNPROVEN, share, seconds)

    search = most_streams(MOST, 0.05, 4, longest)
    probe = next(search)
    while True:
        try:
            probe = search.send(read(probe))
        except StopIteration as ended:
            return ended.value, total


def simulate(capacities: Sequence[int], runs: int) -> None:
    """Print how often the interval holds each capacity, and how often it is that number alone."""
    print("capacity  longest  too high  too low  exact  seconds")
    for capacity in capacities:
        for longest in (0.0, Capacity().max_duration):
            reaches = [simulated(capacity, longest, random.Random(seed)) for seed in range(runs)]
            shares = [
                sum(map(test, reaches)) / runs
                for test in (
                    lambda run, truth=capacity: run[0].least > truth,
                    lambda run, truth=capacity: (run[0].most or MOST) < truth,
                    lambda run, truth=capacity: run[0] == Reach(truth, truth),
                )
            ]
            high, low, exact = (f"{share:.1%}" for share in shares)
            print(
                f"{capacity:8}  {longest:7g}  {high:>8}  {low:>7}  {exact:>5}  {median(run[1] for run in reaches):7.0f}"
            )


Search = Callable[[str, float, Path], Found]


def searches(options: argparse.Namespace) -> dict[str, Search]:
    """Return the searches to try, by name."""
    tried: dict[str, Search] = {"gatekeeper": ours}
    if options.guidellm:
        tried["GuideLLM"] = lambda url, bound, folder: guidellm(options.guidellm, url, bound, folder)
    if options.aiperf:
        tried["AIPerf"] = lambda url, bound, folder: aiperf(options.aiperf, url, bound, folder)
    return {name: search for name, search in tried.items() if name in (options.only or tried)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what each search finds of each capacity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacities", type=int, nargs="+", default=[5, 12, 20])
    parser.add_argument("--guidellm", help="the program guidellm")
    parser.add_argument("--aiperf", help="the program aiperf")
    parser.add_argument("--only", nargs="+", help="the searches to try, by name")
    parser.add_argument("--simulated", type=int, metavar="RUNS", help="count how often our interval holds the truth")
    options = parser.parse_args(arguments)
    if options.simulated:
        simulate(options.capacities, options.simulated)
        return
    print("capacity  search      found     error   seconds  under way  answers")
    for capacity in options.capacities:
        for name, search in searches(options).items():
            with known_server() as url, tempfile.TemporaryDirectory() as folder:
                found = search(url, bound_of(capacity), Path(folder))
            error = found.error(capacity)
            said = f"{found.least}" if found.most is None else f"{found.least} to {found.most}"
            figures = f"{'-' if error is None else f'{error:g}':>5}  {found.seconds:8.1f}  {found.under_way:9.1f}"
            print(f"{capacity:8}  {name:10}  {said:8}  {figures}  {found.answers:7}", flush=True)


if __name__ == "__main__":
    main()
