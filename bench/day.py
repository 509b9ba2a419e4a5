"""What a soak of a whole day takes of the machine it measures: the memory of the gate, and the time to judge the run.

    python bench/day.py [--hours 24] [--keep DIR]

The gate certifies a scripted system on its virtual clock, with the real sampler of this machine, so a day passes in
minutes: a host sample a second, and an answer of 200 tokens every three. `gatekeeper judge` then reads the run. Each is
a process of its own; memory is the most it ever held (ru_maxrss), and the scripted system has no worker beside it.
Goals for 24 hours: the gate at most 250 MB; judging at most 200 MB and 5 s of CPU, on a machine that does nothing else.
Exit code 3: a goal is missed on this machine. The judged verdict must be the one that was stored, byte for byte, or
the exit code is 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CANARIES, TOKENS = 100, 200
WORKLOADS = ("chat", "code", "prose")
GATE_BYTES, JUDGE_BYTES, JUDGE_CPU_S = 250e6, 200e6, 5.0
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes: `ru_maxrss` counts kilobytes on Linux."""
OBJECTIVES = {
    "throughput_ratio": "at_least = 1.1",
    "decode_throughput": "at_least = 20",
    "itl_p95": 'at_most = "900 ms"',
    "ttft_delta": "at_most = 1",
    "acceptance_rate": "at_least = 0.5",
    "acceptance_window_min": "at_least = 0.3",
    "token_agreement": "at_least = 1",
    "error_rate": "at_most = 0",
    "memory_headroom": 'at_least = "0 B"',
    "swap_growth": 'at_most = "100 GB"',
}
SLO = """\
schema = 1
name = "day"
why = "As many records as a long soak writes."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[sampling]
max_tokens = {tokens}

[sweep]
repeats = 1
budget = 12
num_draft_tokens = [4]

[soak]
duration = "{seconds} s"
max_duration = "{most} s"
window = "300 s"
baseline_share = 0.5
"""
SCRIPT = {
    "token": "18 ms",
    "prefill": "40 ms",
    "verify": "22 ms",
    "draft_token": "6 ms",
    "acceptance": 0.9,
    "tokens": TOKENS,
    "noise": {"answer": 0.03, "token": 0.05},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command took."""

    command: str
    cpu_s: float
    peak_bytes: int
    code: int


def write_inputs(folder: Path, hours: float) -> Path:
    """Write the SLO, its script and its canaries; return the SLO's path."""
    seconds = round(hours * 3600)
    text = SLO.format(tokens=TOKENS, seconds=seconds, most=2 * seconds)
    text += "".join(f'\n[[workload]]\nname = "{name}"\ncanaries = "{name}.jsonl"\n' for name in WORKLOADS)
    text += "".join(
        f'\n[[objective]]\nmetric = "{metric}"\n{bound}\nwhy = "It reads the records."\n'
        for metric, bound in OBJECTIVES.items()
    )
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    for name in WORKLOADS:
        lines = [
            {"id": f"{name}-{number:03}", "messages": [{"role": "user", "content": f"Say line {number} of {name}."}]}
            for number in range(CANARIES)
        ]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    path = folder / "day.toml"
    path.write_text(text)
    return path


def cost(*arguments: str) -> tuple[Cost, bytes]:
    """Run a command of gatekeeper; return what it took, and its output."""
    # With bytecode, as an installed package has it: without, every start compiles us anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen([sys.executable, "-m", "gatekeeper", *arguments], stdout=subprocess.PIPE, env=environment)
    output = child.stdout.read() if child.stdout is not None else b""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = used.ru_utime + used.ru_stime
    return Cost(arguments[0], seconds, used.ru_maxrss * MAXRSS_UNIT, child.returncode), output


def size(run: Path) -> dict[str, int]:
    """Return how much a run recorded."""
    names = ("soak-1.jsonl", "host.jsonl")
    lines = {name: (run / name).read_bytes().count(b"\n") - 1 for name in names}
    verdict = json.loads((run / "verdict.json").read_bytes())
    measured = sum(one["measured"]["answers"] + one["measured"]["plain_answers"] for one in verdict["workloads"])
    return {
        "answers": lines["soak-1.jsonl"],
        "tokens": TOKENS * measured,
        "samples": lines["host.jsonl"],
        "bytes": sum((run / name).stat().st_size for name in names),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--keep", type=Path, help="an empty folder for the run, which is otherwise deleted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        slo, run = write_inputs(folder, options.hours), folder / "run"
        gate, _ = cost("certify", str(slo), "--out", str(run), "--quiet")
        if not (run / "verdict.json").exists():
            sys.exit(f"certify ended with code {gate.code} and without a verdict: its message is above")
        judge, document = cost("judge", str(run), "--json")
        same = document == (run / "verdict.json").read_bytes()
        recorded = size(run)
    met = gate.peak_bytes <= GATE_BYTES and judge.peak_bytes <= JUDGE_BYTES and judge.cpu_s <= JUDGE_CPU_S
    print("  ".join(f"{name} {count:,}" for name, count in recorded.items()))
    for took in (gate, judge):
        print(f"{took.command:<8} {took.peak_bytes / 1e6:7.0f} MB  {took.cpu_s:7.1f} s CPU  code {took.code}")
    print(f"verdict {'the same' if same else 'DIFFERENT'}; goals {'met' if met else 'not met'}")
    return (0 if met else 3) if same else 1


if __name__ == "__main__":
    sys.exit(main())
