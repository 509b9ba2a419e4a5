"""How much longer small commands take than `python -c pass`, in alternation.

    python bench/startup.py [--runs 20] [--run RUN]

Prints medians over the runs, and exits 3 if a command takes more empty Pythons than its goal allows. Where an empty
Python takes 10 ms the goals are 45 ms for `--help`, 80 ms for `--version`, and 500 ms for `plan` of the quickstart and,
with its run as RUN, for `judge`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

EMPTY, HELP, VERSION = "python -c pass", "gatekeeper --help", "gatekeeper --version"
PLAN, JUDGE = "gatekeeper plan slos/quickstart.toml", "gatekeeper judge"
PROGRAM = str(Path(sys.executable).with_name("gatekeeper"))
COMMANDS = {
    EMPTY: [sys.executable, "-c", "pass"],
    HELP: [PROGRAM, "--help"],
    VERSION: [PROGRAM, "--version"],
    "gatekeeper certify --help": [PROGRAM, "certify", "--help"],
    PLAN: [PROGRAM, "plan", str(Path(__file__).parents[1] / "slos" / "quickstart.toml")],
}
GOALS = {HELP: 4.5, VERSION: 8.0, PLAN: 50.0, JUDGE: 50.0}
"""How many empty Pythons a command may take: machines differ in speed, and one from hour to hour."""


def run_seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    # With bytecode, as an installed package has it: without, every start compiles us anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--run", help="a run of the quickstart, to judge")
    options = parser.parse_args()
    judge = {JUDGE: [PROGRAM, "judge", options.run]} if options.run else {}
    commands = COMMANDS | judge
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.runs + 1):
        for name, command in commands.items():
            times[name].append(run_seconds(command))
    medians = {name: statistics.median(runs[1:]) for name, runs in times.items()}  # the first warms the disk cache
    empties = {name: seconds / medians[EMPTY] for name, seconds in medians.items()}
    met = all(empties[name] <= goal for name, goal in GOALS.items() if name in empties)
    for name, value in medians.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None else f"  goal {goal:g}: {'met' if empties[name] <= goal else 'not met'}"
        print(f"{name:<38} {value * 1000:6.1f} ms {empties[name]:5.1f} empty Pythons{verdict}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
