"""Records become samples, and samples the estimate of a metric. The answer is the unit; tokens never are."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from statistics import fmean, median

from gatekeeper.terms.canary import Canary
from gatekeeper.terms.metrics import PASS_DELTAS, RATIOS
from gatekeeper.terms.outcome import Estimate, Missing, fact
from gatekeeper.terms.records import Answer, Generation, Role, Tie
from gatekeeper.verdict import agreement, draws, stats
from gatekeeper.verdict.quality import grade

LOST_PAIRS = 0.05
"""More lost pairs than this, and ratios are unproven (contract)."""
BURST = 0.10
"""Arrivals closer together than this share of plain decoding's median gap are one burst (contract)."""
SAME_LENGTH = 0.9
"""Greedy answers whose lengths differ more are different work: such a pair carries no speed."""
DRAWN_LENGTH = 0.1
"""Above temperature 0 lengths are drawn; only an answer under a tenth of its twin is a cut and no speed."""
CUT_SHORT = 0.5
"""A greedy answer under half of plain decoding's length, on the same canary, was cut short."""

Pair = tuple[Generation, Generation]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was recorded of one workload at one setting, and how to read it."""

    workload: str
    canaries: Mapping[str, Canary]
    answers: tuple[Generation, ...]
    """Answers of the setting under judgement; for a plain setting these are plain answers."""
    plain: tuple[Generation, ...]
    """Plain answers to compare with; empty when plain decoding itself is judged."""
    level: float
    seed: int
    greedy: bool
    window_s: float = 120.0
    drift_limit: float = 0.05
    lost_limit: float = LOST_PAIRS
    frozen: bool = True
    """False where an objective speaks of the population the canaries stand for."""
    pairs: tuple[Pair, ...] = field(default=())
    ties: tuple[Tie, ...] = ()
    """How near the target's logits lay where the arms parted; read after the soak."""
    warm: tuple[Generation, ...] | str = "nothing was asked with the prompt cache on"
    """Answers of both arms with the candidate's prompt cache on, or why there are none to trust."""
    draws: tuple[Generation, ...] | str = "no first tokens were sampled"
    """First tokens of both arms, or why there are none to trust."""


def gather(evidence: Evidence) -> Evidence:
    """Drop the warm-ups and pair the arms: by their pair, else with the nearest answer to the same canary in time."""
    answers = tuple(one for one in evidence.answers if one.role is not Role.WARMUP)
    plain = tuple(one for one in evidence.plain if one.role is not Role.WARMUP)
    by_pair = {(one.pair, one.canary): one for one in answers if one.pair}
    by_canary: dict[str, list[Generation]] = defaultdict(list)
    for one in answers:
        if one.role is not Role.CLOSING:
            by_canary[one.canary].append(one)
    pairs = []
    for twin in plain:
        mate = by_pair.get((twin.pair, twin.canary)) if twin.pair else None
        if mate is None and twin.role is Role.BLOCK and by_canary[twin.canary]:
            same = [one for one in by_canary[twin.canary] if one.segment == twin.segment] or by_canary[twin.canary]
            mate = min(same, key=lambda one: abs(one.answer.sent_ns - twin.answer.sent_ns))
        if mate is not None:
            pairs.append((mate, twin))
    return replace(evidence, answers=answers, plain=plain, pairs=tuple(pairs))


# One answer


