"""Comparability of two arms: an unstable plain arm, answers of different lengths, and the metrics these void."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean, median, median_low, variance

from gatekeeper.analysis.metrics.answer_table import Read, burst_gap, tabulate
from gatekeeper.analysis.metrics.lost_pairs import commonest_fault, similar_lengths
from gatekeeper.analysis.metrics.pair_speeds import pair_speed
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.timing import FASTEST, answer_rate
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.stats.total_time import ratio
from gatekeeper.core.judgement import Finding, FindingKind, Missing
from gatekeeper.core.metrics import ALL
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.units import percent, show_interval, show_number

OUTLIER_FACTOR = 2.0
"""A plain answer this many times faster or slower than its canary's median is an outlier; scheduling changes less."""
OUTLIER_SHARE = 0.25
"""With a larger share of outliers the arm is too variable to compare with; fewer only widen the intervals."""
MODE_RATIO = 1.2
"""Two modes closer together than this factor only widen the intervals."""
MIN_ASHMAN_D = 4.0
"""Ashman's D of the two halves (Ashman, Bird & Zepf 1994): a normal cut in two has 2.7, an even spread 3.5."""
OUTLIER_CANARIES = 3
"""At least so many canaries must have an outlier: one stalled answer does not make an arm unstable."""
BIMODAL_ANSWERS, BIMODAL_REPEATS = 90, 4
"""Two modes are looked for in so many answers, so many to each canary: a normal arm is then taken for bimodal in under
1 % of simulated runs at up to 20 % noise. With 12 answers, two to a canary, it was every third at 15 %."""
LENGTH_SHIFT_ERROR = 0.01
"""The chance that answers of equal lengths are called longer or shorter."""
MIN_ANSWERS = 8
"""Fewer answers show neither the distribution of an arm nor wrong counters."""
_RATIOS = frozenset(metric.name for metric in ALL if metric.speed_ratio)


def unstable_plain_arm(plain: Iterable[Generation], about: str) -> tuple[Finding, ...]:
    """Return a finding if the speed of the plain arm is too variable to compare with."""
    if (detail := instability(plain)) is None:
        return ()
    advice = "find out what else runs on this machine, or what the server does between answers, then measure again"
    return (Finding(FindingKind.UNSTABLE_ARM, about, detail, advice, voids=_RATIOS),)


def total_failure(answers: Sequence[Generation], about: str, *, least: float = 1.0) -> tuple[Finding, ...]:
    """Return a finding with the server's own words if all answers with the draft failed, or a share of *least*.

    No ratio is known of what is left.
    """
    failed = len(answers) - len(successful(answers))
    if not failed or failed < least * len(answers):
        return ()
    which = "all" if failed == len(answers) else f"{failed} of {len(answers)}"
    detail = f"{which} answers with the draft failed, {commonest_fault(answers)}"
    advice = "send one such request by hand, and read the server's log"
    return (Finding(FindingKind.DRAFTED_FAILED, about, detail, advice, voids=_RATIOS),)


