"""What a soak measured of one workload, whether an objective names it or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.verdict import Estimate, figures, known

PLAIN_SPEED = "plain_decode_throughput"
"""The decode throughput of the plain arm, beside the one of the speculating arm."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a soak that a person wants to see beside the checks; an empty one where nothing was soaked."""

    figures: Mapping[str, Estimate] = field(default_factory=dict)
    """By metric, as they are shown: six significant digits."""
    soak_seconds: float | None = None
    answers: int | None = None
    plain_answers: int | None = None
    longest_prompt: int | None = None
    """In tokens; None where they are not counted."""
    longest_answer: int | None = None
    acceptance_by_position: tuple[float, ...] = ()
    claimed: bool = False
    """The counts of rounds are the server's claims."""

    def claims(self, metric: str) -> bool:
        """Return whether a metric rests on what the server claims."""
        row = BY_NAME.get(metric)
        return self.claimed and row is not None and row.from_rounds

    def center(self, metric: str) -> float | None:
        """Return the estimate of a metric; None where it was not measured."""
        figure = self.figures.get(metric)
        return figure.center if figure is not None else None

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        counts = ("soak_seconds", "answers", "plain_answers", "longest_prompt", "longest_answer")
        return {
            **known(**{name: getattr(self, name) for name in counts}),
            **{
                metric: figures("center", figure)
                | known(**{"scope": figure.scope, "from": "claims" if self.claims(metric) else None})
                for metric, figure in self.figures.items()
            },
            **known(acceptance_by_position=list(self.acceptance_by_position) or None),
        }