def ttft(answer: Answer) -> float | None:
    """Return seconds from the request to the first arrival."""
    return (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9 if answer.arrivals else None


def decode_rate(answer: Answer, together_s: float = 0.0) -> float | None:
    """Return tokens per second after the first burst; None with fewer than two bursts or uncounted tokens.

    The first burst ends the prefill. While speculating it holds a whole round, whose time lies before the first
    arrival: counting its tokens as decoded would flatter speculation, the more the shorter the answer.
    """
    first = _first_burst(answer, together_s)
    later = answer.arrivals[first:]
    if not later:
        return None
    seconds = (later[-1].at_ns - answer.arrivals[0].at_ns) / 1e9
    counted = [arrival.tokens for arrival in later]
    if all(tokens is not None for tokens in counted):
        tokens = float(sum(tokens or 0 for tokens in counted))
    elif answer.output_tokens is not None:  # chunks of unknown size: each stands for its share of the tokens
        tokens = answer.output_tokens * len(later) / len(answer.arrivals)
    else:
        return None
    return tokens / seconds if seconds > 0 and tokens > 0 else None


def _first_burst(answer: Answer, together_s: float) -> int:
    """Count the arrivals of the first burst: a round up to the target's own token, or what arrives together."""
    size = 0
    for before, arrival in pairwise((None, *answer.arrivals)):
        inside = before is not None and (
            before.drafted is True or (arrival is not None and (arrival.at_ns - before.at_ns) / 1e9 < together_s)
        )
        if size and not inside:
            break
        size += 1
    return size


def answer_rate(answer: Answer) -> float | None:
    """Return output tokens per second from the request to its end."""
    seconds = (answer.ended_ns - answer.sent_ns) / 1e9
    return answer.output_tokens / seconds if answer.output_tokens and seconds > 0 else None


def prefill_rate(answer: Answer) -> float | None:
    """Return prompt tokens per second until the first arrival."""
    seconds = ttft(answer)
    return answer.prompt_tokens / seconds if answer.prompt_tokens and seconds else None


def bursts(answer: Answer, together_s: float) -> list[tuple[float, int | None]]:
    """Return (gap in seconds, tokens) of each burst but the first.

    Arrivals of one round, or closer together than *together_s*, are one burst. A round ends with the target's own
    token, the one that was not drafted.
    """
    out: list[tuple[float, int | None]] = []
    begun, last = 0, 0
    inside_round = False
    for number, arrival in enumerate(answer.arrivals):
        joins = number > 0 and (inside_round or (arrival.at_ns - last) / 1e9 < together_s)
        if joins and out:
            gap, tokens = out[-1]
            out[-1] = (gap, None if tokens is None or arrival.tokens is None else tokens + arrival.tokens)
        elif not joins:
            out.append(((arrival.at_ns - begun) / 1e9, arrival.tokens))
        if not joins:
            begun = arrival.at_ns
        last = arrival.at_ns
        inside_round = arrival.drafted is True
    return out[1:]


def acceptance(answer: Answer) -> float | None:
    """Return accepted over drafted tokens, as we counted them."""
    return answer.rounds.accepted / answer.rounds.drafted if answer.rounds and answer.rounds.drafted else None


def acceptance_length(answer: Answer) -> float | None:
    """Return tokens per verify round."""
    counted = answer.rounds
    return (counted.accepted + counted.rounds) / counted.rounds if counted and counted.rounds else None


# Many answers


def sound(answers: Iterable[Generation]) -> list[Generation]:
    """Return the answers without a fault."""
    return [one for one in answers if one.answer.fault is None]


def per_canary(answers: Iterable[Generation], read: Callable[[Answer], float | None]) -> dict[str, list[float]]:
    """Return what *read* gives, grouped by canary; answers it has no value for are left out."""
    out: dict[str, list[float]] = defaultdict(list)
    for one in answers:
        value = read(one.answer)
        if value is not None:
            out[one.canary].append(value)
    return dict(out)


def plain_gap(evidence: Evidence) -> float:
    """Return plain decoding's median gap between arrivals in seconds; 0 where it was not seen."""
    answers = evidence.plain or (evidence.answers if not evidence.pairs else ())
    gaps = [
        (after.at_ns - before.at_ns) / 1e9
        for one in sound(answers)
        if not one.answer.rounds
        for before, after in zip(one.answer.arrivals, one.answer.arrivals[1:], strict=False)
    ]
    return median(gaps) if gaps else 0.0


def comparable(pair: Pair, *, greedy: bool) -> bool:
    """Tell whether two answers did the same work; a truncated one, or one of another length, did not."""
    lengths = [one.answer.output_tokens for one in pair]
    if None in lengths:
        return True
    shorter, longer = sorted(length or 0 for length in lengths)
    return shorter >= (SAME_LENGTH if greedy else DRAWN_LENGTH) * longer


def paired_ratios(
    pairs: Iterable[Pair], read: Callable[[Answer], float | None], *, greedy: bool
) -> tuple[dict[str, list[float]], int]:
    """Return candidate over plain per canary, and how many pairs were lost to faults or lengths or have no value."""
    out: dict[str, list[float]] = defaultdict(list)
    lost = 0
    for pair in pairs:
        mine, twin = pair
        if not comparable(pair, greedy=greedy):
            lost += 1
            continue
        ours, theirs = (read(one.answer) if one.answer.fault is None else None for one in (mine, twin))
        if ours is None or theirs is None:
            lost += 1
        else:
            out[mine.canary].append(ours / theirs)
    return dict(out), lost


def lost_too_many(lost: int, evidence: Evidence) -> str | None:
    """Say why the pairs do not suffice, if they do not."""
    pairs, limit = len(evidence.pairs), evidence.lost_limit
    if pairs == 0:
        return "no answer of this workload was paired with a plain one"
    if lost / pairs > limit:
        return f"{lost} of {pairs} pairs are lost to faults or lengths or have no speed, more than {limit:.0%}"
    return None


def drift(evidence: Evidence) -> Estimate | Missing:
    """Estimate how much plain decoding's speed changed over the soak, as a share of itself, from its plain answers.

    Each canary is compared with itself alone, by the seasonal Kendall slope.
    """
    by_canary: dict[str, list[tuple[float, float]]] = defaultdict(list)
    last = max((one.segment for one in evidence.plain), default=0)  # clocks of two segments do not compare
    for one in sound(evidence.plain):
        rate = decode_rate(one.answer) or answer_rate(one.answer)
        if rate and one.segment == last:
            by_canary[one.canary].append((one.answer.sent_ns / 1e9, math.log(rate)))
    times = [at for seen in by_canary.values() for at, _ in seen]
    slope = stats.seasonal_slope(list(by_canary.values()), evidence.level)
    if isinstance(slope, Missing):
        return Missing(f"too few plain answers to the same canaries to see a drift: {slope.because}", slope.n)
    span = max(times) - min(times)
    return Estimate(slope.center * span, slope.lo * span, slope.hi * span, slope.n)


def drifted(evidence: Evidence) -> str | None:
    """Say that plain decoding drifted too far for a ratio, if it did.

    Twins asked next to each other drift together, so there the excess has to be proven. Where plain blocks lie apart
    from the soak, a drift that is likely is enough.
    """
    moved, limit = drift(evidence), evidence.drift_limit
    if isinstance(moved, Missing):
        return None
    woven = all(twin.role is not Role.BLOCK for twin in evidence.plain)
    least = limit if woven else 0.0
    if abs(moved.center) > limit and (moved.lo > least or moved.hi < -least):
        return f"plain decoding drifted by {moved.center:+.1%} during the soak, more than {limit:.0%}"
    return None


# One metric


def estimate(metric: str, evidence: Evidence) -> Estimate | Missing:
    """Return the estimate of one workload metric; Missing, and why, where the records do not give it."""
    if not evidence.answers:
        return Missing("nothing was recorded")
    if metric in RATIOS:
        return _ratio(metric, evidence)
    if metric in PASS_DELTAS:
        return _pass_delta(PASS_DELTAS[metric], evidence)
    if metric in _PER_CANARY:
        return _per_canary_quantile(metric, evidence)
    if metric in _POOLED:
        return _itl(_POOLED[metric], evidence)
    return _OTHERS[metric](evidence)


def _ratio(metric: str, evidence: Evidence) -> Estimate | Missing:
    if (moved := drifted(evidence)) is not None:
        return Missing(moved, len(evidence.pairs))
    if metric == "system_throughput_ratio":
        return _system_ratio(evidence)
    together = BURST * plain_gap(evidence)
    read = partial(decode_rate, together_s=together) if metric == "throughput_ratio" else answer_rate
    ratios, lost = paired_ratios(evidence.pairs, read, greedy=evidence.greedy)
    if (why := lost_too_many(lost, evidence)) is not None:
        return Missing(why, len(evidence.pairs))
    return stats.geometric_mean_ratio(ratios, evidence.level, evidence.seed)


def _system_ratio(evidence: Evidence) -> Estimate | Missing:
    """Compare tokens over busy time: with every stream always busy, that is wall time times the streams."""
    pairs: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}
    sums: tuple[dict[str, list[tuple[float, float]]], ...] = (defaultdict(list), defaultdict(list))
    lost = 0
    for pair in evidence.pairs:
        faulty = any(one.answer.fault is not None or not one.answer.output_tokens for one in pair)
        if faulty or not comparable(pair, greedy=evidence.greedy):
            lost += 1
            continue
        for arm, one in zip(sums, pair, strict=True):
            seconds = (one.answer.ended_ns - one.answer.sent_ns) / 1e9
            arm[one.canary].append((float(one.answer.output_tokens or 0), seconds))
    if (why := lost_too_many(lost, evidence)) is not None:
        return Missing(why, len(evidence.pairs))
    for canary, mine in sums[0].items():
        both = tuple((sum(tokens for tokens, _ in arm), sum(s for _, s in arm)) for arm in (mine, sums[1][canary]))
        pairs[canary] = (both[0], both[1])
    return stats.ratio_of_sums(pairs, evidence.level, evidence.seed)


