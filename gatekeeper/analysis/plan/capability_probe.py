"""The capability probe: two short answers before a run, drafting off and on, and what they show of the backend."""

from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer
from gatekeeper.core.verdict import Finding

ANSWER_TOKENS = 32
"""Tokens of each answer: enough for several rounds, and soon done."""
WHOLE_TOKENS = 4
"""An answer longer than this that arrives in one piece was not streamed."""

_ABOUT = "glance"


@dataclass(frozen=True, slots=True)
class ProbeAnswers:
    """The answers; None for an arm without a request, because there is no draft or no plain process."""

    plain: Answer | None
    drafted: Answer | None

    @property
    def sound(self) -> tuple[Answer, ...]:
        """Return the answers without a fault."""
        return tuple(one for one in (self.plain, self.drafted) if one is not None and one.fault is None)


def probe_canary(canaries: Sequence[Canary]) -> Canary:
    """Return the canary with the shortest prompt that expects no tool call: a call may well come in one piece."""
    talking = [one for one in canaries if not one.tools] or list(canaries)
    return min(talking, key=lambda one: (sum(len(str(turn.get("content"))) for turn in one.messages), one.id))


def confirmed_sight(glance: ProbeAnswers, forecast: Sight, *, uncached: bool) -> Sight:
    """Return what of the forecast the answers showed.

    An arm that failed takes nothing away: its failure is the run's to record. *uncached* says that the prompt cache is
    off by our own doing, so that no answer has to tell.
    """
    seen = forecast
    if any(answer.output_tokens is None for answer in glance.sound):
        seen &= ~Sight.TOKEN_COUNT
    if any(len(one.arrivals) < 2 and (one.output_tokens or 0) > WHOLE_TOKENS for one in glance.sound):
        seen &= ~Sight.ARRIVALS
    if not uncached and any(answer.claims.cached_tokens is None for answer in glance.sound):
        seen &= ~Sight.COLD
    drafted = glance.drafted
    if drafted is not None and drafted.fault is None and (drafted.output_tokens or 2) > 1:
        if drafted.rounds is None:
            seen &= ~Sight.ROUNDS
        if drafted.claims.drafted is None or drafted.claims.accepted is None:
            seen &= ~Sight.CLAIMED_ROUNDS
    return seen


def probe_findings(glance: ProbeAnswers, forecast: Sight, silent: str) -> list[Finding]:
    """Return what is odd already; *silent* says what is usually missing where a system decodes plainly."""
    found = []
    for arm, answer in (("plain", glance.plain), ("candidate", glance.drafted)):
        if answer is not None and answer.fault is not None:
            advice = "the run goes on and records what comes; see logs/ for what the subject said"
            found.append(Finding("first_answer_failed", f"{_ABOUT}, {arm}", answer.fault, advice))
    if (drafted := glance.drafted) is not None and drafted.fault is None and (drafted.output_tokens or 0) > 1:
        proposed = drafted.rounds.drafted if drafted.rounds is not None else drafted.claims.drafted
        if proposed is None and forecast & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS):
            detail = "a draft is set, and nothing tells whether it proposed anything, though this kind of system does"
            found.append(Finding("drafting_not_shown", _ABOUT, detail, silent))
        if proposed == 0:
            detail = f"a draft is set, and nothing was proposed for {drafted.output_tokens} tokens"
            found.append(Finding("silent_speculation", _ABOUT, detail, silent))
    names = {one.claims.model for one in glance.sound if one.claims.model is not None}
    if len(names) > 1:
        detail = f"the arms answered as {' and '.join(sorted(names))}"
        found.append(Finding("other_model", _ABOUT, detail, "let both arms serve the same target under the same name"))
    return found
