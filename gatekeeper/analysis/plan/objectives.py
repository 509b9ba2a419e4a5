"""The objectives that apply to a workload: the SLO's own, and the implicit ones of every speculating setting."""

from collections.abc import Mapping

from gatekeeper.analysis.metrics.first_tokens import FALSE_ALARM
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Objective, Slo

IMPLICIT: tuple[Objective, ...] = (
    Objective(metric="error_rate", at_most=0.0, when="speculating", why="implicit: no answer may fail"),
    Objective(
        metric="speculation_engaged", at_least=1.0, why="implicit: the draft must propose tokens in every answer"
    ),
    Objective(
        metric="truncation_rate",
        at_most=0.0,
        why="implicit: an answer that plain decoding completes may not be cut short",
    ),
)
"""Objectives on every speculating setting; an objective of the SLO on the same metric replaces one."""
WARM_CACHE = Objective(
    metric="warm_cache_agreement",
    at_least=1.0,
    why='implicit with prompt_cache = "as-deployed": a cache may not change answers',
)
FIRST_TOKENS = Objective(
    metric="first_tokens_p_value",
    at_least=FALSE_ALARM,
    why="implicit with distribution_check: a draft may not change the distribution of tokens",
)


def implicit_objectives(slo: Slo) -> tuple[Objective, ...]:
    """Return the implicit objectives on metrics without an objective of the SLO's own."""
    named = {objective.metric for objective in slo.objective}
    warm = (WARM_CACHE,) if slo.subject.prompt_cache == "as-deployed" else ()
    all_of_them = (*IMPLICIT, *warm, *((FIRST_TOKENS,) if slo.sampling.distribution_check else ()))
    return tuple(objective for objective in all_of_them if objective.metric not in named)


def all_objectives(slo: Slo, workload: str, *, speculating: bool) -> tuple[Objective, ...]:
    """Return every objective to check for *workload*: the SLO's own, then the implicit ones."""
    own = slo.objectives_for(workload, speculating=speculating)
    return (*own, *implicit_objectives(slo)) if speculating else own


def workloads_with(slo: Slo, settings: Mapping[str, Setting], metric: str) -> tuple[str, ...]:
    """Return the speculating workloads that have an objective on *metric*."""
    return tuple(
        name
        for name, knobs in settings.items()
        if speculates(knobs) and any(one.metric == metric for one in all_objectives(slo, name, speculating=True))
    )


def warm_cache_workloads(slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """Return the workloads that are measured again with the prompt cache on."""
    return workloads_with(slo, settings, "warm_cache_agreement") if slo.subject.prompt_cache == "as-deployed" else ()


def first_token_workloads(slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """Return the workloads whose first tokens are sampled in both arms."""
    return workloads_with(slo, settings, "first_tokens_p_value") if slo.sampling.distribution_check else ()