def _per_canary_quantile(metric: str, evidence: Evidence) -> Estimate | Missing:
    read, q = _PER_CANARY[metric]
    if metric in {"round_gap_p95", "stall_p95"}:
        together = BURST * plain_gap(evidence)
        if metric == "round_gap_p95":
            clusters: dict[str, list[tuple[float, int]]] = defaultdict(list)
            for one in sound(evidence.answers):
                clusters[one.canary] += [(gap, 1) for gap, _ in bursts(one.answer, together)]
            return stats.pooled_quantile(clusters, q, evidence.level, evidence.seed)

        def read(answer: Answer) -> float | None:
            return max((gap for gap, _ in bursts(answer, together)), default=None)

    values = per_canary(sound(evidence.answers), read)
    if not values:
        return Missing("no answer shows it", 0)
    return stats.quantile([median(seen) for seen in values.values()], q, evidence.level)


def _tpot(answer: Answer) -> float | None:
    rate = decode_rate(answer)
    return 1 / rate if rate else None


def _never(_: Answer) -> float | None:
    return None


_PER_CANARY: dict[str, tuple[Callable[[Answer], float | None], float]] = {
    "decode_throughput": (decode_rate, 0.5),
    "prefill_throughput": (prefill_rate, 0.5),
    "ttft": (ttft, 0.5),
    "acceptance_rate": (acceptance, 0.5),
    "acceptance_length": (acceptance_length, 0.5),
    "tpot_p95": (_tpot, 0.95),
    "round_gap_p95": (_never, 0.95),
    "stall_p95": (_never, 0.95),
}
_POOLED = {"itl_p50": 0.50, "itl_p95": 0.95, "itl_p99": 0.99}


