"""How much longer small commands take than `python -c pass`, in alternation.

    python bench/startup.py [--runs 20] [--run RUN] [--json]

Prints medians over the runs, and exits 3 if a goal is missed on this machine: 35 ms more for `--help`, 70 ms more for
`--version`, 490 ms more for `plan` of the quickstart and, with its run as RUN, for `judge`. The goals are of a machine
on which an empty Python takes 10 ms: on one of another speed compare how many empty Pythons a command takes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

EMPTY, HELP, VERSION = "python -c pass", "gatekeeper --help", "gatekeeper --version"
PLAN, JUDGE = "gatekeeper plan slos/quickstart.toml", "gatekeeper judge"
COMMANDS = {
    EMPTY: [sys.executable, "-c", "pass"],
    HELP: [sys.executable, "-m", "gatekeeper", "--help"],
    VERSION: [sys.executable, "-m", "gatekeeper", "--version"],
    "gatekeeper certify --help": [sys.executable, "-m", "gatekeeper", "certify", "--help"],
    PLAN: [sys.executable, "-m", "gatekeeper", "plan", str(Path(__file__).parents[1] / "slos" / "quickstart.toml")],
}
GOALS_S = {HELP: 0.035, VERSION: 0.07, PLAN: 0.49, JUDGE: 0.49}
"""Seconds beyond an empty Python."""


def run_seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    # With bytecode, as an installed package has it: without, every start compiles us anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--run", help="a run of the quickstart, to judge")
    options = parser.parse_args()
    judge = {JUDGE: [sys.executable, "-m", "gatekeeper", "judge", options.run]} if options.run else {}
    commands = COMMANDS | judge
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.runs + 1):
        for name, command in commands.items():
            times[name].append(run_seconds(command))
    medians = {name: statistics.median(runs[1:]) for name, runs in times.items()}  # the first warms the disk cache
    above = {name: medians[name] - medians[EMPTY] for name in GOALS_S if name in medians}
    met = all(seconds <= GOALS_S[name] for name, seconds in above.items())
    if options.json:
        print(json.dumps({"median_s": medians, "above_s": above, "goal_s": GOALS_S, "met": met, "runs": options.runs}))
        return 0 if met else 3
    for name, value in medians.items():
        print(f"{name:<38} {value * 1000:6.1f} ms {value / medians[EMPTY]:5.1f} empty Pythons")
    for name, longer in above.items():
        verdict = "met" if longer <= GOALS_S[name] else "not met"
        print(f"{name} takes {longer * 1000:.0f} ms more; goal: at most {GOALS_S[name] * 1000:.0f} ms: {verdict}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
