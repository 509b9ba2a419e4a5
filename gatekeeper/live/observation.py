"""One answered request as evidence: how fast it was, what its speed depends on, and whether it failed."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gatekeeper.live.server_load import IDLE, LoadMet

Row = tuple[float, ...]
KNOTS = (0.0, 1.0, 3.0)
"""Other answers in flight, between which the logarithm of a speed is taken as linear in their number."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One answered request whose arm was drawn with its conversation."""

    workload: str
    arm: str
    epoch: int
    """The setting's number when its arm was drawn: later settings are not judged by it."""
    conversation: str
    prompt_chars: int
    streamed: bool
    speed: float | None
    """Characters per second of decoding."""
    ttft: float | None
    failed: bool
    whole_speed: float | None = None
    """Characters per second of the whole answer, the time of its prompt included."""
    waiting: LoadMet = IDLE
    """What was in flight until its first text."""
    decoding: LoadMet = IDLE
    """The same after it."""

    def rows(self) -> "Rows":
        """Return the rows of its speeds and of its time to the first token."""
        prompt, decoding = math.log1p(self.prompt_chars), _in_flight(self.decoding)
        covariates = prompt, float(self.streamed), *decoding
        return Rows(
            self._row(covariates, self.speed),
            self._row(covariates, self.whole_speed),
            self._row((prompt, *_in_flight(self.waiting)), self.ttft),
        )

    def _row(self, covariates: Row, value: float | None) -> Row | None:
        row = (*covariates, math.log(value)) if value and not self.failed else None
        return row if row is not None and all(map(math.isfinite, row)) else None


class Rows(NamedTuple):
    """What a speed or a time depends on, then itself, as logarithms; None where it is not known."""

    speed: Row | None
    whole: Row | None
    """Of the whole answer."""
    ttft: Row | None


def _in_flight(load: LoadMet) -> Row:
    """Return the columns of piecewise linear functions of what was in flight at its server, and at both together.

    The second is what counts where both servers share the machine, the first where they do not.
    """
    return *_pieces(load.same - 1), *_pieces(load.same - 1 + load.elsewhere)


def _pieces(others: float) -> Row:
    return tuple(min(max(0.0, others - low), high - low) for low, high in pairwise((*KNOTS, math.inf)))
