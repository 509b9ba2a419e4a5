"""How exactness is judged where another kernel reads several tokens: sound drafts, and planted defects.

    python -m bench.exactness

A run is 58 canaries of each of four kinds of work, answered by the little pair in both arms. The target's passes of
several tokens have noise in their logits, or behind a layer. Each run is judged as `certify` judges it, by what four
kinds of backend show.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from bench.exactness.cells import ENGINE, MIDDLE, RATES, SCALES, SHARES, Cell, Ends, Plan, Results, flip_rates, measure
from bench.exactness.defects import Kind
from bench.exactness.evidence import LittlePair
from bench.exactness.judged import Shown
from gatekeeper.analysis.stats import intervals

CONFIDENCE = 0.95
QUICK = ("0", MIDDLE)
"""Shares of flips of a quick look."""
TITLES = {
    "unverified": "a drafted token kept unverified",
    "shifted": "positions shifted after a rollback",
    "stale": "a stale cache row after a rejection",
    "dropped": "the last token of a round dropped",
    "ties": "the draft's token at a tie",
    "grammar": "a grammar ignored while verifying",
    "repetition": "repetition, by the kernel",
}
OF = {"ties": "", "grammar": "of tokens", "repetition": "of answers"}


def share(count: int, runs: int) -> str:
    """Return a count of runs with the Clopper-Pearson bounds of its share."""
    lo, hi = intervals.proportion_bounds(count, runs, CONFIDENCE)
    return f"{count} of {runs} ({lo:.0%} to {hi:.0%})"


def _table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def sound_table(results: Results, rates: Mapping[str, tuple[float, float]]) -> str:
    """Write how often sound drafts are promoted, by the share of tokens that numerics change."""
    header = results.shown

    def rows() -> Iterator[Sequence[str]]:
        for flips in filter(lambda flips: Cell(flips) in results.ends, SHARES):
            ends = results.ends[Cell(flips)]
            measured = f"{rates[flips][0]:.2%} (prose {rates[flips][1]:.1%})" if flips in rates else "inside a layer"
            yield measured, *(f"{ends[shown].promoted} of {ends[shown].runs}" for shown in header)
            with_quality = (f"{ends[shown].promoted_with_quality} of {ends[shown].runs}" for shown in header)
            yield "… with quality within 0.5 %", *with_quality

    return _table(("flips a token", *header), rows())


def defect_table(results: Results) -> str:
    """Write how often each defect fails, by its rate."""

    def rows() -> Iterator[Sequence[str]]:
        for cell, ends in results.ends.items():
            if cell.kind:
                rate = "" if cell.kind == "ties" else f"{cell.rate:.1%} {OF.get(cell.kind, 'of rounds')}"
                found = (f"{ends[shown].failed} of {ends[shown].runs}" for shown in results.shown)
                yield TITLES[cell.kind], rate, cell.flips, *found

    return _table(("defect", "rate", "flips a token", *results.shown), rows())


def pooled(results: Results, shown: Shown, *, rate: float, kinds: Sequence[str]) -> Ends:
    """Return the sum over the shares of flips of some defects at one rate."""
    total = Ends()
    for cell, by_shown in results.ends.items():
        if cell.kind in kinds and cell.rate == rate:
            total.runs += by_shown[shown].runs
            total.failed += by_shown[shown].failed
    return total


def figures(results: Results) -> Iterator[str]:
    """Write the figures that have a goal."""
    for shown in results.shown:
        sound = [results.ends[Cell(flips)][shown] for flips in SCALES if Cell(flips) in results.ends]
        promoted, runs = sum(ends.promoted for ends in sound), sum(ends.runs for ends in sound)
        yield f"sound drafts promoted, {shown}, flips of 0 to 5 %: {share(promoted, runs)}"
    for shown, rate in ((Shown.ROUNDS, 0.01), (Shown.LEADS, 0.02), (Shown.PASSES, 0.02)):
        for kind in ENGINE if shown in results.shown else ():
            ends = pooled(results, shown, rate=rate, kinds=[kind])
            if ends.runs:
                found = share(ends.failed, ends.runs)
                yield f"{TITLES[kind]} in {rate:.0%} of rounds, {shown}, any flips: {found} found"
    for shown in results.shown:
        ends = results.ends.get(Cell(MIDDLE, "repetition", 0.05), {}).get(shown, Ends())
        if ends.runs:
            yield f"repetition in 5 % of answers, {shown}: {share(ends.failed, ends.runs)} found"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sound", type=int, default=40, help="runs of a sound draft at each share (default: 40)")
    parser.add_argument("--defective", type=int, default=16, help="runs of each defect (default: 16)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--quick", action="store_true", help="one run of each cell, at two shares of flips")
    parser.add_argument("--kinds", nargs="*", type=Kind, default=tuple(RATES), help="defects to plant (default: all)")
    parser.add_argument("--rates", nargs="+", type=float, default=(), help="of the defects (default: all)")
    parser.add_argument("--shares", nargs="+", choices=SHARES, default=SHARES, help="shares of flips (default: all)")
    parser.add_argument("--shown", nargs="+", type=Shown, default=tuple(Shown), help="kinds of backend (default: all)")
    chosen = parser.parse_args()
    rates = flip_rates(LittlePair())
    sound, defective, shares = (1, 1, QUICK) if chosen.quick else (chosen.sound, chosen.defective, chosen.shares)
    plan = Plan(sound, defective, tuple(chosen.kinds), tuple(chosen.shown), tuple(chosen.rates))
    results = Results()
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for part in pool.map(measure, shares, repeat(plan)):
            results.join(part)
    print(sound_table(results, rates), defect_table(results), "\n".join(figures(results)), sep="\n\n")


if __name__ == "__main__":
    main()
