"""The table `[region]` of an SLO file: how far around the certified point a route may reach."""

from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gatekeeper.core.slo.sweep_table import MOST_TOKENS, MOST_VALUES
from gatekeeper.core.text import condition_value
from gatekeeper.core.toml_file import InputTable, located

AXES = ("temperature", "context", "concurrency", "max_tokens")
"""What a certified region may extend over; the last three are limits, which cover everything below them."""


class Region(InputTable):
    """Where around the certified point the setting is proven too: the axes, and the values to probe on each."""

    temperature: tuple[float, ...] = Field(default=(), description="values on both sides of the certified one")
    context: tuple[int, ...] = Field(default=(), description="tokens of a prompt; shorter canaries are lengthened")
    concurrency: tuple[int, ...] = Field(default=(), description="requests in flight at once")
    max_tokens: tuple[int, ...] = Field(default=(), description="limits of an answer's tokens")
    monotone: tuple[Literal["temperature", "context", "concurrency", "max_tokens"], ...] = Field(
        default=(), description="axes that only get worse away from the certified value: bisected"
    )
    canaries: int = Field(default=24, ge=8, le=1000, description="canaries of each workload at each point, at most")
    repeats: int = Field(default=2, ge=1, le=100, description="answers per arm to each of them, at most")

    @field_validator(*AXES)
    @classmethod
    def _ordered(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(after <= before for before, after in pairwise(values)):
            raise ValueError("the values must rise from one to the next\nsort them, and remove what is listed twice")
        if len(values) > MOST_VALUES:
            raise ValueError(f"{len(values)} values; an axis takes up to {MOST_VALUES}\nremove some")
        return values

    @model_validator(mode="after")
    def _within_limits(self) -> "Region":
        lowest = {"temperature": 0.0, "context": 1, "concurrency": 1, "max_tokens": 1}
        highest = {"temperature": 100.0, "context": 1_000_000, "concurrency": 64, "max_tokens": MOST_TOKENS}
        for axis in AXES:
            for value in self.values(axis):
                if not lowest[axis] <= value <= highest[axis]:
                    limits = f"{lowest[axis]:g} to {condition_value(highest[axis])}"
                    message = f"{condition_value(value)} is not from {limits}\nremove it"
                    raise located(("region", axis), message)
        for number, axis in enumerate(self.monotone):
            if not self.values(axis) or axis in self.monotone[:number]:
                raise located(("region", "monotone"), f"'{axis}' is no axis with values, or is listed twice\nremove it")
        return self

    def values(self, axis: str) -> tuple[float, ...]:
        """Return the values to probe on *axis*, rising; empty if the region does not extend over it."""
        values: tuple[float, ...] = getattr(self, axis)
        return values

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the axes that it names."""
        return tuple(axis for axis in AXES if self.values(axis))
