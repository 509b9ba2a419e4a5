"""The result of a try: helps, hurts or unclear, by an interval that holds at each of its looks, and what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gatekeeper.analysis.metrics.lost_pairs import MAX_LOST_SHARE
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.sweep.setting_result import SettingResult, setting_results
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.document import document_of
from gatekeeper.core.judgement import Estimate, Missing, round_figure
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.units import show_comparison, show_ratio

LEAST_CANARIES = sequential.MIN_CANARIES
MOST_LOOKS = 5
"""Looks of a try at most: after 8, 12, 18 and 24 canaries, and when its time is over. They share the error evenly."""
SMALL_EFFECT = 1.1
"""An interval within this factor of 1, either way, means that the effect is small."""


@dataclass(frozen=True, slots=True)
class TryResult:
    """What the records show of one workload so far."""

    word: Literal["helps", "hurts", "unclear"]
    result: SettingResult
    """Its ratio has an interval of the last look, which holds at every look."""
    because: str
    looks: tuple[int, ...]
    """Canaries answered before each look."""
    most: int
    """Canaries in all."""

    def document(self) -> dict[str, object]:
        """Return it as `try --json` prints it."""
        document = document_of(self.result)
        figures = {key: document[key] for key in ("measure", "ratio", "lo", "hi", "n", "acceptance_rate")}
        return {
            "answer": self.word,
            **figures,
            "looks": list(self.looks),
            "because": self.because,
        }


def try_result(sweep: SweepAnswers, answered: int, before: TryResult | None) -> TryResult:
    """Compare the one candidate of a probe with plain decoding, once so many canaries were *answered*.

    *before* is the result of the previous look. A look may come at any count, for instance when the time is over.
    """
    looks = (*(before.looks if before is not None else ()), answered)
    most = max(answered, len(sweep.canaries))
    results = setting_results(sweep)
    trial, ratio = results[0].trial, results[0].ratio
    if isinstance(ratio, Estimate):
        _, pairs, _ = sweep.compare_trial(trial)
        ratio = sequential.interval([*pairs.means().values()], (1 - sweep.slo.confidence) / MOST_LOOKS)
    word, reason = _word(ratio)
    if (failing := _failing(sweep.of(trial.name))) is not None:
        word, reason = "unclear", failing
    return TryResult(word, replace(results[0], ratio=ratio), reason, looks, most)


def _failing(answers: Sequence[Generation]) -> str | None:
    """Describe a draft that loses more of its answers than a ratio allows: then its speed does not matter."""
    answer_faults = [generation.answer.fault for generation in answers if generation.role is not Role.WARMUP]
    faults = [fault for fault in answer_faults if fault is not None]
    if len(faults) <= MAX_LOST_SHARE * len(answer_faults):
        return None
    return f"{len(faults)} of {len(answer_faults)} requests with the draft failed: {faults[0]}"


def _word(ratio: Estimate | Missing) -> tuple[Literal["helps", "hurts", "unclear"], str]:
    if isinstance(ratio, Missing):
        return "unclear", ratio.because
    measured = show_ratio(ratio.center, ratio.lo, ratio.hi)
    text = f"{show_comparison(ratio.center, ratio.lo, ratio.hi, 'plain decoding')} on {ratio.n} canaries"
    if round_figure(ratio.lo) > 1:
        return "helps", text
    if round_figure(ratio.hi) < 1:
        return "hurts", text
    return "unclear", f"{measured} on {ratio.n} canaries: it may be faster or slower than plain decoding"


def next_step_text(probe: TryResult, took: float, again: str) -> str:
    """Return what to do next; *took* seconds were spent, *again* is the command to repeat the probe."""
    advice = {
        "helps": "certify before you deploy: a probe runs no soak and checks no objective",
        "hurts": "use plain decoding for this workload, or try a lighter draft",
    }
    return advice.get(probe.word) or _unclear(probe, took, again)


def _unclear(probe: TryResult, took: float, again: str) -> str:
    ratio, answered = probe.result.ratio, probe.looks[-1]
    if probe.most < LEAST_CANARIES:
        return f"add canaries to this workload: at least {LEAST_CANARIES} are needed to decide"
    if answered < probe.most:
        share = LEAST_CANARIES / max(1, ratio.n) if ratio.n < LEAST_CANARIES else probe.most / answered
        return f"run it for longer: {again} --seconds {max(60, 10 * round(took * share / 10 + 1))}"
    if isinstance(ratio, Missing):
        return "do what the reason says; the records (--output) and the server's log show more"
    if ratio.lo > 1 / SMALL_EFFECT and ratio.hi < SMALL_EFFECT:
        return "the effect is small or zero: use plain decoding, or certify to measure it more exactly"
    return "the answers vary too much to decide: close other programs, or certify, which measures more of them"
