"""The preflight: what a plan cannot prove, found before the first token, and the number that would make it provable."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gatekeeper.analysis.plan.ladder import bound_level, soaked_settings
from gatekeeper.analysis.plan.objectives import all_objectives
from gatekeeper.analysis.plan.sweep_plan import share_of_budget
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import BY_NAME, Metric, PassRate, Per, Sight
from gatekeeper.core.slo import CERTIFICATION_S, CHOSEN, CONDITIONS, Objective, Slo, Workload
from gatekeeper.core.units import percent, show, show_seconds

FROZEN = 'scope = "frozen" speaks of these canaries alone'
LEAST_PAIRS = 5
"""Fewer canaries give a bootstrap nothing to resample."""

Weight = Literal["never", "not-here", "weak"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing the plan cannot prove: `never` by arithmetic or backend, `not-here` on this host, `weak` a warning."""

    weight: Weight
    about: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """What the preflight needs to know of a backend."""

    name: str
    sight: Sight
    streams: int
    knobs: frozenset[str]
    caches: bool = False
    """It has a prompt cache to switch on."""


def complaints(
    slo: Slo, canaries: Mapping[str, Sequence[Canary]], kind: BackendTraits, host_lacks: Mapping[str, str]
) -> list[Complaint]:
    """Return every complaint about the plan, the hopeless ones first."""
    found = [*_backend(slo, kind), *_contradictions(slo)]
    for workload in slo.workload:
        for objective in all_objectives(slo, workload.name, speculating=bool(slo.subject.drafts)):
            found += _objective(slo, workload, objective, canaries[workload.name], kind)
    for objective in slo.host_objectives:
        if objective.metric in host_lacks:
            about, why = f"objective {objective.metric}", host_lacks[objective.metric]
            message, hint = f"this host cannot show it: {why}", "certify where it is shown, or leave the promise out"
            found.append(Complaint("not-here", about, message, hint))
    if slo.soak.duration < CERTIFICATION_S:
        message = f"a soak of {slo.soak.duration:g} s is a demo; a certificate needs {CERTIFICATION_S:g} s"
        found.append(Complaint("weak", "soak.duration", message, 'set duration = "600 s" to certify'))
    order = {"never": 0, "not-here": 1, "weak": 2}
    return sorted(dict.fromkeys(found), key=lambda one: order[one.weight])


def missing_capabilities(slo: Slo, kind: BackendTraits, shown: Sight, silent: str) -> list[Complaint]:
    """Return what objectives need and this system, unlike its kind, does not show; *silent* says where to look."""
    found = []
    for workload in slo.workload:
        for objective in all_objectives(slo, workload.name, speculating=bool(slo.subject.drafts)):
            if lacking := _unseen(objective, kind.sight) ^ _unseen(objective, shown):
                about = f"objective {objective.metric}, workload {workload.name}"
                message = f"this {kind.name} does not show: {_names(lacking)}; its kind can, two short answers did not"
                hint = silent if lacking & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS) else "look at its settings and version"
                found.append(Complaint("not-here", about, message, hint))
    return found


def _unseen(objective: Objective, sight: Sight) -> Sight:
    """Return what *objective* needs and *sight* lacks; the server's claims count where the objective says so."""
    unseen = objective.of.needs & ~sight
    if Sight.ROUNDS in objective.of.needs and objective.source == "claims":
        unseen = (unseen & ~Sight.ROUNDS) | (Sight.CLAIMED_ROUNDS & ~sight)
    return unseen


def _names(sight: Sight) -> str:
    return ", ".join(str(flag.name).lower() for flag in sight)


def _backend(slo: Slo, kind: BackendTraits) -> list[Complaint]:
    found = []
    swept = [knob for knob in (*CHOSEN, *CONDITIONS) if slo.sweep.values(knob)]
    for knob in swept:
        if knob not in kind.knobs and not (knob == "concurrency" and kind.streams > 1):
            message = f"backend {kind.name} has no knob {knob}"
            found.append(Complaint("never", f"sweep.{knob}", message, f"it has: {', '.join(sorted(kind.knobs))}"))
    for streams in {slo.soak.concurrency, *slo.sweep.concurrency}:
        if streams > kind.streams:
            message = f"backend {kind.name} answers {kind.streams} at once, the SLO asks for {streams}"
            found.append(Complaint("never", "soak.concurrency", message, "use a server backend such as mlx-server"))
    if slo.subject.prompt_cache == "as-deployed" and not kind.caches:
        message = f"backend {kind.name} has no prompt cache that gatekeeper could switch on"
        hint = 'set prompt_cache = "off", or use backend = "mlx-server" without a command of your own'
        found.append(Complaint("never", "subject.prompt_cache", message, hint))
    if not slo.subject.drafts:
        required = [workload.name for workload in slo.workload if workload.speculation == "required"]
        if required:
            message = f"{', '.join(required)} requires speculation, but subject.drafts is empty"
            found.append(Complaint("never", "subject.drafts", message, 'name a draft, or set speculation = "optional"'))
    if not slo.fallback.ladder:
        message = "without a rung a broken promise can not be graded back, only failed"
        found.append(Complaint("weak", "fallback.ladder", message, 'add at least "autoregressive"'))
    return found


