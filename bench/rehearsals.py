"""Every shipped SLO file on a simulated machine of its kind: promoted, graded back and unproven, as one table.

    python -m bench.rehearsals                       # all of them: a few minutes on two cores
    python -m bench.rehearsals m3-ultra-512gb --why  # some, with every reason
    python -m bench.rehearsals --write               # also into bench/published/rehearsals.txt

A row is a whole run of the real pipeline on the rates of `bench/machines`: on its own rates, or with times of drafting
that are scaled so that the best swept setting decodes so many times as fast as plain decoding. Nothing ran on a Mac.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.rehearsal import Rehearsed, rehearse
from bench.simulated_mac import host_of, script_of
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.system import inputs

ROOT = Path(__file__).resolve().parents[1]
SLOS = ROOT / "slos"
PAGE = ROOT / "bench" / "published" / "rehearsals.txt"
MACHINE_OF = {
    "m4-24gb": "m4",
    "m4-24gb-inprocess": "m4",
    "m4-24gb-nightly": "m4",
    "m4-24gb-used": "m4",
    "m4-16gb": "m4",
    "m5-pro-48gb": "m5-pro-8b-dflash",
    "m2-ultra-64gb": "m2-ultra-30b",
    "m2-ultra-64gb-4b": "m2-ultra-4b",
    "m2-ultra-64gb-gguf": "m2-ultra-30b-gguf",
    "m3-ultra-512gb": "m3-ultra-235b",
    "llama-server": "m4-8b-gguf",
    "llama-server-mtp": "m4-9b-mtp",
    "dflash-mlx": "m5-pro-8b-dflash",
    "mtplx": "m4-pro-27b-mtplx",
    "lmstudio": "m4-8b",
    "ollama": "m4-8b",
}
"""The machine, of `bench/machines`, on which each SLO file is rehearsed."""
GAIN = 1.3
"""An honest gain: an eighth above the bound of 1.16x that most files have, for the noise of a run."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One SLO file on one machine."""

    slo: str
    truth: float | None
    """None: the machine's own rates."""
    fault: str = "none"

    @property
    def told(self) -> str:
        """Return what is true of the simulated machine, in words."""
        rates = "its own rates" if self.truth is None else f"{self.truth:g}x"
        return rates if self.fault == "none" else f"{rates}, {WORDS[self.fault]}"

    def run(self) -> Rehearsed:
        """Make the whole run."""
        given = inputs.read(SLOS / f"{self.slo}.toml")
        script = script_of(MACHINE_OF[self.slo], given.slo, given.canaries, self.truth, self.fault)
        host = host_of(given.slo, self.fault)
        return rehearse(given.slo, given.canaries, script, 1, profile=given.profile, host=host)

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        run = self.run()
        minutes, verdict = sum(run.seconds.values()) / 60, run.verdict
        by_outcome = {
            outcome: ", ".join(one.name for one in verdict.workloads if one.outcome == outcome)
            for outcome in ("promoted", "graded_back", "unproven", "failed")
        }
        host = "host" * (verdict.outcome in {"unproven", "failed"} and bool(host_reasons(run)))
        open_or_failed = ", ".join(filter(None, (by_outcome["unproven"], by_outcome["failed"], host)))
        some = (by_outcome["promoted"], by_outcome["graded_back"], open_or_failed)
        return (self.slo, self.told, str(int(verdict.exit_code)), *some, reason(run), f"{minutes:.0f} min")


WORDS = {
    "blind": "GPU not visible",
    "unstable": "plain answers of two speeds",
    "leak": "a leak of 3.6 GB/h",
    "throttle": "throttled for a minute",
    "squeeze": "short of memory",
    "tools": "wrong tool calls",
    "wired": "memory stays wired through a pause",
}