def length_mismatches(paired: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding if answers of a pair differ in length; ratios leave such pairs out."""
    different = [pair for pair in paired.pairs if not similar_lengths(pair, paired.least_length)]
    if not different:
        return ()
    drafting, plain = (generation.answer.output_tokens for generation in different[0])
    detail = (
        f"{len(different)} of {len(paired.pairs)} pairs differ in length, e.g. {different[0][0].canary}: {drafting} "
        f"tokens and {plain} with plain decoding; their speeds are not compared"
    )
    return (Finding(FindingKind.LENGTH_MISMATCH, about, detail, "check for truncated answers or early stops"),)


def length_shift(paired: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding if sampled answers are proven longer or shorter than plain decoding's.

    Student's interval over canaries of the mean log length in one arm less that in the other. A ratio is for the same
    tokens in both arms and does not show it, so the finding says what an answer takes.
    """
    if paired.greedy:
        return ()
    candidate, plain = (
        per_canary(successful(answers), _log_length) for answers in (paired.words.answers, paired.words.plain)
    )
    apart = {name: [fmean(candidate[name]) - fmean(plain[name])] for name in candidate.keys() & plain.keys()}
    shift = intervals.mean_of_logs(apart, 1 - LENGTH_SHIFT_ERROR / 2)
    if isinstance(shift, Missing) or shift.lo <= 1 <= shift.hi:
        return ()
    sizes = (abs(shift.center - 1), *sorted(abs(ratio - 1) for ratio in (shift.lo, shift.hi)))
    size, word = show_interval(*(percent(share, ".0f") for share in sizes)), "longer" if shift.center > 1 else "shorter"
    detail = f"answers are {size} {word} than plain decoding's, on {shift.n} canaries"
    advice = "both arms should sample alike: compare temperature, stop tokens and chat template"
    return (Finding(FindingKind.LENGTH_SHIFT, about, detail + _per_answer(paired), advice),)


def _log_length(answer: Answer) -> float | None:
    return math.log(answer.output_tokens) if answer.output_tokens else None


def _per_answer(paired: PairedAnswers) -> str:
    """Write how many times as fast an answer is given, and the same tokens; nothing where no pair shows it."""
    speeds = [(pair, pair_speed(pair, answer_rate, paired.least_length)) for pair in paired.pairs]
    tokens = [speed.times for _, speed in speeds if speed is not None]
    if not tokens:
        return ""
    answers = [
        (candidate.canary, plain.answer.seconds, candidate.answer.seconds)
        for (candidate, plain), speed in speeds
        if speed is not None
    ]
    return f"; an answer is given {ratio(answers):.2f}x as fast, and the same tokens {ratio(tokens):.2f}x"


def voided_metrics(findings: Iterable[Finding]) -> Mapping[str, str]:
    """Return the metrics that a finding makes unproven, each with the reason.

    How unsteady plain decoding was stands in the finding alone: it voids many metrics of each workload.
    """
    return {
        metric: finding.means if finding.kind == FindingKind.UNSTABLE_ARM else f"{finding.kind}: {finding.detail}"
        for finding in findings
        for metric in finding.voids
    }


def instability(plain: Iterable[Generation]) -> str | None:
    """Return why plain decoding is too variable or bimodal to compare with; None where it is not."""
    measured = [generation for generation in successful(plain) if generation.role is not Role.WARMUP]
    table = tabulate((measured, burst_gap(measured)))
    if (apart := _apart_from_others(measured, table.read("decode_rate"))) is not None:
        return apart
    rates = per_canary(measured, table.read("speed")).values()
    groups = [[math.log(rate) for rate in repeats] for repeats in rates if len(repeats) > 1]
    n = sum(map(len, groups))
    if n < MIN_ANSWERS:
        return None
    widest = max(groups, key=lambda logs: max(logs) - min(logs))
    slow, fast = math.exp(min(widest)), math.exp(max(widest))
    example = f"one canary ran at {show_number(slow)} tok/s and {_ran(fast)}"
    outliers = [sum(abs(value - median(logs)) > math.log(OUTLIER_FACTOR) for value in logs) for logs in groups]
    if (far := sum(outliers)) > OUTLIER_SHARE * n and sum(map(bool, outliers)) >= OUTLIER_CANARIES:
        off = f"{far} of {n} plain answers differ from their canary's median speed by a factor above {OUTLIER_FACTOR:g}"
        return f"{off}; {example}"
    often = [value - max(logs) for logs in groups if len(logs) >= BIMODAL_REPEATS for value in logs]
    if len(often) >= BIMODAL_ANSWERS and _bimodal(often):
        return f"plain answers have two distinct speeds (bimodal); {example}"
    return None


def after_slow_start(plain: Iterable[Generation]) -> list[Generation]:
    """Return the answers without the first unbroken ones that are slow: there a process or a machine warmed up.

    Slow is OUTLIER_FACTOR below the later half of the answers to prompts of about the same length. It is for the
    sweep, which only chooses; slow answers that come and go are left, and at least half of all.
    """
    ordered = sorted(successful(plain), key=lambda generation: generation.answer.sent_ns)
    decode_rate = tabulate((ordered, burst_gap(ordered))).read("decode_rate")
    later: dict[int, list[float]] = defaultdict(list)
    for generation in ordered[len(ordered) // 2 :]:
        if rate := decode_rate(generation.answer):
            later[_length_class(generation)].append(rate)
    for number, generation in enumerate(ordered[: len(ordered) // 2]):
        rate, usual = decode_rate(generation.answer), later.get(_length_class(generation))
        if not rate or not usual or rate * OUTLIER_FACTOR >= median(usual):
            return ordered[number:]
    return ordered[len(ordered) // 2 :]


def _length_class(generation: Generation) -> int:
    return (generation.answer.prompt_tokens or 0).bit_length()


def _apart_from_others(measured: Iterable[Generation], decode_rate: Read) -> str | None:
    """Return how many answers differ from those to prompts of about their length; None where few do.

    A soak may ask each canary for one plain answer: then nothing shows how its own speed varies.
    """
    alike: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for generation in measured:
        if rate := decode_rate(generation.answer):
            alike[_length_class(generation)].append((math.log(rate), generation.canary))
    far = []
    for group in alike.values():
        middle = median_low(value for value, _ in group)
        far += [(value, middle, canary) for value, canary in group if abs(value - middle) > math.log(OUTLIER_FACTOR)]
    n = sum(map(len, alike.values()))
    few = len(far) <= OUTLIER_SHARE * n or len({canary for *_, canary in far}) < OUTLIER_CANARIES
    if n < MIN_ANSWERS or few:
        return None
    value, middle, _ = max(far, key=lambda row: abs(row[0] - row[1]))
    off = f"{len(far)} of {n} plain answers differ from the median speed by a factor above {OUTLIER_FACTOR:g}"
    return f"{off}; one {_ran(math.exp(value))}, the median is {show_number(math.exp(middle))} tok/s"


def _ran(speed: float) -> str:
    """Write the speed of an answer; one that no machine has shows that the answer was read at once."""
    return f"ran at {show_number(speed)} tok/s" if speed < FASTEST else "arrived at once"


def _bimodal(values: Sequence[float]) -> bool:
    """Return whether the best split in two (Otsu 1979) gives two clean modes, each of OUTLIER_SHARE of the values."""
    ordered = sorted(values)
    n = len(ordered)
    least = math.ceil(OUTLIER_SHARE * n)

    # Exact sums of the values below each cut: adding up the slices would take time with the square of their number.
    below = list(accumulate(_exact(value) for value in ordered))

    def measure_separation(cut: int) -> float:
        low, high = below[cut - 1] / _SCALE / cut, (below[-1] - below[cut - 1]) / _SCALE / (n - cut)
        return cut * (n - cut) * (high - low) ** 2

    cut = max(range(least, n - least + 1), key=measure_separation)
    modes = (ordered[:cut], ordered[cut:])
    low, high = (math.fsum(mode) / len(mode) for mode in modes)
    spread = math.sqrt(sum(variance(mode) for mode in modes))
    return high - low > math.log(MODE_RATIO) and (high - low) * math.sqrt(2) > MIN_ASHMAN_D * spread


_SCALE = 2**1074
"""Every float is a whole multiple of 1 / _SCALE; a quotient of whole numbers is rounded once, as `math.fsum` is."""


def _exact(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_SCALE // denominator)