def _contradictions(slo: Slo) -> list[Complaint]:
    found = []
    bounds: dict[str, list[Objective]] = defaultdict(list)
    for objective in slo.objective:
        bounds[objective.metric].append(objective)
    for metric, same in bounds.items():
        for floor in same:
            for roof in same:
                if floor.bound == "at_most" or roof.bound == "at_least" or floor.threshold <= roof.threshold:
                    continue
                if any(floor.applies_to(one.name) and roof.applies_to(one.name) for one in slo.workload):
                    lowest, highest = (show(one.threshold, one.of.unit) for one in (floor, roof))
                    message = f"at_least {lowest} and at_most {highest} exclude each other"
                    hint = f"drop one of the two, or promise at_least {highest} or less"
                    found.append(Complaint("never", f"objective {metric}", message, hint))
    return found


def _objective(
    slo: Slo, workload: Workload, objective: Objective, canaries: Sequence[Canary], kind: BackendTraits
) -> list[Complaint]:
    metric = objective.of
    about = f"objective {metric.name}, workload {workload.name}"
    if unseen := _unseen(objective, kind.sight):
        hint = "drop it, or use a backend that does"
        if Sight.ROUNDS in unseen:
            hint += ", such as mlx or mlx-server"
        if unseen == Sight.ROUNDS and Sight.CLAIMED_ROUNDS in kind.sight:
            hint = 'take the server at its word with from = "claims", or drop it'
        return [Complaint("never", about, f"backend {kind.name} does not show: {_names(unseen)}", hint)]
    if metric.per is Per.WINDOW and 3 * slo.soak.window_s > slo.soak.duration:
        message = f"three windows of {slo.soak.window_s:g} s do not fit into a soak of {slo.soak.duration:g} s"
        hint = f'set soak.window = "{slo.soak.duration / 3:g} s", or duration = "{3 * slo.soak.window_s:g} s"'
        return [Complaint("never", about, message, hint)]
    if metric.name == "speculation_engaged" and objective.scope == "population" and not _counts(kind):
        message = f"backend {kind.name} counts no drafted tokens, so nothing tells in which answers the draft was used"
        return [Complaint("never", about, message, "leave out `scope`: of the run as a whole it can be told")]
    return [*_wrong_conditions(slo, metric, about), *_too_few(slo, objective, about, canaries)]


def _counts(kind: BackendTraits) -> bool:
    return bool(kind.sight & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS))


def _wrong_conditions(slo: Slo, metric: Metric, about: str) -> list[Complaint]:
    if metric.name == "token_agreement" and slo.sampling.temperature > 0:
        return [Complaint("never", about, "tokens agree one by one at temperature 0 only", "set temperature = 0")]
    if metric.name == "warm_cache_agreement" and slo.subject.prompt_cache == "off":
        message = "nothing is asked with a warm cache while the prompt cache is off"
        return [Complaint("never", about, message, 'set prompt_cache = "as-deployed" in [subject]')]
    if metric.name == "first_tokens_p_value" and not slo.sampling.distribution_check:
        message = "no first tokens are sampled for it"
        return [Complaint("never", about, message, "set distribution_check = true in [sampling]")]
    if metric.name == "first_tokens_p_value" and slo.sampling.temperature == 0:
        message = "at temperature 0 there is no distribution to compare"
        return [Complaint("never", about, message, "promise token_agreement, or set a temperature")]
    if metric.name == "throughput_ratio" and slo.soak.concurrency > 1:
        message = f"at concurrency {slo.soak.concurrency} the speed of single answers hides queueing"
        return [Complaint("weak", about, message, "promise system_throughput_ratio as well")]
    return []


def _too_few(slo: Slo, objective: Objective, about: str, canaries: Sequence[Canary]) -> list[Complaint]:
    metric, have = objective.of, len(canaries)
    if metric.pass_rate is not None:
        return _pass_delta(slo, objective, metric.pass_rate, about, canaries)
    if metric.counted and objective.scope == "population" and (found := _share(slo, objective, about, have)):
        return [found]
    if metric.quantile is not None:
        need = intervals.samples_needed(metric.quantile, bound_level(slo))
        if have < need:
            message = (
                f"a bound on the {percent(metric.quantile)} quantile at {_confidence(slo)} needs {need} distinct "
                f"canaries; there are {have}"
            )
            hint = f"add {need - have} canaries{_lower(slo, metric, have)}"
            return [Complaint("never", about, message, hint)]
    elif metric.per is Per.PAIR and not metric.counted and have < LEAST_PAIRS:
        message = f"needs {LEAST_PAIRS} distinct canaries; there are {have}"
        return [Complaint("never", about, message, f"add {LEAST_PAIRS - have} canaries")]
    if metric.against_plain and (swept := share_of_budget(slo, canaries)[0]) < LEAST_PAIRS <= have:
        message = (
            f"sweep.budget = {slo.sweep.budget} leaves {swept} canaries in the sweep; choosing needs {LEAST_PAIRS}"
        )
        return [Complaint("never", about, message, f"set budget = {LEAST_PAIRS} or more")]
    return []


