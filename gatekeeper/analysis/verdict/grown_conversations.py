"""Conversations that grow, judged: by the length of the prompt, what a draft gains, and how far a route reaches."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from gatekeeper.core.metrics import DECODE_RATIO
from gatekeeper.core.verdict import Check, Estimate, Missing, Outcome, figures, known, rounded

WORDS = {Outcome.PASS: "inside", Outcome.FAIL: "outside", Outcome.UNPROVEN: "open"}
"""Where the prompts of a bin lie: with a proven gain, without one, or neither proven."""


@dataclass(frozen=True, slots=True)
class ContextBin:
    """The turns whose prompts are of one length, about."""

    least: int
    """Tokens of the shortest prompt among them."""
    most: int
    """The same of the longest."""
    conversations: int
    """Of which they are turns, compared in both arms."""
    turns: int
    outcome: Outcome
    """Pass: the gain is proven. Fail: it is proven that there is none, or that answers are worse."""
    because: str
    ratio: Estimate | Missing
    """Total decode time of plain decoding over drafting; its bounds hold for all bins together."""
    acceptance: float | None = None
    ttft: Mapping[str, float] | None = None
    """The median seconds to the first token, by arm."""
    passed: Mapping[str, int] | None = None
    """Turns that are answered as their canaries expect, by arm, and `of` how many that expect anything."""
    footprint: float | None = None
    """The most bytes that the system under test held while one of these turns was answered, in either arm."""

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "least": self.least,
            "most": self.most,
            "outcome": WORDS[self.outcome],
            "because": self.because,
            "conversations": self.conversations,
            "turns": self.turns,
            **figures(DECODE_RATIO, self.ratio),
            **known(
                acceptance_rate=None if self.acceptance is None else rounded(self.acceptance),
                ttft=None if self.ttft is None else {arm: rounded(value) for arm, value in self.ttft.items()},
                passed=self.passed,
                footprint_peak=self.footprint,
            ),
        }


@dataclass(frozen=True, slots=True)
class GrownConversations:
    """What the conversations of a workload show, bin by bin, the shortest prompts first."""

    bins: tuple[ContextBin, ...]
    host_checks: tuple[Check, ...] = ()
    """The objectives on the host that failed while the conversations grew."""
    because: str | None = None
    """Why nothing is known."""

    @property
    def reach(self) -> int:
        """Return the longest prompt up to which every bin has a proven gain; 0 where the first one has none."""
        return max((context.most for context in self._inside), default=0)

    @property
    def _inside(self) -> tuple[ContextBin, ...]:
        proven = takewhile(lambda context: context.outcome is Outcome.PASS, self.bins)
        return () if self.host_checks else tuple(proven)

    @property
    def ends_from(self) -> int:
        """Return a prompt that still gains: if the gain falls as prompts grow, the shortest of the last proven bin."""
        return self._inside[-1].least if self._inside else 0

    @property
    def ends_by(self) -> int | None:
        """Return a prompt that gains no more: the longest of the first bin without a gain; None where there is none."""
        return next((context.most for context in self.bins if context.outcome is Outcome.FAIL), None)

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "reach": self.reach,
            "ends_from": self.ends_from,
            "ends_by": self.ends_by,
            "bins": [context.document() for context in self.bins],
            "host_checks": [check.document() for check in self.host_checks],
            **known(because=self.because),
        }
