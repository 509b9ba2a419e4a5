"""How exactness is judged where another kernel reads several tokens: sound drafts, and planted defects.

    python -m bench.exactness

A run is 58 canaries of each of four kinds of work, answered by the little pair in both arms. The target's passes of
several tokens have noise in their logits, or behind a layer. Each run is judged as `certify` judges it, by what four
kinds of backend show.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from bench.exactness.cells import (
    QUICK,
    RATES,
    SHARES,
    Plan,
    Results,
    defect_table,
    figures,
    flip_rates,
    measure,
    sound_table,
)
from bench.exactness.evidence import LittlePair
from bench.exactness.judged import Shown
from bench.exactness.planted import Kind


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
