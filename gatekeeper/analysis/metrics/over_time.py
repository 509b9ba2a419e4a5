"""Change over a soak: of the ratio, of plain decoding's speed, and acceptance window by window."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import fmean, median

from gatekeeper.analysis.metrics.answer_table import AnswerTable
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.pair_speeds import pair_speed
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, in_order_of_time, successful
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import acceptance_rate
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.analysis.stats.series_change import (
    ERROR,
    SUSPICION,
    Change,
    Fits,
    end_below_mean,
    fit_changes,
    largest_change,
    straight_change,
)
from gatekeeper.core.judgement import Estimate, Finding, FindingKind, Missing, StillChanging, fact
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.records import Generation
from gatekeeper.core.units import percent, show_number

_Row = tuple[str, float, float, float]
"""A pair's canary, the log of its ratio, of its tokens a round and of plain decoding's speed."""
ENOUGH_OF_SOAK = 0.95
"""Share of the soak's duration that a settled stretch has at least: the first pair is sent after it began."""
COLLAPSED, LEAST_FALLEN = 0.35, 4
"""So many answers in a row, the last ones, with at most this share of their prompts' acceptance are a collapse: by
chance alone a short sampled answer is so low in at most one of ten, so that four are in one soak of ten thousand."""
SWING, SWING_ANSWERS = 0.25, 9
"""A swing of plain decoding by this share is named. The median of nine answers has a deviation of 4 % where one has
10 %, so that noise alone reaches it in few soaks; it voids nothing."""
MARGIN = 0.5
"""Standard errors of the last tenth by which the end of a soak may lie lower than it reads."""


def plain_drift(paired: PairedAnswers) -> Change | None:
    """Return by how much the log of plain decoding's speed changed over the soak; None with too few answers.

    A canary is compared with itself, along a straight line.
    """
    return paired.once("drift of plain decoding", lambda: _plain_drift(paired.plain, paired.table), paired.plain)


def _plain_drift(plain: Sequence[Generation], table: AnswerTable) -> Change | None:
    last = max((generation.segment for generation in plain), default=0)  # clocks of two segments do not compare
    timed = sorted(successful(plain), key=lambda generation: generation.answer.sent_ns)
    speed = table.read("speed")
    rates = [
        (generation.canary, math.log(rate))
        for generation in timed
        if generation.segment == last and (rate := speed(generation.answer))
    ]
    return straight_change(fit_changes([name for name, _ in rates], [log for _, log in rates]))


def _logs(paired: PairedAnswers) -> Mapping[int, float | None]:
    """Return the log ratio of each pair by its identity, read once for all that need it; None where it has none."""
    speed = paired.table.read("speed")

    def read(pair: Pair) -> float | None:
        compared = pair_speed(pair, speed, paired.least_length)
        return compared.log_ratio if compared is not None and math.isfinite(compared.log_ratio) else None

    pairs = (*paired.pairs, *paired.before)
    return paired.once("log ratios", lambda: {id(pair): read(pair) for pair in pairs}, paired.pairs, paired.before)


def keep_settled_pairs(paired: PairedAnswers) -> PairedAnswers | StillChanging:
    """Return the evidence with the pairs of the longest stretch up to the end in which the ratio does not change.

    That is the whole soak, else its last half, its last quarter and so on, as long as the stretch has the duration that
    the SLO demands of a soak: what a later stretch shows is what is deployed.
    """
    if paired.settled_s is None or math.isinf(paired.drift_limit):
        return paired
    found = paired.once("settled", lambda: _find_settled_pairs(paired), paired.pairs, paired.before)
    return found if isinstance(found, StillChanging) else paired if found is None else replace(paired, pairs=found)


def _find_settled_pairs(paired: PairedAnswers) -> tuple[Pair, ...] | StillChanging | None:
    """Return the pairs of the settled stretch; None for all of them."""
    timed = _running_times(paired.pairs)
    whole = timed[-1][0] if timed else 0.0
    stretch, changed = whole, None
    while True:
        pairs = [pair for at, pair in timed if at >= whole - stretch]
        change = _change(_fits_of_soak(paired) if stretch == whole else _fits(pairs, paired), paired)
        if change is None:
            return None if changed is None else tuple(pairs)
        changed = changed or change
        stretch /= 2
        if stretch < ENOUGH_OF_SOAK * (paired.settled_s or 0.0):
            size = percent(abs(math.expm1(changed.size)), ".1f")
            word = "fell" if changed.size < 0 else "rose"
            because = f"the speed over plain decoding {word} by {size} during the soak and did not settle"
            return StillChanging(f"{because}, {percent(paired.drift_limit, '.3g')} allowed", len(pairs))


