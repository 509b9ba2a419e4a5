"""The preflight: objectives that a plan cannot prove, found before the first token, and what would help."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics.words.harm import HARM_LEVEL, canaries_to_see, visible_share
from gatekeeper.analysis.metrics.words.sampled_tokens import canaries_to_see as words_canaries
from gatekeeper.analysis.plan.complaints.complaint import Complaint, about_objective
from gatekeeper.analysis.plan.complaints.too_few_canaries import LEAST_PAIRS, WHOLE_ANSWERS, too_few_canaries
from gatekeeper.analysis.plan.objectives import Implicit, Terms, all_objectives
from gatekeeper.analysis.plan.settings import is_greedy, with_conditions
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import DECODE_RATIO, ENERGY_RATIO, SYSTEM_RATIO
from gatekeeper.core.metrics.metric import Metric, Per, Sight
from gatekeeper.core.reasons import CERTIFICATION, CERTIFICATION_S
from gatekeeper.core.slo import CHOSEN, CONDITIONS, Objective, Slo, Workload
from gatekeeper.core.units import percent, show, show_number, show_seconds

EXPLAINS_WORDS = Sight.REPLAY | Sight.VERIFIED | Sight.LOGPROBS | Sight.LOGITS
"""Any of these tells whether other words than plain decoding's are numerics."""
STALLS = "add an objective on itl_p95 if stalls matter"
SHORT_LIVED_S = 3600.0
"""A certificate that is over sooner can hardly be deployed: days are likely to be meant."""
SLOWEST_S = 30.0
"""A time per token, or to the first one, from which on a bound was rather meant in milliseconds."""
SMALLEST_B = 1e6
"""A size of memory below which a bound was rather meant in gigabytes."""
SHOWS_DRAFTING = Sight.ROUNDS | Sight.CLAIMED_ROUNDS | Sight.ARRIVALS
"""Counts, or else bursts, tell whether a draft is used."""
PER_TOKEN = {"energy_per_token": "power_mean", "system_energy_per_token": "system_power_mean"}
"""Objectives on the host that need the tokens of the answers, each with one that does not."""
LARGEST_CHANGE = 1.0
"""A bound above it on a change against plain decoding was rather meant in per cent: 1 is twice as long."""
LONGEST_DRAFT = 32
"""A round ends at the first wrong token, so that a swept length above this is rather a slip."""
FASTEST = 10.0
"""A gain in speed from which on a bound was rather meant in per cent."""


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """What the preflight needs to know about a backend."""

    name: str
    sight: Sight
    streams: int
    knobs: frozenset[str]
    caches: bool = False
    """It has a prompt cache that gatekeeper can switch on."""
    greedy_only: bool = False
    """It decodes greedily, whatever temperature a request has."""
    takes_knobs: bool = False
    """The SLO may say in [subject.knobs] how its server takes a knob."""
    may_show: Sight = Sight.NOTHING
    """What its first answers may show beyond *sight*, which is a forecast."""


def complaints(
    slo: Slo, canaries: Mapping[str, Sequence[Canary]], kind: BackendTraits, host_lacks: Mapping[str, str]
) -> list[Complaint]:
    """Return every complaint about the plan, `never` first, `weak` last."""
    complaints = [*_backend(slo, kind), *_contradictions(slo)]
    drafts, terms = bool(slo.subject.drafts), Terms(sight=kind.sight)
    for workload in slo.workload:
        count = len(canaries[workload.name])
        if workload.first is not None and count < workload.first:
            message = f"first = {workload.first}, but its file has {count}"
            complaints.append(Complaint("weak", f"workload {workload.name}", message, "add canaries, or remove first"))
        applying = all_objectives(slo, workload.name, speculating=drafts, terms=terms)
        for objective in (*applying, *slo.against_certified(workload.name)):
            complaints += _objective(slo, workload, objective, canaries[workload.name], kind)
    sampled = dict.fromkeys(objective.metric for objective in slo.objective if objective.of.samples)
    for metric in (name for name in sampled if name in host_lacks):
        message = f"not measurable on this host: {host_lacks[metric]}"
        hint = "certify on another host, or remove the objective"
        complaints.append(Complaint("not-here", f"objective {metric}", message, hint))
    complaints += [*odd_bound_complaints(slo), *_long_drafts(slo), *_weak_harm_test(slo, canaries, kind)]
    complaints += _weak_text_test(slo, canaries, terms=Terms(sight=kind.sight))
    if slo.soak.duration < CERTIFICATION_S:
        message = f"a soak of {slo.soak.duration:g} s makes a demo; a certificate needs {CERTIFICATION}"
        complaints.append(Complaint("weak", "soak.duration", message, f'set duration = "{CERTIFICATION}" to certify'))
    if (valid_for := slo.promote.valid_for) < SHORT_LIVED_S:
        message = f"the certificate expires {show_seconds(valid_for)} after the run; a number without a unit is seconds"
        complaints.append(Complaint("weak", "promote.valid_for", message, 'write the unit: valid_for = "30 d"'))
    order = {"never": 0, "not-here": 1, "weak": 2}
    return sorted(dict.fromkeys(complaints), key=lambda complaint: order[complaint.weight])