def _pass_delta(
    slo: Slo, objective: Objective, rate: PassRate, about: str, canaries: Sequence[Canary]
) -> list[Complaint]:
    kind = rate.kind
    marked = [canary for canary in canaries if canary.expect and kind in {None, canary.expect.kind}]
    if not marked:
        wanted = "an `expect`" if kind is None else f"a {kind} expectation"
        if objective.workloads:
            return [Complaint("never", about, f"no canary has {wanted}", "add `expect`, or narrow `workloads`")]
        message = f"no canary has {wanted}, so the promise can not be checked here"
        return [Complaint("never", about, message, "name the workloads it is made for: workloads = [...]")]
    if objective.scope == "frozen" and slo.sampling.temperature == 0:
        return []
    edge = abs(objective.threshold)
    half = 1 - (1 - bound_level(slo)) / 2
    bound = intervals.proportion_bounds(0, len(marked), half)[1]
    if bound > edge:
        need = next((n for n in range(len(marked), 100_000) if 1 - (1 - half) ** (1 / n) <= edge), None)
        message = (
            f"even with no flip in {len(marked)} canaries the bound at {_confidence(slo)} is {bound:.2%}, wider than "
            f"{edge:.2%}"
        )
        frozen = 'scope = "frozen" at temperature 0 speaks of these canaries alone'
        hint = f"needs about {need} canaries without a flip; {frozen}" if need else frozen
        return [Complaint("never", about, message, hint)]
    return []


def _share(slo: Slo, objective: Objective, about: str, have: int) -> Complaint | None:
    """Say why *have* canaries, even if all pass, cannot show the share of all prompts that an objective requires."""
    required = objective.threshold if objective.bound == "at_least" else 1 - objective.threshold
    if required >= 1:
        message = "no number of canaries shows that it holds for every prompt like them"
        return Complaint("never", about, message, f"leave room for some prompts, or {FROZEN}")
    need = intervals.units_needed(required, bound_level(slo))
    if have >= need:
        return None
    unseen = 1 - (1 - bound_level(slo)) ** (1 / have)
    message = (
        f"even if all {have} canaries keep it, {unseen:.3%} of all prompts like them may not, at {_confidence(slo)}; "
        f"the promise leaves {1 - required:.3%}"
    )
    return Complaint("never", about, message, f"needs {need} canaries that all keep it; {FROZEN}")


def _confidence(slo: Slo) -> str:
    split = f", split over {soaked_settings(slo)} rungs," if soaked_settings(slo) > 1 else ""
    return f"{slo.confidence:.0%} confidence{split}"


def _lower(slo: Slo, metric: Metric, have: int) -> str:
    """Name the highest quantile of the same kind that *have* canaries can prove, if there is one."""
    same = {
        one.name: intervals.samples_needed(one.quantile, bound_level(slo))
        for one in sorted(BY_NAME.values(), key=lambda one: one.quantile or 0.0)
        if one.quantile is not None and one.base == metric.base
    }
    provable = [name for name, need in same.items() if need <= have]
    return f", or promise {provable[-1]}, which needs {same[provable[-1]]}" if provable else ""


def latency_complaints(slo: Slo) -> list[Complaint]:
    """Note what each bound on latency or decode speed implies; a person who meant something else sees it here."""
    found = []
    for number, objective in enumerate(slo.objective, start=1):
        implied = _implied(objective)
        if implied is not None:
            message, hint = implied
            found.append(Complaint("weak", f"objective[{number}] {objective.metric}", message, hint))
    return found


def _implied(objective: Objective) -> tuple[str, str] | None:
    base, bound, share = objective.of.base, objective.threshold, percent(objective.of.quantile or 0.0)
    if bound <= 0:
        return None
    if base == "itl" and objective.bound == "at_most":
        tokens = f"{show_seconds(bound)} a token for {share} of the tokens"
        message = f"{tokens} means at least {1 / bound:.3g} tok/s at that quantile"
        return message, "the median is faster; promise decode_throughput as well if you mean the median"
    if base == "tpot" and objective.bound == "at_most":
        message = (
            f"{show_seconds(bound)} a token on average in {share} of the answers means at least {1 / bound:.3g} tok/s"
        )
        return message, "promise itl_p95 as well if stalls matter"
    if base == "decode_throughput" and objective.bound == "at_least":
        message = (
            f"{show(bound, 'tok/s')} means a token every {show_seconds(1 / bound)} in the median answer; single gaps "
            "may be far longer"
        )
        return message, "promise itl_p95 as well if stalls matter"
    return None
