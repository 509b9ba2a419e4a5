"""One answered request as evidence: how fast it was, what its speed depends on, and whether it failed."""

import math
from dataclasses import dataclass
from itertools import pairwise

from gatekeeper.proxy.server_load import IDLE, LoadMet

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

    @property
    def speed_row(self) -> Row | None:
        """Return what its speed depends on, then the speed, as logarithms; None where it is not known."""
        return self._row(self.speed)

    @property
    def whole_row(self) -> Row | None:
        """Return the same of the speed of the whole answer."""
        return self._row(self.whole_speed)

    def _row(self, speed: float | None) -> Row | None:
        if self.failed or not speed:
            return None
        return math.log1p(self.prompt_chars), float(self.streamed), *_in_flight(self.decoding), math.log(speed)

    @property
    def ttft_row(self) -> Row | None:
        """Return the same of its time to the first token."""
        if self.failed or not self.ttft:
            return None
        return math.log1p(self.prompt_chars), *_in_flight(self.waiting), math.log(self.ttft)


def _in_flight(load: LoadMet) -> Row:
    """Return the columns of piecewise linear functions of what was in flight at its server, and at both together.

    The second is what counts where both servers share the machine, the first where they do not.
    """
    return *_pieces(load.same - 1), *_pieces(load.same - 1 + load.elsewhere)


def _pieces(others: float) -> Row:
    return tuple(min(max(0.0, others - low), high - low) for low, high in pairwise((*KNOTS, math.inf)))