def _weak_harm_test(slo: Slo, canaries: Mapping[str, Sequence[Canary]], kind: BackendTraits) -> list[Complaint]:
    """Warn where the canaries of all workloads are too few to find the harm that the SLO wants found.

    It decides nothing where each token is verified in a replay, or where no word differs from plain decoding's.
    """
    terms = Terms(sight=kind.sight)
    objectives = [
        (workload.name, objective)
        for workload in slo.workload
        for objective in all_objectives(slo, workload.name, speculating=bool(slo.subject.drafts), terms=terms)
        if objective.metric == "numerics_harm_p_value"
    ]
    if not objectives or Sight.REPLAY in kind.sight:
        return []
    level = min(HARM_LEVEL, objectives[0][1].threshold)
    count = sum(len(canaries[name]) for name, _ in objectives)
    share, allowed = visible_share(count, level=level), percent(slo.visible_harm, ".2g")
    if share <= slo.visible_harm:
        return []
    message = (
        f"with {count} canaries degenerate answers are found if they are {percent(share, '.2g')} "
        f"of all, {allowed} wanted: a run in which a word differs from plain decoding's stays unproven"
    )
    hint = f"add canaries, to {canaries_to_see(slo.visible_harm, level)} in all workloads, or set visible_harm"
    return [Complaint("weak", "objective numerics_harm_p_value", message, hint)]


def _weak_text_test(slo: Slo, canaries: Mapping[str, Sequence[Canary]], terms: Terms) -> Iterator[Complaint]:
    """Warn of workloads whose canaries are too few to find other words, above temperature 0, in so many answers."""
    for workload in slo.workload:
        objectives = all_objectives(slo, workload.name, speculating=bool(slo.subject.drafts), terms=terms)
        tested = [objective for objective in objectives if objective.metric == WHOLE_ANSWERS]
        need = words_canaries(slo.visible_harm, tested[0].threshold) if tested else None
        count = len(canaries[workload.name])
        if need is not None and LEAST_PAIRS <= count < need:
            message = (
                f"with two answers to each of {count} canaries, other words are not surely found in "
                f"{percent(slo.visible_harm, '.2g')} of the answers: the workload may stay unproven"
            )
            hint = f"add canaries, to about {need}, or set visible_harm"
            yield Complaint("weak", about_objective(tested[0], workload), message, hint)


def missing_capabilities(
    slo: Slo, kind: BackendTraits, shown: Sight, draft_hint: str, *, counts_pieces: bool | None = None
) -> list[Complaint]:
    """Return what objectives need and this system does not show, unlike others of its kind.

    *draft_hint* is the usual reason why a system of this kind with a draft decodes plainly. It *counts_pieces* where
    the tokens of each piece of an answer are known; None: no answer says.
    """
    complaints = []
    drafts, terms = bool(slo.subject.drafts), Terms(sight=shown)
    for workload in slo.workload:
        for objective in all_objectives(slo, workload.name, speculating=drafts, terms=terms):
            about = about_objective(objective, workload)
            if lacking := _find_lacking_sight(objective, shown) & ~_find_lacking_sight(
                objective, kind.sight | kind.may_show
            ):
                message = f"this {kind.name} did not show {lacking.words} in two short answers"
                hint = (
                    draft_hint if lacking & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS) else "check its settings and version"
                )
                complaints.append(Complaint("not-here", about, message, hint))
            elif objective.of.base == "itl" and counts_pieces is False:
                message = f"this {kind.name} did not show how many tokens each piece of two short answers has"
                hint = "use a server that counts them or sends one token a piece, or an objective on answer_latency_p95"
                complaints.append(Complaint("not-here", about, message, hint))
            elif objective.metric == "speculation_engaged" and not shown & SHOWS_DRAFTING:
                message = f"this {kind.name} neither counts drafted tokens nor sends its answers in pieces"
                hint = "use a server that streams or counts them: else it stays unknown whether the draft is used"
                complaints.append(Complaint("not-here", about, message, hint))
    for objective in slo.objective:
        if objective.metric in PER_TOKEN and Sight.TOKEN_COUNT not in shown:
            message = f"this {kind.name} did not show {Sight.TOKEN_COUNT.words} in two short answers"
            hint = f"use an objective on {PER_TOKEN[objective.metric]}, or a server that counts them"
            complaints.append(Complaint("not-here", f"objective {objective.metric}", message, hint))
    return complaints


