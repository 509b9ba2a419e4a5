"""Answers of simulated soaks: two bursts at known times, and both arms paired."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.records.arrivals import Arrival

FIRST_S = 0.001
"""From a request to its first token."""


def simulated_answer(
    arm: str, canary: str, pair: str, at_s: float, lasts_s: float, tokens: int, prompt_tokens: int | None = None
) -> Generation:
    """Return an answer that is requested at *at_s*: its first token, then all others when it ends."""
    sent_ns, ended_ns = round(at_s * 1e9), round((at_s + lasts_s) * 1e9)
    arrivals = (Arrival(sent_ns + round(FIRST_S * 1e9), 1), Arrival(ended_ns, tokens - 1))
    answer = Answer(sent_ns, ended_ns, arrivals, prompt_tokens=prompt_tokens, output_tokens=tokens)
    role = Role.MEASURED if arm == "candidate" else Role.BASELINE
    return Generation("soak-1", f"{pair}/{arm}", "easy", canary, arm, (), role, 1, pair, 1, answer)


def both_arms(
    answers: Sequence[Generation], canaries: Mapping[str, Canary], level: float, seed: int, **fields: Any
) -> PairedAnswers:
    """Return greedy answers paired, as metrics read them."""
    candidate, plain = (tuple(answer for answer in answers if answer.arm == arm) for arm in ("candidate", "plain"))
    return pair_answers(PairedAnswers("easy", canaries, candidate, plain, level, seed, greedy=True, **fields))
