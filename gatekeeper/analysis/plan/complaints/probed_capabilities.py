"""The capability probe: two short requests before a run, without and with a draft, and what they show."""

from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics.server_claims import claimed_rounds
from gatekeeper.analysis.metrics.timing import CHUNKS_PER_TOKEN
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Finding, FindingKind
from gatekeeper.core.manifest import ArrivalTimes
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer

ANSWER_TOKENS = 32
"""Tokens of each answer: enough for several rounds, and quick."""
WHOLE_TOKENS = 4
"""An answer longer than this that arrives in one piece was not streamed."""

MAY_SHOW = Sight.TOKEN_COUNT | Sight.ARRIVALS | Sight.COLD | Sight.PROMPT_TIME
"""What the answers of any server may show, whatever its dialect forecasts: they are read alike."""

_ABOUT = "glance"
_UPDATE = "update the server; `gatekeeper explain servers` says which ones tell them"


@dataclass(frozen=True, slots=True)
class ProbeAnswers:
    """The answers; None for an arm without a request, because there is no draft or no plain process."""

    plain: Answer | None
    drafted: Answer | None
    tells_likeliest: bool | None = None
    """A plain answer came with log-probabilities, and its beginning could be read as a prompt; None: not requested."""
    tells_passes: bool | None = None
    """A drafted answer came with those of the passes that verified it; None: not requested."""

    @property
    def sound(self) -> tuple[Answer, ...]:
        """Return the answers without a fault."""
        return tuple(answer for answer in (self.plain, self.drafted) if answer is not None and answer.fault is None)

    @property
    def counts_pieces(self) -> bool | None:
        """Return whether the tokens of each piece of the answers are known; None where no answer came in pieces."""
        pieces = [answer for answer in self.sound if len(answer.arrivals) > 1]
        return all(map(_counts_pieces, pieces)) if pieces else None

    @property
    def arrival_times(self) -> ArrivalTimes | None:
        """Return who took the times of all arrivals; None where there are no sound answers."""
        if not self.sound:
            return None
        return "process" if any(answer.read_delay_ns is None for answer in self.sound) else "kernel"


def probe_canary(canaries: Sequence[Canary]) -> Canary:
    """Return the canary with the shortest prompt and no tools: a tool call may arrive in one piece."""
    talking = [canary for canary in canaries if not (canary.tools or canary.options)] or list(canaries)
    return min(talking, key=lambda canary: (sum(len(str(turn.get("content"))) for turn in canary.messages), canary.id))


def confirmed_sight(glance: ProbeAnswers, forecast: Sight, *, uncached: bool) -> Sight:
    """Return what the answers show, and of the *forecast* what they say nothing about.

    An arm that failed changes nothing: the run will record its failure. *uncached* means that gatekeeper has switched
    the prompt cache off, so that no answer has to report it.
    """
    answers = glance.sound
    shown: dict[Sight, bool | None] = {
        Sight.VERIFIED: glance.tells_passes,
        Sight.LOGPROBS: glance.tells_likeliest,
        Sight.ARRIVALS: _came_in_pieces(answers),
    }
    if answers:
        shown[Sight.TOKEN_COUNT] = all(answer.output_tokens is not None for answer in answers)
        shown[Sight.PROMPT_TIME] = all(answer.claims.prompt_seconds is not None for answer in answers)
    if answers and not uncached:
        shown[Sight.COLD] = all(answer.claims.cached_tokens is not None for answer in answers)
    drafted = glance.drafted
    if drafted is not None and drafted.fault is None and (drafted.output_tokens or 2) > 1:
        shown[Sight.ROUNDS] = drafted.rounds is not None
        shown[Sight.CLAIMED_ROUNDS] = claimed_rounds(drafted) is not None
    sight = forecast
    for flag, is_shown in shown.items():
        if is_shown is not None:  # an answer overrules the forecast, in both directions
            sight = sight | flag if is_shown else sight & ~flag
    return sight


def _came_in_pieces(answers: Sequence[Answer]) -> bool | None:
    """Return whether the answers came in pieces; None where they were too short to tell."""
    if any(len(answer.arrivals) < 2 and (answer.output_tokens or 0) > WHOLE_TOKENS for answer in answers):
        return False
    return True if answers and all(len(answer.arrivals) > 1 for answer in answers) else None


def _counts_pieces(answer: Answer) -> bool:
    """Return whether the tokens of each piece are counted, or each piece is one token.

    Of a short answer a few tokens inside characters may be held back, which are few in a whole answer.
    """
    counted = answer.columns.count_tokens() is not None
    return counted or len(answer.arrivals) + WHOLE_TOKENS >= CHUNKS_PER_TOKEN * (answer.output_tokens or 0)


def probe_findings(glance: ProbeAnswers, forecast: Sight, silent: str) -> list[Finding]:
    """Return the problems the answers show; *silent* is the usual reason why a system with a draft decodes plainly."""
    findings = []
    for arm, answer in (("plain", glance.plain), ("candidate", glance.drafted)):
        if answer is not None and answer.fault is not None:
            advice = "the run continues and records further faults; see the server's output in logs/"
            findings.append(Finding(FindingKind.FIRST_ANSWER_FAILED, f"{_ABOUT}, {arm}", answer.fault, advice))
    if (drafted := glance.drafted) is not None and drafted.fault is None and (drafted.output_tokens or 0) > 1:
        proposed = drafted.rounds.drafted if drafted.rounds is not None else drafted.claims.drafted
        if proposed is None and claimed_rounds(drafted) is None and forecast & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS):
            detail = (
                "a draft is set, but the answer has no counts of drafted tokens, which this kind of backend reports"
            )
            findings.append(Finding(FindingKind.DRAFTING_NOT_SHOWN, _ABOUT, detail, silent))
        if proposed == 0:
            detail = f"a draft is set, but it proposed nothing in an answer of {drafted.output_tokens} tokens"
            findings.append(Finding(FindingKind.SILENT_SPECULATION, _ABOUT, detail, silent))
    for told, flag, what in (
        (glance.tells_likeliest, Sight.LOGPROBS, "plain answers, with their beginnings read as prompts"),
        (glance.tells_passes, Sight.VERIFIED, "the passes that verify a draft"),
    ):
        if flag in forecast and told is False:
            detail = f"no log-probabilities came of {what}, so that numerics are not told from defects by them"
            findings.append(Finding(FindingKind.LOG_PROBABILITIES_NOT_SHOWN, _ABOUT, detail, _UPDATE))
    names = {answer.claims.model for answer in glance.sound if answer.claims.model is not None}
    if len(names) > 1:
        detail = f"the two arms report different models: {' and '.join(sorted(names))}"
        findings.append(
            Finding(FindingKind.OTHER_MODEL, _ABOUT, detail, "serve the same target under the same name in both arms")
        )
    return findings
