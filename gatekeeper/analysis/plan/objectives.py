"""The objectives that apply to a workload: the SLO's own, and the implicit ones of every speculating setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics.readers import PAIR_SPEEDS
from gatekeeper.analysis.metrics.words.harm import HARM_LEVEL, SAMPLED_HARM_LEVEL
from gatekeeper.analysis.plan.settings import is_greedy, speculates, with_conditions
from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO, SPEED_RATIOS, SYSTEM_RATIO
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Objective, Slo

NO_LOSS = 1.0
"""A speculating setting may not be slower than plain decoding."""
AGREE_UNREAD = 0.5
"""Least share of canaries that agree with plain decoding where the target's logits cannot be read.

Then no single difference can be told from a near-tie; but near-ties do not change the first words of every other
answer (exactness.EARLY), as other words do.
"""


class Implicit(Objective):
    """An objective that holds although the SLO file does not name it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides which objectives are implicit, besides the SLO file, and what is said: frozen in the manifest.

    A stored run is judged by the terms it was made under, by which its SLO was accepted and its requests planned.
    """

    sight: Sight = ~Sight.NOTHING
    """What the backend showed."""
    draft_hint: str = ""
    """What to check where it decodes plainly although a draft is set."""

    def show(self, metric: str) -> bool:
        """Return whether the backend shows what *metric* needs."""
        return not BY_NAME[metric].find_missing_sight(self.sight)


ALL_SHOWN = Terms()

_ALWAYS: tuple[Implicit, ...] = (
    Implicit(metric="error_rate", at_most=0.0, when="speculating", why="implicit: no answer may fail"),
    Implicit(metric="speculation_engaged", at_least=1.0, why="implicit: the draft must propose tokens in every answer"),
)
"""Objectives on every speculating setting; an objective of the SLO on the same metric replaces one."""
_WHOLE = Implicit(
    metric="truncation_rate",
    at_most=0.0,
    why="implicit: an answer that plain decoding completes may not be cut short",
)
"""At temperature 0; above it chance alone makes one answer to a prompt longer than the limit and another one not."""
_DEPLOYED = 'implicit with prompt_cache = "as-deployed": '
_NO_FAILED_TURN = Implicit(
    metric="warm_cache_error_rate", at_most=0.0, when="always", why=f"{_DEPLOYED}no turn may fail or stay empty"
)
_SAME_TURNS = Implicit(metric="warm_cache_agreement", at_least=1.0, why=f"{_DEPLOYED}a cache may not change answers")
_VERIFIED = Implicit(
    metric="replay_agreement",
    at_least=1.0,
    why="implicit: at temperature 0 each token is the target's own choice in the pass that verified it",
)
FALSE_ALARM = 0.001
"""A lossless draft fails with this chance per workload and ladder step: ten workloads on three steps stay under 3 %."""
_ALIKE = Implicit(
    metric="sampled_answers_p_value",
    at_least=FALSE_ALARM,
    why="implicit: above temperature 0 both arms draw their answers from one distribution",
)
_DRAWN = Implicit(
    metric="sampled_tokens_p_value",
    at_least=FALSE_ALARM,
    why="implicit: above temperature 0 each token is drawn from the target's distribution in the pass that verified it",
)
_NO_HARM = Implicit(
    metric="numerics_harm_p_value",
    at_least=HARM_LEVEL,
    why="implicit: no more answers may repeat themselves or run into their limit than with plain decoding",
)
_NO_HARM_SAMPLED = Implicit(**_NO_HARM.model_dump(include={"metric", "why"}), at_least=SAMPLED_HARM_LEVEL)


def implicit_objectives(slo: Slo, workload: str, terms: Terms) -> tuple[Implicit, ...]:
    """Return the implicit objectives of *workload*: those on metrics on which the SLO has none for it."""
    slo_objectives = [
        objective for objective in slo.objective if objective.against is None and objective.applies_to(workload)
    ]
    metrics = {objective.metric for objective in slo_objectives}
    warm = _warm_cache(slo_objectives, terms) if slo.subject.prompt_cache == "as-deployed" else ()
    speeds = [objective for objective in slo_objectives if objective.metric in SPEED_RATIOS]
    metrics |= {DECODE_RATIO} if speeds else set()  # the SLO names the speed that counts; whole answers count beside it
    least = min([NO_LOSS, *(objective.threshold for objective in speeds if objective.bound == "at_least")])
    greedy = is_greedy(slo, with_conditions(slo, ()))
    whole, words = ((_WHOLE,), _greedy_words(terms)) if greedy else ((), _sampled_words(terms))
    implicit = (*_ALWAYS, *whole, *warm, *_no_loss(slo, terms, least), *words)
    return tuple(objective for objective in implicit if objective.metric not in metrics)


def _warm_cache(slo_objectives: Sequence[Objective], terms: Terms) -> tuple[Implicit, ...]:
    """Return the objectives on turns with the prompt cache on: times have the bounds that the SLO has without one."""
    bounds = {(objective.metric, objective.bound): objective.threshold for objective in slo_objectives}
    ratios = [bounds[metric, "at_least"] for metric in SPEED_RATIOS if (metric, "at_least") in bounds]
    timed = {"warm_cache_turn_ratio": {"at_least": ratios[0] if ratios else NO_LOSS}}
    if ("ttft_delta", "at_most") in bounds:
        timed["warm_cache_ttft_delta"] = {"at_most": bounds["ttft_delta", "at_most"]}
    reason = f"{_DEPLOYED}a turn is held to the bound of one without a cache"
    shown = [Implicit(metric=name, why=reason, **bound) for name, bound in timed.items() if terms.show(name)]
    return (*shown, _NO_FAILED_TURN, _SAME_TURNS)


def _no_loss(slo: Slo, terms: Terms, least: float) -> tuple[Implicit, ...]:
    """Return the objectives that speculation slows nothing down: neither decoding nor, from end to end, an answer.

    A draft that decodes faster and reads the prompt so much longer that answers come later has gained nothing. An SLO
    that allows slower decoding by a bound of its own, *least*, allows as much slower answers.
    """
    metrics = PAIR_SPEEDS if slo.soak.concurrency == 1 else (SYSTEM_RATIO,)
    reasons = {DECODE_RATIO: "implicit: a draft may not make decoding slower"}
    of_answers = "implicit: a draft may not make whole answers slower"
    return tuple(
        Implicit(metric=metric, at_least=least, why=reasons.get(metric, of_answers))
        for metric in metrics
        if terms.show(metric)
    )


def _sampled_words(terms: Terms) -> tuple[Implicit, ...]:
    """Return the objectives that the draft changes no distribution, token by token or else by whole answers."""
    if not terms.show("sampled_answers_p_value"):
        return ()
    return (_NO_HARM_SAMPLED, _DRAWN if terms.show("sampled_tokens_p_value") else _ALIKE)


def _greedy_words(terms: Terms) -> tuple[Implicit, ...]:
    """Return the objectives that speculation is correct, and that greedy passes harm no answer."""
    if not terms.show("token_agreement"):
        return ()
    if not terms.show("replay_agreement"):
        return (_NO_HARM, *_words(terms))
    # A pass that a server tells of may itself rest on a wrong cache, which only plain decoding shows.
    told = Sight.REPLAY not in terms.sight and Sight.LOGPROBS in terms.sight
    return (_NO_HARM, _VERIFIED, *(_words(terms) if told else ()))


def _words(terms: Terms) -> tuple[Implicit, ...]:
    if Sight.LOGPROBS in terms.sight:
        reason = "implicit: at temperature 0 a draft changes no words, except where numerics turn plain decoding's lead"
        return (Implicit(metric="token_agreement", at_least=1.0, why=reason),)
    if Sight.LOGITS in terms.sight:
        reason = "implicit: at temperature 0 a draft changes no token, except where the target's logits nearly tie"
        return (Implicit(metric="token_agreement", at_least=1.0, why=reason),)
    reason = (
        "implicit: at temperature 0 a draft changes no words; the backend shows no logits, so near-ties are allowed"
    )
    return (Implicit(metric="token_agreement", at_least=AGREE_UNREAD, why=reason),)


def all_objectives(slo: Slo, workload: str, *, speculating: bool, terms: Terms = ALL_SHOWN) -> tuple[Objective, ...]:
    """Return every objective to check for *workload*: the SLO's own, then the implicit ones that apply."""
    slo_objectives = slo.objectives_for(workload, speculating=speculating)
    implicit = implicit_objectives(slo, workload, terms)
    return (*slo_objectives, *(objective for objective in implicit if speculating or objective.when == "always"))


