"""Swapping that means pressure: bytes moved to or from swap while memory was short.

A healthy system moves cold pages of idle programs too: macOS 26 wrote 650 MB and read 672 MB in one burst with 28 GB
reclaimable.
"""

from dataclasses import replace

import numpy as np

from gatekeeper.analysis.metrics.host.host_series import HostSamples, increase, readings
from gatekeeper.core.units import show
from gatekeeper.core.verdict import Estimate, Missing

WARNING = 2.0
"""The pressure level that the system calls a warning."""
SHORT = 1 / 8
"""Memory is short while less than this share of it can be had."""


def under_pressure(name: str, host: HostSamples) -> Estimate | Missing:
    """Return how far the counter of swap *name* rose while memory was short, or nothing shows that it was not."""
    counter = host.series(name)
    whole = increase(counter)
    if isinstance(whole, Missing) or whole.center == 0:
        return whole
    pressed = sum(_pressed(name, host))
    if pressed == whole.center:
        return whole
    rest = f"{show(whole.center - pressed, 'B')} more without any pressure, with memory to spare"
    return replace(whole, center=pressed, lo=pressed, hi=pressed, notes=(*whole.notes, rest))


def _pressed(name: str, host: HostSamples) -> list[float]:
    """Return, by segment, the sum of the rises between two samples of which one shows pressure, or does not tell."""
    columns = host.columns
    counts, level = readings(columns, name).numbers, readings(columns, "memory_pressure_level").numbers
    free, total = readings(columns, "memory_headroom").numbers, readings(columns, "memory_total").numbers
    at_ease = (level < WARNING) & (free >= SHORT * total)  # what is not known is not at ease
    rises = []
    for places in host.segments().values():
        known = places[np.isfinite(counts[places])]
        short = ~(at_ease[known][1:] & at_ease[known][:-1])
        rises.append(float(np.diff(counts[known])[short].sum()))
    return rises