def _find_lacking_sight(objective: Objective, sight: Sight) -> Sight:
    """Return what *objective* needs and *sight* lacks, by where its count of rounds comes from."""
    unseen = objective.of.find_missing_sight(sight)
    if Sight.ROUNDS in objective.of.needs and objective.source == "claims":
        unseen = (unseen & ~Sight.ROUNDS) | (Sight.CLAIMED_ROUNDS & ~sight)
    return unseen


def _complain_of_sampling(slo: Slo, kind: BackendTraits) -> list[Complaint]:
    """Complain of temperatures above 0 with a backend that would answer greedily all the same."""
    written = {
        "sampling.temperature": (slo.sampling.temperature,),
        "sweep.temperature": slo.sweep.temperature,
        "sweep.default.temperature": (slo.sweep.default.temperature or 0.0,),
    }
    message = f"backend {kind.name} decodes greedily at any temperature, so greedy answers would be judged"
    hint = "set temperature = 0, or use another backend"
    above = [about for about, values in written.items() if any(value > 0 for value in values)]
    return [Complaint("never", about, message, hint) for about in above if kind.greedy_only]


def _missing_knobs(slo: Slo, kind: BackendTraits) -> Iterator[Complaint]:
    """Yield a complaint for each swept knob that the backend does not have."""
    swept = [("sweep", knob) for knob in (*CHOSEN, *CONDITIONS) if slo.sweep.values(knob)]
    for table, knob in swept:
        if knob not in kind.knobs and not (knob == "concurrency" and kind.streams > 1):
            message = f"backend {kind.name} has no knob {knob}"
            hint = f"its knobs: {', '.join(sorted(kind.knobs))}"
            if kind.takes_knobs:
                hint += f"; where your server has it, say how it takes it: [subject.knobs.{knob}], field or argv"
            yield Complaint("never", f"{table}.{knob}", message, hint)


def _backend(slo: Slo, kind: BackendTraits) -> list[Complaint]:
    complaints = [*_missing_knobs(slo, kind), *_complain_of_sampling(slo, kind)]
    for streams in {slo.soak.concurrency, *slo.sweep.concurrency}:
        if streams > kind.streams:
            message = f"backend {kind.name} serves {kind.streams} at once, the SLO sets concurrency = {streams}"
            complaints.append(
                Complaint("never", "soak.concurrency", message, "use a server backend such as mlx-server")
            )
    if slo.subject.prompt_cache == "as-deployed" and not kind.caches:
        message = f"backend {kind.name} has no prompt cache that gatekeeper can switch on"
        hint = 'set prompt_cache = "off", or use backend = "mlx-server" without `command`'
        complaints.append(Complaint("never", "subject.prompt_cache", message, hint))
    if not slo.subject.drafts:
        required = [workload.name for workload in slo.workload if workload.speculation == "required"]
        if required:
            message = f"speculation is required for {', '.join(required)}, but subject.drafts is empty"
            complaints.append(
                Complaint("never", "subject.drafts", message, 'add a draft, or set speculation = "optional"')
            )
    if slo.subject.target in slo.subject.drafts:
        message = "the draft is the target itself, so each drafted token costs as much as a plain one"
        complaints.append(Complaint("weak", "subject.drafts", message, "name a lighter model of the same family"))
    if not slo.fallback.ladder:
        message = "the ladder is empty: a workload that fails an objective cannot be graded back"
        complaints.append(Complaint("weak", "fallback.ladder", message, 'add at least "autoregressive"'))
    return complaints


