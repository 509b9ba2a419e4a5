"""Knobs: what the sweep turns, one value of each, and their limits."""

from typing import Annotated, Literal

from pydantic import Field

from gatekeeper.core.subject import InputTable

CHOSEN = ("draft", "num_draft_tokens", "block_size", "window", "draft_n_min", "draft_p_min")
"""Knobs the sweep chooses a value for."""
CONDITIONS = ("temperature", "max_tokens", "thinking", "concurrency")
"""Knobs that are swept in both arms and reported, never chosen."""
DRAFT_LENGTHS = ("num_draft_tokens", "block_size")
"""Knobs that set the draft length, for the step `shrink-draft`."""
ADAPTIVE = "adaptive"
"""The value of a draft length that the server chooses by itself, round by round."""
MOST_TOKENS = 10_000_000
"""The largest value of a knob that counts tokens; no model reads as many."""
MOST_VALUES = 100
"""Of one knob in a sweep."""
DraftLength = Annotated[int, Field(ge=1, le=MOST_TOKENS)] | Literal["adaptive"]


class ChosenKnobs(InputTable):
    """One value of each knob that the sweep chooses; without a draft it is plain decoding."""

    draft: str | None = None
    num_draft_tokens: DraftLength | None = None
    block_size: DraftLength | None = None
    window: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    draft_n_min: int | None = Field(default=None, ge=0, le=MOST_TOKENS)
    draft_p_min: float | None = Field(default=None, ge=0, le=1)


class Knobs(ChosenKnobs):
    """One value of each knob."""

    temperature: float | None = Field(default=None, ge=0, le=100)
    max_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    thinking: bool | None = None
    concurrency: int | None = Field(default=None, ge=1, le=64)
