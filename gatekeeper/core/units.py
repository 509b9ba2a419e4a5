"""Quantities with units: "900 ms" is read as 0.9, and 1.4e9 is printed as "1.4 GB"."""

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from gatekeeper.core.text import quote

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

_LONGEST = 400
"""Characters of a quantity: the largest number written out has 309 digits."""
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/%]*)\s*")


def parse(written: object, units: dict[str, float]) -> float:
    """Return *written* in SI base units, which a bare number already is; raise ValueError with the allowed units."""
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ValueError(f"expected a number or a quantity such as '1 {next(iter(units))}', got {written!r}")
    if not isinstance(written, str):
        try:
            return float(written)
        except OverflowError:
            raise ValueError("not a finite quantity: the number is too large") from None
    match = _QUANTITY.fullmatch(written) if len(written) <= _LONGEST else None
    unit = match.group(2) if match else ""
    if match is None or (unit and unit not in units):
        near = "600 s" if units is SECONDS else f"1 {next(iter(units))}"
        if list(units) == ["%"]:
            raise ValueError(
                f"cannot read {quote(written)!r}; write a number without a unit, or in %\n{_plain(written)}"
            )
        allowed = f"write a number with one of these units: {', '.join(units)}"
        raise ValueError(f'cannot read {quote(written)!r}; {allowed}\nfor example "{near}"')
    value = float(match.group(1)) * units.get(unit, 1.0)
    if not math.isfinite(value):
        raise ValueError(f"{quote(written)!r} is not a finite quantity")
    return value


def _plain(written: str) -> str:
    number = re.match(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)", written)
    return f"write {number[1]} without quotes" if number else 'for example 0.5 or "50 %"'


def _quantity(units: dict[str, float]) -> tuple[BeforeValidator, WithJsonSchema]:
    names = "|".join(re.escape(unit) for unit in sorted(units, key=len, reverse=True))
    pattern = rf"^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*({names})?\s*$"
    schema = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": pattern}]}
    return BeforeValidator(lambda written: parse(written, units)), WithJsonSchema(schema)


MOST_SECONDS = 1e9
"""Thirty years: a longer time, added to an instant, may leave what a clock can hold."""
Seconds = Annotated[float, *_quantity(SECONDS), Field(le=MOST_SECONDS)]
Bytes = Annotated[float, *_quantity(BYTES)]
ByteRate = Annotated[float, *_quantity(BYTE_RATES)]
EventRate = Annotated[float, *_quantity(EVENT_RATES)]
Quantity = Annotated[float, *_quantity(SECONDS | BYTES | BYTE_RATES | EVENT_RATES | OTHERS)]


def show_seconds(seconds: float) -> str:
    """Print a duration in the unit that fits: 4.2 ms, 12 s, 10 min, 2.5 h."""
    size = abs(seconds)
    for unit, below in (("ms", 1.0), ("s", 120.0), ("min", 7200.0), ("h", 172800.0), ("d", math.inf)):
        if size < below:
            return f"{_digits(seconds / SECONDS[unit])} {unit}"
    return f"{_digits(seconds)} s"


def show_bytes(count: float) -> str:
    """Print a size in decimal units: 512 B, 5.6 MB, 1.4 GB."""
    for unit in ("TB", "GB", "MB", "kB"):
        if abs(count) >= BYTES[unit]:
            return f"{_digits(count / BYTES[unit])} {unit}"
    return f"{count:.0f} B"


def sold_gigabytes(count: float) -> float:
    """Return a machine's memory in the unit it is sold by, which is that of `memory_gb`: vendors write GB, mean GiB."""
    return count / BYTES["GiB"]


def show_memory(count: float) -> str:
    """Print a machine's memory in decimal units, with the size it is sold as where that is a whole number."""
    sold = sold_gigabytes(count)
    return show_bytes(count) + (f" (sold as {sold:.0f} GB)" if sold >= 1 and sold.is_integer() else "")


def show(value: float, unit: str) -> str:
    """Print *value*, given in the base unit *unit*, for a person."""
    if unit == "s":
        return show_seconds(value)
    if unit == "B":
        return show_bytes(value)
    if unit == "B/s":
        return f"{show_bytes(value)}/s"
    return _digits(value) if unit == "1" else f"{_digits(value)} {unit}"


def show_range(lo: str, hi: str) -> str:
    """Print the bounds of an interval, the unit once where both have the same: 111 to 189 tok/s, 1.66x to 3.65x.

    Bounds that print alike are one value.
    """
    if lo == hi:
        return lo
    number, _, unit = lo.partition(" ")
    return f"{number} to {hi}" if unit == hi.partition(" ")[2] else f"{lo} to {hi}"


def show_ratio(center: float, lo: float, hi: float) -> str:
    """Print a ratio of speeds with its interval: 1.31x (1.22x to 1.38x)."""
    return f"{center:.2f}x ({show_range(f'{lo:.2f}x', f'{hi:.2f}x')})"


def show_span(center: float, lo: float | None, hi: float | None, unit: str) -> str:
    """Print a value with its bounds, the unit once where all three have the same: 157 [111, 189] tok/s."""
    texts = ["?" if value is None else show(value, unit) for value in (center, lo, hi)]
    numbers, units = zip(*(text.partition(" ")[::2] for text in texts), strict=True)
    if len(set(units)) > 1:
        return f"{texts[0]} [{texts[1]}, {texts[2]}]"
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}] {units[0]}".rstrip()


def _digits(value: float) -> str:
    """Print three significant digits, or all before the point, without exponents."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def percent(share: float, digits: str = "g") -> str:
    """Print a share in percent, with all its digits or in another format: 95 %, 99.9 %."""
    return f"{100 * share:{digits}} %"