def _running_times(pairs: Iterable[Pair]) -> list[tuple[float, Pair]]:
    """Return the pairs in their order, each with its second of the soak."""
    ordered = in_order_of_time(pairs)
    return list(zip(running_seconds([generation for generation, _ in ordered]), ordered, strict=True))


def running_seconds(answers: Iterable[Generation]) -> list[float]:
    """Return when each of the *answers*, in their order, was sent since the first, as if segments followed at once."""
    seconds: list[float] = []
    offset, segment, begun_ns, ended = 0.0, None, 0, 0.0
    for generation in answers:
        if generation.segment != segment:
            offset, segment, begun_ns = ended, generation.segment, generation.answer.sent_ns
        seconds.append(offset + (generation.answer.sent_ns - begun_ns) / 1e9)
        ended = offset + (generation.answer.ended_ns - begun_ns) / 1e9
    return seconds


def _change(fits: Sequence[Fits | None], paired: PairedAnswers) -> Change | None:
    """Return the change of the pairs' log ratio that chance does not explain, where it exceeds the limit.

    Where the arms ran apart, each plain block has noise of its own, so that the excess itself must be proven.
    """
    changes = (largest_change(each, error=ERROR / len(fits)) for each in fits)
    for change in (change for change in changes if change is not None):
        proven = abs(change.size) if paired.interleaved else abs(change.size) - 2 * change.error
        if math.expm1(proven) > paired.drift_limit:
            return change
    return None


def _fits_of_soak(paired: PairedAnswers) -> list[Fits | None]:
    """Return the fits of all pairs in their order, for which they are computed once."""
    name, pairs = "fits of the soak", paired.pairs
    return paired.once(name, lambda: _fits([pair for _, pair in _running_times(pairs)], paired), pairs, paired.before)


def _fits(pairs: Iterable[Pair], paired: PairedAnswers) -> list[Fits | None]:
    """Return the fits of changes to the log ratios of the pairs, and again less what chance is known to add to them.

    How many drafted tokens happen to be accepted is most of what differs between the answers of a soak. Without it a
    process that becomes slower shows after a few answers; with it a draft that is accepted less often does. Where
    plain decoding shows no sign of a change, its noise is left out as well.
    """
    soak, before = (_with_tokens_a_round(part, paired) for part in (pairs, paired.before))

    def fit_value(value: Callable[[_Row], float]) -> Fits | None:
        return fit_changes([row[0] for row in soak], [*map(value, soak)], [(row[0], value(row)) for row in before])

    fits = [fit_value(lambda row: row[1])]
    rows = [row for part in (soak, before) for row in _subtract_means(part)]
    squares = math.fsum(tokens * tokens for tokens, _ in rows)
    if math.isfinite(squares) and squares > 0:
        slope = math.fsum(tokens * log for tokens, log in rows) / squares
        plain = fit_value(lambda row: row[3])
        steady = plain is not None and not plain.beyond_chance(SUSPICION).any()
        fits.append(fit_value(lambda row: row[1] - slope * row[2] + (row[3] if steady else 0.0)))
    return fits


def _subtract_means(part: Sequence[_Row]) -> list[tuple[float, float]]:
    if not part:
        return []
    _, logs, tokens, _ = zip(*part, strict=True)
    mean_log, mean_tokens = fmean(logs), fmean(tokens)
    return [(each - mean_tokens, log - mean_log) for log, each in zip(logs, tokens, strict=True)]


def _with_tokens_a_round(pairs: Iterable[Pair], paired: PairedAnswers) -> list[_Row]:
    """Return what is known of each pair; NaN for its tokens where its rounds are not known."""
    logs, speed, rows = _logs(paired), paired.table.read("speed"), []
    for pair in pairs:
        if (log := logs[id(pair)]) is None:
            continue
        answer = pair[0].answer
        rounds, tokens = answer.rounds.rounds if answer.rounds is not None else 0, answer.output_tokens or 0
        a_round = math.log(tokens / rounds) if min(tokens, rounds) > 0 else math.nan
        rows.append((pair[0].canary, log, a_round, math.log(speed(pair[1].answer) or 1.0)))
    return rows


def likely_end(paired: PairedAnswers) -> float:
    """Return what share of its mean the ratio may have had at the end of the soak: 1 without any sign of a fall."""
    # Answers without a soak's duration, or without a limit, have no end to look at; and where the arms were not sent in
    # alternation, a change of the host would count as a change of the ratio.
    if paired.settled_s is None or math.isinf(paired.drift_limit) or not paired.interleaved:
        return 1.0
    return paired.once("likely end", lambda: _likely_end(paired), paired.pairs, paired.before)


