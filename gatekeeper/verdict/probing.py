"""What a probe answers: helps, hurts or unclear, looked at a few times with the error split over the looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gatekeeper.terms.canary import Canary
from gatekeeper.terms.outcome import Estimate, Missing, rounded
from gatekeeper.terms.records import Generation
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.account import accounted
from gatekeeper.verdict.choice import Choice, Seen, look
from gatekeeper.verdict.ladder import PLAIN
from gatekeeper.verdict.plan import Plan

LOOKS = (8, 12, 18, 24)
"""Canaries after which the records are looked at. With fewer than eight a bootstrap can not reach a bound this strict:
under no effect all of n canaries point one way with a chance of 2^-n."""
ENOUGH = LOOKS[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the records say of one workload so far."""

    word: Literal["helps", "hurts", "unclear"]
    seen: Seen
    model: Mapping[str, Any]
    because: str

    def document(self) -> dict[str, Any]:
        """Return it as `probe --json` prints it."""
        told = self.seen.document()
        kept = {key: told[key] for key in ("measure", "ratio", "lo", "hi", "n", "acceptance_rate")}
        needed = {"break_even_acceptance": self.model.get("break_even_acceptance")}
        return {"answer": self.word, **kept, **needed, "because": self.because, "model": dict(self.model)}


def answer(
    slo: Slo, plan: Plan, records: Mapping[str, Sequence[Generation]], workload: str, canaries: Mapping[str, Canary]
) -> Answer:
    """Judge the one candidate of a probe against plain decoding; each look has its share of the allowed error."""
    strict = slo.model_copy(update={"confidence": 1 - (1 - slo.confidence) / len(LOOKS)})
    seen = look(strict, plan, records, workload, canaries)
    told = accounted(strict, plan, records, workload, canaries, Choice(PLAIN, "", seen))
    one = seen[0]
    model = told.models[one.trial.name]
    if isinstance(one.ratio, Missing):
        return Answer("unclear", one, model, one.ratio.because)
    word, why = _word(one.ratio)
    return Answer(word, one, model, why)


def _word(ratio: Estimate) -> tuple[Literal["helps", "hurts", "unclear"], str]:
    span = f"{ratio.center:.2f}x plain decoding, [{ratio.lo:.2f}, {ratio.hi:.2f}], on {ratio.n} canaries"
    if ratio.n < ENOUGH:
        return "unclear", f"{span}: fewer than the {ENOUGH} that can prove it"
    if rounded(ratio.lo) > 1:
        return "helps", span
    if rounded(ratio.hi) < 1:
        return "hurts", span
    return "unclear", f"{span}: both faster and slower are possible"


def next_step(found: Answer, took: float, again: str) -> str:
    """Say what to do with an answer; *took* seconds were spent, *again* is the command to ask for more."""
    if found.word == "helps":
        return "certify it before you deploy it: a probe soaks nothing and checks no promise"
    if found.word == "hurts":
        return "decode this workload plainly, or change what the reason names"
    count = found.seen.ratio.n
    if count < ENOUGH:
        needed = max(60, 10 * round(took * ENOUGH / max(1, count) / 10 + 1))
        return f"give it more time: {again} --seconds {needed}"
    if isinstance(found.seen.ratio, Missing):
        return "look at the records with --out, and at the server's own log"
    return "the effect is small, if there is one: certify measures it better, and plain decoding is the safe choice"