def _contradictions(slo: Slo) -> list[Complaint]:
    complaints = []
    bounds: dict[str, list[Objective]] = defaultdict(list)
    for objective in slo.objective:
        if objective.against is None:
            bounds[objective.metric].append(objective)
    for metric, objectives in bounds.items():
        for floor in objectives:
            for roof in objectives:
                if floor.bound == "at_most" or roof.bound == "at_least" or floor.threshold <= roof.threshold:
                    continue
                if any(floor.applies_to(workload.name) and roof.applies_to(workload.name) for workload in slo.workload):
                    lowest, highest = (show(objective.threshold, objective.of.unit) for objective in (floor, roof))
                    message = f"at_least {lowest} and at_most {highest} contradict each other"
                    hint = f"remove one of the two, or set at_least to {highest} or less"
                    complaints.append(Complaint("never", f"objective {metric}", message, hint))
    return complaints


def _unseen_hint(unseen: Sight, sight: Sight) -> str:
    """Return what to do where a backend, which shows *sight*, lacks what a metric needs."""
    hint = "remove the objective, or use another backend"
    if Sight.ROUNDS in unseen:
        hint += ", such as mlx or mlx-server"
    if unseen == Sight.ROUNDS and Sight.CLAIMED_ROUNDS in sight:
        hint = 'use the server\'s own counters with from = "claims", or remove the objective'
    if Sight.PLAIN in unseen:
        hint = "name the same target without a draft, by plain_url or plain_command, or remove the objective"
    if unseen == Sight.CLAIMED_ROUNDS and Sight.ROUNDS in sight:
        hint = 'delete from = "claims": this backend shows what it drafts, and it is counted'
    return hint


def _objective(
    slo: Slo, workload: Workload, objective: Objective, canaries: Sequence[Canary], kind: BackendTraits
) -> list[Complaint]:
    metric, about = objective.of, about_objective(objective, workload)
    counts = kind.sight & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS)
    if unseen := _find_lacking_sight(objective, kind.sight | kind.may_show):
        hint = _unseen_hint(unseen, kind.sight)
        return [Complaint("never", about, f"backend {kind.name} does not show {unseen.words}", hint)]
    if metric.per is Per.WINDOW and 3 * slo.soak.window_s > slo.soak.duration:
        message = f"three windows of {slo.soak.window_s:g} s are longer than the soak of {slo.soak.duration:g} s"
        hint = f'set soak.window = "{slo.soak.duration / 3:g} s", or duration = "{3 * slo.soak.window_s:g} s"'
        return [Complaint("never", about, message, hint)]
    if metric.name == "speculation_engaged" and objective.scope == "population" and not counts:
        message = f"backend {kind.name} does not count drafted tokens, so the answers that used the draft are unknown"
        return [Complaint("never", about, message, "remove `scope`: for the run as a whole it can be shown")]
    if metric.name == "token_agreement" and not isinstance(objective, Implicit) and not kind.sight & EXPLAINS_WORDS:
        message = (
            f"backend {kind.name} shows text alone, in which other words may come from numerics as well as from a fault"
        )
        hint = (
            "remove the objective: other words are reported; only log-probabilities, logits or rounds tell them apart"
        )
        return [Complaint("never", about, message, hint)]
    complaints = [*_wrong_conditions(slo, metric, about), *too_few_canaries(slo, workload, objective, canaries)]
    if unknown := _find_lacking_sight(objective, kind.sight):
        message = f"not every {kind.name} shows {unknown.words}"
        complaints.append(Complaint("weak", about, message, "the first two answers of the run decide"))
    return complaints


def _wrong_conditions(slo: Slo, metric: Metric, about: str) -> list[Complaint]:
    name, subject, greedy = metric.name, slo.subject, is_greedy(slo, with_conditions(slo, ()))
    impossible = (
        (
            name == "token_agreement" and not greedy,
            "tokens can only be compared at temperature 0",
            "set temperature = 0",
        ),
        (
            name in {"sampled_answers_p_value", "sampled_tokens_p_value"} and greedy,
            "at temperature 0 nothing is drawn",
            "set a temperature above 0, or remove the objective",
        ),
        (
            metric.measured_by == "warm_cache" and subject.prompt_cache == "off",
            "no request uses a warm cache while the prompt cache is off",
            'set prompt_cache = "as-deployed" in [subject]',
        ),
        (
            name == ENERGY_RATIO and slo.soak.concurrency > 1,
            f"at concurrency {slo.soak.concurrency} the power at one moment is of several answers",
            "set concurrency = 1 in [soak]",
        ),
    )
    complaints = [Complaint("never", about, message, hint) for wrong, message, hint in impossible if wrong][:1]
    if not complaints and name == DECODE_RATIO and slo.soak.concurrency > 1:
        message = f"at concurrency {slo.soak.concurrency} the speed of single answers does not include queueing"
        return [Complaint("weak", about, message, f"add an objective on {SYSTEM_RATIO}")]
    return complaints


