"""Quantities with units: "900 ms" is read as 0.9, and 1.4e9 is printed as "1.4 GB"."""

import math
import re
from decimal import Decimal

from gatekeeper.core.errors import nearest_word
from gatekeeper.core.text import compare_speed, quote

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# People write both decimal and binary prefixes; neither is guessed from the other.
BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12} | {
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
BYTE_RATES = {f"{unit}/s": factor for unit, factor in BYTES.items()} | {
    f"{unit}/{per}": factor / SECONDS[per] for unit, factor in BYTES.items() for per in ("min", "h")
}
EVENT_RATES = {"/s": 1.0, "/min": 1 / 60.0, "/h": 1 / 3600.0}
OTHERS = {"tok/s": 1.0, "W": 1.0, "mW": 1e-3, "J": 1.0, "Hz": 1.0, "MHz": 1e6, "GHz": 1e9, "rpm": 1.0, "%": 0.01}
UNITS_OF: dict[str, dict[str, float]] = {
    "1": {"%": 0.01},
    "s": SECONDS,
    "B": BYTES,
    "B/s": BYTE_RATES,
    "W": {"W": 1.0, "mW": 1e-3},
    **{unit: {unit: 1.0} for unit in ("tok", "tok/s", "J", "rpm", "nats")},
}
"""The units that a bound may have, by the base unit of its metric: "10 s" of memory is an error."""

SMALLEST = 1e-6
"""What is nearer to 0 is printed as smaller than this."""
LARGE_RATIO = 99.5
"""From here on a ratio has no digits after its point."""
_LONGEST = 400
"""Characters of a quantity: the largest number written out has 309 digits."""
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/%]*)\s*")


def parse(written: object, units: dict[str, float]) -> float:
    """Return *written* in SI base units, which a bare number already is; raise ValueError with the allowed units."""
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ValueError(f"must be a number or a quantity, not {str(written).lower()}\nunits: {', '.join(units)}")
    if not isinstance(written, str):
        try:
            return float(written)
        except OverflowError:
            raise ValueError("not a finite quantity: the number is too large") from None
    match = _QUANTITY.fullmatch(written) if len(written) <= _LONGEST else None
    unit = match.group(2) if match else ""
    if match is None or (unit and unit not in units):
        near = nearest_word(unit, units)
        hint = f"write a number, alone or with one of these units: {', '.join(units)}"
        if near is not None and match is not None:  # the unit alone: twenty others help less
            hint = f"did you mean '{match.group(1)} {near}'?"
        raise ValueError(f"cannot read {quote(written)!r}\n{hint}")
    value = float(match.group(1)) * units.get(unit, 1.0)
    if not math.isfinite(value):
        raise ValueError(f"{quote(written)!r} is not a finite quantity")
    return value


def show_seconds(seconds: float) -> str:
    """Print a duration in the unit that fits: 4.2 ms, 12 s, 10 min, 2.5 h."""
    size = abs(seconds)
    for unit, below in (("ms", 1.0), ("s", 120.0), ("min", 7200.0), ("h", 172800.0), ("d", math.inf)):
        if size < below:
            return f"{show_number(seconds / SECONDS[unit])} {unit}"
    return f"{show_number(seconds)} s"


def show_bytes(count: float) -> str:
    """Print a size in decimal units: 512 B, 5.6 MB, 1.4 GB."""
    for unit in ("TB", "GB", "MB", "kB"):
        if abs(count) >= BYTES[unit]:
            return f"{show_number(count / BYTES[unit])} {unit}"
    return f"{count:.0f} B"


def sold_gigabytes(count: float) -> float:
    """Return a machine's memory in the unit it is sold by, which is that of `memory_gb`: vendors write GB, mean GiB."""
    return count / BYTES["GiB"]


def show_memory(count: float) -> str:
    """Print a machine's memory in decimal units, with the size it is sold as where that is a whole number."""
    sold = sold_gigabytes(count)
    return show_bytes(count) + (f" (sold as {sold:.0f} GB)" if sold >= 1 and sold.is_integer() else "")


def show(value: float, unit: str) -> str:
    """Print *value*, given in the base unit *unit*, for a person; a growth of memory is an hour's, as in SLO files."""
    if unit == "s":
        return show_seconds(value)
    if unit == "B":
        return show_bytes(value)
    if unit == "B/s":  # a leak of megabytes an hour fills a machine within days
        return f"{show_bytes(value * SECONDS['h'])}/h"
    return show_number(value) if unit == "1" else f"{show_number(value)} {unit}"


def show_interval(center: str, lo: str, hi: str) -> str:
    """Print a value with its bounds, the unit once where all have the same: 1.31x [1.22, 1.38], 42 ms [40, 45].

    A value whose bounds print as it does is shown alone.
    """
    if center == lo == hi:
        return center
    unit = _unit_of(center)
    if unit == _unit_of(lo) == _unit_of(hi):
        lo, hi = lo.removesuffix(unit), hi.removesuffix(unit)
    return f"{center} [{lo}, {hi}]"


def _unit_of(text: str) -> str:
    """Return what follows the number in a printed value: the x of a ratio, or a space and a unit."""
    return text.lstrip("<>+-0123456789.")


def show_times(ratio: float) -> str:
    """Print a measured ratio of speeds: 1.31x, 0.04x, 123x."""
    return f"{ratio:.2f}x" if abs(ratio) < LARGE_RATIO else f"{ratio:.0f}x"


def show_ratio(center: float, lo: float, hi: float) -> str:
    """Print a ratio of speeds with its interval: 1.31x [1.22, 1.38]."""
    return show_interval(show_times(center), show_times(lo), show_times(hi))


def show_comparison(center: float, lo: float, hi: float, reference: str) -> str:
    """Print a ratio of speeds in words too: 14 % slower than plain decoding: 0.86x [0.80, 0.92]."""
    words, measured = compare_speed(center, reference), show_ratio(center, lo, hi)
    written = show_times(center)
    return words.replace(written, measured, 1) if words.startswith(written) else f"{words}: {measured}"


def show_number(value: float, digits: int = 3) -> str:
    """Print *digits* significant digits, or all before the point, without exponents: 0.00012, 45300.

    What is nearer to 0 than a millionth is `<0.000001`, or `>-0.000001`: it is not 0.
    """
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and abs(value) >= 1 else _written_out(value, text)


def percent(share: float, digits: str = "g") -> str:
    """Print a share in percent, with all its digits or in another format: 95 %, 99.9 %."""
    return f"{_written_out(100 * share, f'{100 * share:{digits}}')} %"


def _written_out(value: float, text: str) -> str:
    """Return the *text* of a number without an exponent, and of a tiny one that it is tiny."""
    if 0 < abs(value) < SMALLEST:
        return f"<{SMALLEST:f}" if value > 0 else f">-{SMALLEST:f}"
    if "e" not in text:
        return text
    return f"{Decimal(text):{'+' if text.startswith('+') else ''}f}"
