"""How the gain is spread over prompts, for information: no objective is checked with it.

The ratio of a workload is that of its work: prompts that take long weigh more. Behind one ratio, most prompts may be
slower than with plain decoding.
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import model_serializer

from gatekeeper.analysis.metrics.over_time import keep_settled_pairs
from gatekeeper.analysis.metrics.pair_speeds import pair_logs
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, mean_ratio
from gatekeeper.analysis.metrics.readers import speeds_of
from gatekeeper.analysis.stats import fixed_canaries
from gatekeeper.core.document import WriteFields
from gatekeeper.core.judgement import Estimate, StillChanging

EACH = 0.99
"""Confidence by which each canary is called slower: of 24 that are as fast as plain decoding, one is called so by
chance in every fourth run."""


@dataclass(frozen=True, slots=True)
class PromptSpeeds:
    """The speeds of single prompts against plain decoding."""

    typical: Estimate
    """The geometric mean over prompts of their ratios."""
    slower: tuple[str, ...] | None
    """Canaries that are proven slower than plain decoding, each at the confidence EACH; None with too few repeats."""

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return write(self) | {"canaries": self.typical.n, "confidence": EACH}


def prompt_speeds(metric: str, evidence: PairedAnswers) -> PromptSpeeds | None:
    """Return how the ratio *metric* is spread over prompts; None where it is not known."""
    stretch = keep_settled_pairs(evidence)
    if isinstance(stretch, StillChanging):
        return None
    speeds, before, _ = speeds_of(metric, stretch)
    logs = pair_logs(speeds, before, total=False)
    typical = mean_ratio(logs, replace(stretch, frozen=True))
    if not isinstance(typical, Estimate):
        return None
    slower = fixed_canaries.proven_below(logs.logs, EACH, logs.before) if stretch.interleaved else None
    return PromptSpeeds(replace(typical.round_figures(), population=None), slower)
