"""A time that a pass at the end of a run measured in both arms; no objective names it, and it changes no outcome."""

from dataclasses import dataclass

from gatekeeper.core.verdict import Estimate, Missing, figures


@dataclass(frozen=True, slots=True)
class ArmsCompared:
    """One such time."""

    title: str
    """What it is, for a reader: first token after a start."""
    plain: Estimate | Missing
    """Seconds."""
    drafting: Estimate | Missing
    ratio: Estimate | Missing
    """Drafting over plain decoding."""

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        arms = {"plain": self.plain, "drafting": self.drafting, "ratio": self.ratio}
        return {"title": self.title, **{name: figures("center", estimate) for name, estimate in arms.items()}}
