"""The table `[sweep]` of an SLO file: what the knobs are, which are swept, and over which values."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from gatekeeper.core.toml_file import InputTable

CHOSEN = ("draft", "num_draft_tokens", "block_size", "window", "draft_n_min", "draft_p_min")
"""Knobs the sweep chooses a value for."""
CONDITIONS = ("temperature", "max_tokens", "thinking", "concurrency")
"""Knobs that are swept in both arms and reported, never chosen."""
DRAFT_LENGTHS = ("num_draft_tokens", "block_size")
"""Knobs that set the draft length, for the step `shrink-draft`."""
MOST_TOKENS = 10_000_000
"""The largest value of a knob that counts tokens; no model reads as many."""
MOST_VALUES = 100
"""Values of one knob in a sweep."""


def process_name(values: Mapping[str, Any], restart_knobs: Sequence[str]) -> str:
    """Name the process that can answer a setting: its *values* of the knobs that need a restart."""
    return "|".join(str(values.get(knob)) for knob in restart_knobs)


class ChosenKnobs(InputTable):
    """One value of each knob that the sweep chooses; without a draft it is plain decoding."""

    draft: str | None = None
    num_draft_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    block_size: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    window: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    draft_n_min: int | None = Field(default=None, ge=0, le=MOST_TOKENS)
    draft_p_min: float | None = Field(default=None, ge=0, le=1)


class Knobs(ChosenKnobs):
    """One value of each knob."""

    temperature: float | None = Field(default=None, ge=0, le=100)
    max_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    thinking: bool | None = None
    concurrency: int | None = Field(default=None, ge=1, le=64)


class Sweep(InputTable):
    """Which knobs are swept, over which values."""

    design: Literal["one-at-a-time", "grid"] = "one-at-a-time"
    repeats: int = Field(default=3, ge=1, le=1000)
    max_runs: int = Field(default=200, ge=1, le=10_000)
    budget: int = Field(default=12, ge=1, le=100_000, description="answers per arm and workload, at most")
    prefer: Literal["speed", "energy"] = Field(
        default="speed",
        description="energy: of the settings that keep their bound of speed, the one with the fewest joules a token",
    )
    stop: Literal["early", "never"] = Field(
        default="early", description="early: stop testing a setting once its answers decide"
    )
    warmups: int = Field(default=1, ge=0, le=1000, description="unmeasured answers before each block")
    draft: tuple[str, ...] = ()
    num_draft_tokens: tuple[int, ...] = ()
    block_size: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    draft_n_min: tuple[int, ...] = ()
    draft_p_min: tuple[float, ...] = ()
    temperature: tuple[float, ...] = ()
    max_tokens: tuple[int, ...] = ()
    thinking: tuple[bool, ...] = ()
    concurrency: tuple[int, ...] = ()
    default: Knobs = Knobs()

    @field_validator(*CHOSEN, *CONDITIONS, mode="before")
    @classmethod
    def _wrap_in_tuple(cls, values: object) -> object:
        """Take one value for a list of it."""
        return values if isinstance(values, tuple | list | dict) else (values,)

    @field_validator(*CHOSEN, *CONDITIONS)
    @classmethod
    def _sane(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError("a value is listed twice\nremove one of them")
        if len(values) > MOST_VALUES:
            raise ValueError(f"{len(values)} values; a sweep takes up to {MOST_VALUES} of a knob\nremove some")
        for value in values:
            if not isinstance(value, bool | str) and not 0 <= value <= MOST_TOKENS:
                raise ValueError(f"{value} is {'negative' if value < 0 else f'more than {MOST_TOKENS}'}\nremove it")
        return values

    @field_validator("num_draft_tokens", "block_size", "concurrency", "max_tokens", "window")
    @classmethod
    def _positive(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if 0 in values:
            raise ValueError("must be greater than 0\nremove it: plain decoding is always measured as well")
        return values

    @property
    def stops_early(self) -> bool:
        """Return whether a setting may be stopped early; the energy of one that is slower counts as well."""
        return self.stop == "early" and self.prefer == "speed"

    def values(self, knob: str) -> tuple[Any, ...]:
        """Return the values of *knob* to sweep; empty if it is not swept."""
        values: tuple[Any, ...] = getattr(self, knob)
        return values