def _likely_end(paired: PairedAnswers) -> float:
    # Of the fits (the ratio's own, and the one freed from the canaries' noise) the one that falls most counts: a fall
    # that is missed promotes wrongly, and one that is seen for nothing only leaves the workload open.
    end = math.exp(-max(end_below_mean(each, margin=MARGIN) for each in _fits_of_soak(paired)))
    # Within the limit the mean stands for all of the soak.
    return end if 1 - end > paired.drift_limit else 1.0


def acceptance_windows(paired: PairedAnswers) -> dict[tuple[int, int], float | None]:
    """Return accepted over drafted tokens by (segment, number) of each window that has answers.

    Answers without drafted tokens count as accepting none; if no answer of the soak has any, every window is None. A
    window without answers is left out.
    """
    window_ns = round(paired.window_s * 1e9)
    drafted: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    begun: dict[int, int] = {}
    for one in sorted(successful(paired.answers), key=attrgetter("moment")):
        start = begun.setdefault(one.segment, one.answer.sent_ns)
        number = (one.answer.ended_ns - start) // window_ns
        if one.answer.rounds is not None:
            drafted[one.segment, number][0] += one.answer.rounds.accepted
            drafted[one.segment, number][1] += one.answer.rounds.drafted
    if not any(tried for _, tried in drafted.values()):
        return dict.fromkeys(drafted)
    return {at: accepted / tried if tried else 0.0 for at, (accepted, tried) in drafted.items()}


def acceptance_window_min(paired: PairedAnswers) -> Estimate | Missing:
    """Return the smallest, over three consecutive windows of the soak, of the largest acceptance of the three."""
    seen = acceptance_windows(paired)
    rates = {at: rate for at, rate in seen.items() if rate is not None}
    if not rates:
        return Missing("no answer has drafted tokens", len(seen))
    threes = [
        max(rates[segment, number + step] for step in range(3))
        for segment, number in rates
        if all((segment, number + step) in rates for step in range(3))
    ]
    if not threes:
        return Missing("the soak has no three consecutive windows with drafted tokens", len(rates))
    return fact(min(threes), len(rates))


def acceptance_collapse(paired: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding if acceptance fell to a third at some answer, and stayed there up to the last one.

    Each answer is held against the best one before it to the same canary, the sweep's included. An average over such a
    soak is neither what the draft was nor what it is: ratios are void.
    """
    earlier, _ = counted_or_claimed(tuple(drafting for drafting, _ in paired.before))
    answers, _ = counted_or_claimed(tuple(successful(paired.answers)))
    best: dict[str, float] = {}
    fallen: list[tuple[float, float]] = []
    known = 0
    for generation in sorted(earlier, key=attrgetter("moment")) + sorted(answers, key=attrgetter("moment")):
        rate = acceptance_rate(generation.answer)
        if rate is None:
            continue
        usual = best.get(generation.canary)
        best[generation.canary] = max(rate, usual or 0.0)
        if not usual:
            continue
        known += 1
        fallen = [*fallen, (usual, rate)] if rate <= COLLAPSED * usual else []
    if len(fallen) < LEAST_FALLEN:
        return ()
    before, since = (fmean(rates) for rates in zip(*fallen, strict=True))
    detail = (
        f"acceptance is {show_number(since)} in the last {len(fallen)} of {known} answers, and was "
        f"{show_number(before)} before for the same prompts"
    )
    advice = "find out what the drafter loses over time, in the server's log; a restart may restore it"
    return (Finding(FindingKind.ACCEPTANCE_COLLAPSED, about, detail, advice, frozenset(SPEED_RATIOS)),)


def plain_swings(paired: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding if plain decoding was at times a quarter faster than at others, each canary against itself.

    Pairs swing together, so that a ratio may hold; a speed of its own, such as decode_throughput, is of no one time.
    """
    speed = paired.table.read("speed")
    rates = [
        (generation.canary, generation.answer.sent_ns, rate)
        for generation in sorted(successful(paired.plain), key=attrgetter("moment"))
        if (rate := speed(generation.answer))
    ]
    usual = {name: median(values) for name, values in by_canary((name, rate) for name, _, rate in rates).items()}
    repeated = {name for name, times in Counter(name for name, _, _ in rates).items() if times > 1}
    levels = [rate / usual[name] for name, _, rate in rates if name in repeated]
    if len(levels) < 3 * SWING_ANSWERS:
        return ()
    medians = [median(levels[at : at + SWING_ANSWERS]) for at in range(len(levels) - SWING_ANSWERS + 1)]
    swing = max(medians) / min(medians) - 1
    if swing < SWING:
        return ()
    detail = (
        f"plain decoding was {percent(swing, '.0f')} faster at times than at others in the same soak, by the median of "
        f"{SWING_ANSWERS} answers in a row"
    )
    return (Finding(FindingKind.PLAIN_SWINGS, about, detail, FindingKind.PLAIN_SWINGS.remedy),)