def _itl(q: float, evidence: Evidence) -> Estimate | Missing:
    together = BURST * plain_gap(evidence)
    clusters: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in sound(evidence.answers):
        for gap, tokens in bursts(one.answer, together):
            if tokens is None:
                return Missing("this backend does not count the tokens of a chunk")
            if tokens:
                clusters[one.canary].append((gap / tokens, tokens))
    return stats.pooled_quantile(clusters, q, evidence.level, evidence.seed)


def _ttft_delta(evidence: Evidence) -> Estimate | Missing:
    mine = per_canary((one for one, _ in evidence.pairs if one.answer.fault is None), ttft)
    plain = per_canary((one for _, one in evidence.pairs if one.answer.fault is None), ttft)
    both = {canary: (median(mine[canary]), median(plain[canary])) for canary in mine.keys() & plain.keys()}
    return stats.relative_change_of_medians(both, evidence.level, evidence.seed)


def _pass_delta(kind: str | None, evidence: Evidence) -> Estimate | Missing:
    wanted = {
        name for name, canary in evidence.canaries.items() if canary.expect and kind in {None, canary.expect.kind}
    }
    if not wanted:
        return Missing("no canary of this workload expects anything of this kind")
    # A plain answer that failed is no evidence that plain decoding is wrong; a candidate's is wrong.
    marks = [_marks(answers, evidence.canaries) for answers in (evidence.answers, sound(evidence.plain))]
    unseen = wanted - (marks[0].keys() & marks[1].keys())
    if unseen:
        return Missing(
            f"{len(unseen)} of {len(wanted)} canaries were not answered in both arms", len(wanted) - len(unseen)
        )
    both = {name: (fmean(marks[0][name]), fmean(marks[1][name])) for name in wanted}
    steady = all(len(set(seen[name])) == 1 for seen in marks for name in wanted)
    if evidence.greedy and steady and evidence.frozen:
        return fact(math.fsum(mine - plain for mine, plain in both.values()) / len(both), len(both))
    return stats.paired_pass_delta(both, evidence.level)


def _marks(answers: Sequence[Generation], canaries: Mapping[str, Canary]) -> dict[str, list[bool]]:
    out: dict[str, list[bool]] = defaultdict(list)
    for one in answers:
        marks = grade(canaries[one.canary], one.answer)
        if marks is not None:
            out[one.canary].append(marks.strict)
    return out


def _agreement(evidence: Evidence) -> Estimate | Missing:
    if not evidence.greedy:
        return Missing("tokens can be compared one by one at temperature 0 only")
    compared = agreement.compare(evidence.answers, evidence.plain, evidence.ties)
    agree, notes = compared.agree, compared.notes()
    unseen = len(evidence.canaries) - len(agree)
    if unseen:
        return Missing(f"{unseen} of {len(evidence.canaries)} canaries were not answered in both arms", len(agree))
    value = fmean(agree.values())
    if evidence.frozen:
        return fact(value, len(agree), *notes)
    lo, hi = stats.proportion_bounds(sum(agree.values()), len(agree), evidence.level)
    return Estimate(value, lo, hi, len(agree), notes)