def workloads_with(slo: Slo, settings: Mapping[str, Setting], metric: str, terms: Terms) -> tuple[str, ...]:
    """Return the speculating workloads that have an objective on *metric*."""
    return tuple(
        name
        for name, knobs in settings.items()
        if speculates(knobs)
        and any(objective.metric == metric for objective in all_objectives(slo, name, speculating=True, terms=terms))
    )


def workloads_measured_by(follow_up: str, slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """Return the workloads with an objective, named or not, that a follow-up of the soak measures."""
    return tuple(
        name
        for name, knobs in settings.items()
        if any(
            objective.of.measured_by == follow_up
            for objective in all_objectives(slo, name, speculating=speculates(knobs))
        )
    )


def needs_every_canary(objective: Objective) -> bool:
    """Return whether an objective is about every canary; an implicit one takes those that are paired anyway."""
    return objective.of.every_canary and not isinstance(objective, Implicit)


def forced_workloads(slo: Slo, settings: Mapping[str, Setting], terms: Terms) -> tuple[str, ...]:
    """Return the greedy workloads whose words are compared with plain decoding's by teacher forcing."""
    if (Sight.FORCED | Sight.TOKEN_IDS) & ~terms.sight:
        return ()
    return tuple(
        name
        for name, knobs in settings.items()
        if speculates(knobs)
        and is_greedy(slo, knobs)
        and any(map(needs_every_canary, slo.objectives_for(name, speculating=True)))
    )


def least_ratio(slo: Slo, workload: str, metric: str) -> float:
    """Return the ratio that a speculating setting must reach: plain decoding's speed, or the workload's own bound."""
    objectives = slo.objectives_for(workload, speculating=True)
    bounds = [
        objective.threshold for objective in objectives if objective.metric == metric and objective.bound == "at_least"
    ]
    return max([NO_LOSS, *bounds])
