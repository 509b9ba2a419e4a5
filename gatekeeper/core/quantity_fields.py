"""Types of the quantities in files: a number in base units, or a text with a unit such as "900 ms"."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from gatekeeper.core.units import BYTE_RATES, BYTES, EVENT_RATES, OTHERS, SECONDS, parse


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
