"""The advice after a try: what to do next, by what it showed."""

from gatekeeper.analysis.sweep.try_result import LEAST_CANARIES, TryResult
from gatekeeper.core.verdict import Missing

SMALL_EFFECT = 1.1
"""An interval within this factor of 1, either way, means that the effect is small."""


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
        return "check the records (--output) and the server's log"
    if ratio.lo > 1 / SMALL_EFFECT and ratio.hi < SMALL_EFFECT:
        return "the effect is small or zero: use plain decoding, or certify to measure it more exactly"
    return "the answers vary too much to decide: close other programs, or certify, which measures more of them"