def rehearsals(names: Iterable[str] = MACHINE_OF) -> Iterator[Rehearsal]:
    """Yield the rehearsals of the files *names*: its own rates, a gain, no gain, and one that cannot be proven."""
    for name in names:
        yield from (Rehearsal(name, truth) for truth in (None, GAIN, 0.9))
        yield Rehearsal(name, GAIN, "unstable")
        if name == "m4-24gb":
            yield from (Rehearsal(name, GAIN, fault) for fault in ("blind", "leak", "throttle", "squeeze", "tools"))
            yield Rehearsal(name, None, "wired")


def reasons(run: Rehearsed) -> Iterator[str]:
    """Yield how long each stage takes, and why what is not promoted is not."""
    yield ", ".join(f"{stage} {seconds / 60:.1f} min" for stage, seconds in run.seconds.items())
    workloads = run.verdict.workloads
    for owner, checks in (("host", run.verdict.host_checks), *((one.name, one.checks) for one in workloads)):
        for check in checks:
            if check.outcome is not Outcome.PASS:
                yield f"{owner}: {check.metric}: {check.because}"
    yield from (f"{step.workload}: {step.because}" for step in run.verdict.transitions)


_NAMED = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+(?=:)")
"""The metrics and findings that a reason names."""


def host_reasons(run: Rehearsed) -> list[str]:
    """Return the metrics of the host checks that did not pass."""
    return [check.metric for check in run.verdict.host_checks if check.outcome is not Outcome.PASS]


def reason(run: Rehearsed) -> str:
    """Return why not everything was promoted: the metrics of checks, findings, or what the sweep found."""
    found = dict.fromkeys(host_reasons(run))
    for step in run.verdict.transitions:
        slower = "no draft setting is faster" in step.because
        found |= dict.fromkeys(["slower in the sweep"] if slower else _NAMED.findall(step.because))
    for workload in run.verdict.workloads:
        if workload.outcome in {"unproven", "failed"}:
            checks = [one.metric for one in workload.checks if one.outcome is not Outcome.PASS]
            found |= dict.fromkeys(_NAMED.findall(workload.because) or checks)
    return ", ".join(found)


HEAD = (
    "SLO file",
    "truth",
    "exit code",
    "promoted",
    "plain decoding",
    "unproven or failed",
    "because of",
    "virtual time",
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return the rows as a Markdown table."""
    names = tuple(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (names, ("---",) * len(names), *rows))


def page(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the tables of the page: a row an SLO file with a column a truth, then the faults of one file alone."""
    by_slo: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in rows:
        by_slo.setdefault(row[0], {})[row[1]] = row
    truths = [truth for truth in next(iter(by_slo.values())) if all(truth in row for row in by_slo.values())]
    shown = truths[:2]  # of the others docs/accuracy.md says in a line how all files end
    cells = [
        (slo, *(f"{row[2]}: {row[3] or 'none'}; {row[7]}" for row in (of_slo[truth] for truth in shown)))
        for slo, of_slo in by_slo.items()
    ]
    faults = [row for of_slo in by_slo.values() for truth, row in of_slo.items() if truth not in truths]
    return table((HEAD[0], *shown), cells) + "\n\n" + table(HEAD, faults)


def main() -> None:
    """Rehearse and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slo", nargs="*", choices=[*MACHINE_OF, []], help="names of shipped files; default: all")
    parser.add_argument(
        "--write", action="store_true", help="also write the tables into bench/published/rehearsals.txt"
    )
    parser.add_argument("--why", action="store_true", help="print every reason instead of the tables")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.why:
        for rehearsal in rehearsals(given.slo or MACHINE_OF):
            print(f"{rehearsal.slo}, {rehearsal.told}:", *reasons(rehearsal.run()), sep="\n    ", flush=True)
        return
    with ProcessPoolExecutor(given.jobs) as pool:
        rows = []
        for row in pool.map(Rehearsal.row, rehearsals(given.slo or MACHINE_OF)):
            rows.append(row)
            print("\t".join(row), file=sys.stderr, flush=True)
    print(table(HEAD, rows))
    if given.write:
        PAGE.write_text(f"{page(rows)}\n", "utf-8")


if __name__ == "__main__":
    main()
