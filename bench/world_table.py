"""A table of simulations, a row for each world: what the benches of comparisons between versions and nights print."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

World = TypeVar("World")
GAP = 2
"""Spaces between two columns."""


def print_table(
    about: str, runs: tuple[str, int], worlds: Iterable[World], cells: Callable[[World, int, int], Mapping[str, str]]
) -> None:
    """Print a row for each of *worlds* as it is simulated, by *cells* of a world, a number of runs and a seed.

    *about* is the help of the command, *runs* what there are many of in a row, and how many by default.
    """
    of, default = runs
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{of}", type=int, default=default, dest="runs", help=f"{of} of a row (default: {default})")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    widths: dict[str, int] = {}
    for world in worlds:
        row = cells(world, options.runs, options.seed)
        if not widths:
            widths = {name: GAP + max(len(name), len(cell)) for name, cell in row.items()}
            print("".join(f"{name:>{width}}" for name, width in widths.items()))
        print("".join(f"{row[name]:>{width}}" for name, width in widths.items()), flush=True)
    print(f"{options.runs} {of} a row")
