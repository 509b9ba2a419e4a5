"""How much longer `gatekeeper --help` takes than `python -c pass`, in alternation; goal: at most 80 ms.

    python bench/startup.py [--runs 20] [--json]

Prints medians over the runs, and exits 3 if the goal is missed on this machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

GOAL_S = 0.08
EMPTY, HELP = "python -c pass", "gatekeeper --help"
COMMANDS = {
    EMPTY: [sys.executable, "-c", "pass"],
    HELP: [sys.executable, "-m", "gatekeeper", "--help"],
    "gatekeeper certify --help": [sys.executable, "-m", "gatekeeper", "certify", "--help"],
}


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
    medians = {name: statistics.median(seen[1:]) for name, seen in times.items()}  # the first run warms the disk cache
    above = medians[HELP] - medians[EMPTY]
    met = above <= GOAL_S
    if options.json:
        print(json.dumps({"median_s": medians, "above_s": above, "goal_s": GOAL_S, "met": met, "runs": options.runs}))
    else:
        for name, value in medians.items():
            print(f"{name:<28} {value * 1000:6.1f} ms")
        verdict = "met" if met else "not met"
        print(f"--help takes {above * 1000:.0f} ms more; goal: at most {GOAL_S * 1000:.0f} ms: {verdict}")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