def _warm_agreement(evidence: Evidence) -> Estimate | Missing:
    if isinstance(evidence.warm, str):
        return Missing(evidence.warm)
    return agreement.warm_agreement(evidence.warm, evidence.canaries.keys())


def _first_tokens(evidence: Evidence) -> Estimate | Missing:
    if isinstance(evidence.draws, str):
        return Missing(evidence.draws)
    return draws.distribution(evidence.draws, len(evidence.canaries), evidence.seed)


def _error_rate(evidence: Evidence) -> Estimate | Missing:
    faults = sum(one.answer.fault is not None for one in evidence.answers)
    return fact(faults / len(evidence.answers), len(evidence.answers))


def _engaged(evidence: Evidence) -> Estimate | Missing:
    """Count answers in which a draft proposed; an answer of one token leaves nothing to draft."""
    long_enough = [one for one in sound(evidence.answers) if (one.answer.output_tokens or 0) > 1]
    seen = [
        one.answer.rounds.drafted > 0 if one.answer.rounds else (one.answer.claims.drafted or 0) > 0
        for one in long_enough
        if one.answer.rounds is not None or one.answer.claims.drafted is not None
    ]
    if not seen:
        return Missing("nothing shows whether the draft was used", 0)
    return fact(sum(seen) / len(long_enough), len(long_enough))


def _truncation(evidence: Evidence) -> Estimate | Missing:
    plain: dict[str, list[Answer]] = defaultdict(list)
    for one in sound(evidence.plain):
        plain[one.canary].append(one.answer)
    cut: dict[str, bool] = {}
    for one in sound(evidence.answers):
        for twin in plain[one.canary]:
            cut[one.canary] = cut.get(one.canary, False) or _cut_short(one.answer, twin, greedy=evidence.greedy)
    if not cut:
        return Missing("no canary was answered in both arms", 0)
    return fact(fmean(cut.values()), len(cut))


def _cut_short(mine: Answer, twin: Answer, *, greedy: bool) -> bool:
    complete = twin.finish in {"stop", "tool_calls"}
    if complete and mine.finish not in {"stop", "tool_calls"}:
        return True
    lengths = (mine.output_tokens, twin.output_tokens)
    return greedy and None not in lengths and (lengths[0] or 0) < CUT_SHORT * (lengths[1] or 0)


def acceptance_windows(evidence: Evidence) -> dict[tuple[int, int], float]:
    """Return accepted over drafted tokens by (segment, number) of each window of the soak that has answers.

    Answers that drafted nothing count as accepting nothing; a window without answers says nothing, and no window does
    where no answer drafted anything.
    """
    drafted: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    begun: dict[int, int] = {}
    for one in sorted(sound(evidence.answers), key=lambda one: (one.segment, one.answer.sent_ns)):
        start = begun.setdefault(one.segment, one.answer.sent_ns)
        number = int((one.answer.ended_ns - start) / 1e9 // evidence.window_s)
        if one.answer.rounds is not None:
            drafted[one.segment, number][0] += one.answer.rounds.accepted
            drafted[one.segment, number][1] += one.answer.rounds.drafted
    if not any(tried for _, tried in drafted.values()):
        return {}
    return {at: accepted / tried if tried else 0.0 for at, (accepted, tried) in drafted.items()}


def _windows(evidence: Evidence) -> Estimate | Missing:
    """Fold acceptance over windows of the soak: the smallest, over three in a row, of the largest of the three."""
    rates = acceptance_windows(evidence)
    if not rates:
        return Missing("no answer drafted anything", 0)
    threes = [
        max(rates[segment, number + step] for step in range(3))
        for segment, number in rates
        if all((segment, number + step) in rates for step in range(3))
    ]
    if not threes:
        return Missing("the soak has no three consecutive windows with drafted tokens", len(rates))
    return fact(min(threes), len(rates))


_OTHERS: dict[str, Callable[[Evidence], Estimate | Missing]] = {
    "ttft_delta": _ttft_delta,
    "token_agreement": _agreement,
    "warm_cache_agreement": _warm_agreement,
    "first_tokens_p_value": _first_tokens,
    "error_rate": _error_rate,
    "speculation_engaged": _engaged,
    "truncation_rate": _truncation,
    "acceptance_window_min": _windows,
}
