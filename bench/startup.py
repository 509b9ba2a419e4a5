"""How much longer `gatekeeper --help` and `--version` take than `python -c pass`, in alternation.

    python bench/startup.py [--runs 20] [--json]

Prints medians over the runs, and exits 3 if a goal is missed on this machine: 35 ms more for `--help`, 70 ms more for
`--version`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

EMPTY, HELP, VERSION = "python -c pass", "gatekeeper --help", "gatekeeper --version"
COMMANDS = {
    EMPTY: [sys.executable, "-c", "pass"],
    HELP: [sys.executable, "-m", "gatekeeper", "--help"],
    VERSION: [sys.executable, "-m", "gatekeeper", "--version"],
    "gatekeeper certify --help": [sys.executable, "-m", "gatekeeper", "certify", "--help"],
}
GOALS_S = {HELP: 0.035, VERSION: 0.07}
"""Seconds beyond an empty Python."""


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    # With bytecode, as an installed package has it: without, every start compiles us anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.runs + 1):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(runs[1:]) for name, runs in times.items()}  # the first warms the disk cache
    above = {name: medians[name] - medians[EMPTY] for name in GOALS_S}
    met = all(above[name] <= goal for name, goal in GOALS_S.items())
    if options.json:
        print(json.dumps({"median_s": medians, "above_s": above, "goal_s": GOALS_S, "met": met, "runs": options.runs}))
        return 0 if met else 3
    for name, value in medians.items():
        print(f"{name:<28} {value * 1000:6.1f} ms")
    for name, goal in GOALS_S.items():
        verdict = "met" if above[name] <= goal else "not met"
        print(f"{name} takes {above[name] * 1000:.0f} ms more; goal: at most {goal * 1000:.0f} ms: {verdict}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