def latency_complaints(slo: Slo) -> list[Complaint]:
    """Note what each bound on latency or decode speed implies, in case that is not what was meant."""
    complaints = []
    for number, objective in enumerate(slo.objective, start=1):
        implied = _explain_bound(objective)
        if implied is not None:
            message, hint = implied
            complaints.append(Complaint("weak", f"objective[{number}] {objective.metric}", message, hint))
    return complaints


def _explain_bound(objective: Objective) -> tuple[str, str] | None:
    base, bound, share = objective.of.base, objective.threshold, percent(objective.of.quantile or 0.0)
    if bound <= 0 or objective.against is not None:
        return None
    if base == "itl" and objective.bound == "at_most":
        tokens = f"{show_seconds(bound)} per token for {share} of the tokens"
        message = f"{tokens} means at least {show_number(1 / bound)} tok/s at that quantile"
        return message, "the median is faster; use decode_throughput if you mean the median"
    if base == "tpot" and objective.bound == "at_most":
        mean = f"{show_seconds(bound)} per token on average in {share} of the answers"
        message = f"{mean} means at least {show_number(1 / bound)} tok/s"
        return message, STALLS
    if base == "decode_throughput" and objective.bound == "at_least":
        message = (
            f"{show(bound, 'tok/s')} means one token every {show_seconds(1 / bound)} in the median answer; single gaps "
            "may be far longer"
        )
        return message, STALLS
    return None


def odd_bound_complaints(slo: Slo) -> Iterator[Complaint]:
    """Yield a warning for each objective whose bound says something else than people mean by its number."""
    for number, objective in enumerate(slo.objective, start=1):
        if objective.against is not None:
            continue
        odd = _odd_size(objective) or _odd_direction(objective, slo)
        if odd is not None:
            yield Complaint("weak", f"objective[{number}] {objective.metric}", *odd)


def _long_drafts(slo: Slo) -> Iterator[Complaint]:
    """Yield a warning for a draft length that hardly pays anywhere; the tokens of a block are drafted at once."""
    lengths = [value for value in slo.sweep.values("num_draft_tokens") if isinstance(value, int)]
    if lengths and max(lengths) > LONGEST_DRAFT:
        message = f"a draft length of {max(lengths)} hardly pays: a round ends at the first wrong token"
        yield Complaint("weak", "sweep.num_draft_tokens", message, "most drafts pay at 2 to 8 tokens")


def _odd_size(objective: Objective) -> tuple[str, str] | None:
    metric, bound = objective.of, objective.threshold
    says = f"{objective.bound} = {bound:g} means {show(bound, metric.unit)}"
    if metric.unit == "s" and not metric.host and objective.bound == "at_most" and bound >= SLOWEST_S:
        return says, f'for milliseconds write "{bound:g} ms"'
    if metric.unit == "B" and objective.bound == "at_least" and 0 < bound < SMALLEST_B:
        return says, f'for gigabytes write "{bound:g} GB"'
    if metric.speed_ratio and objective.bound == "at_least" and bound >= FASTEST:
        return f"at_least = {bound:g} means {bound:g} times plain decoding's speed", "for 20 % more write 1.2"
    if metric.relative and objective.bound == "at_most" and bound > LARGEST_CHANGE:
        return f"at_most = {bound:g} means {metric.show(bound)}", f'for {bound:g} % write "{bound:g} %"'
    return None


def _odd_direction(objective: Objective, slo: Slo) -> tuple[str, str] | None:
    """Return a complaint of a bound on the good side, where no objective bounds the bad side of the same metric."""
    good = "at_most" if objective.of.higher_is_better else "at_least"
    beside = any(other.metric == objective.metric and other.bound != good for other in slo.objective)
    if objective.bound != good or beside:
        return None
    better = "higher" if objective.of.higher_is_better else "lower"
    right = "at_least" if objective.of.higher_is_better else "at_most"
    return f"{good} limits how good it may be: {better} is better", f"write {right}"
