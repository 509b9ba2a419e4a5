"""Consistency of answers: what they say twice, in counts, texts and times, must agree.

Evidence that contradicts itself is no evidence: a contradiction voids every metric that counts tokens. Each rule has a
margin wide enough that all of them together refuse less than one sound run in a hundred.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.lost_pairs import MAX_LOST_SHARE
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.readers import PAIR_SPEEDS
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.words.harm import is_repetitive
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.core.judgement import Finding, FindingKind, Missing
from gatekeeper.core.metrics import ALL, DECODE_RATIO
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.units import show_number, show_times

STOP_TOKENS = 2
"""Two counts of one answer may differ by so many tokens: a server may count the token that ends it, or not."""
SAME_COUNT = 0.05
"""They may differ by this share as well, and so may the tokens of a character in both arms: near-ties change words."""
UNSENT, UNSENT_SHARE = 8, 0.10
"""Tokens, and their share, that no chunk or text need carry: those around a tool call, or between channels."""
FEWEST = 2
"""One answer that contradicts itself may be an accident."""
ALIKE = 8
"""Greedy texts that share so many first characters are one text, as far as both came."""
FASTER_ROUNDS = 1.1
"""A verify pass takes no less time than a plain step, but for what a server does beside it each time it sends."""
AFTER_FIRST = 1.15
"""The decode ratio may exceed the ratio of all time after the first piece by what ends an answer, such as its usage."""
ERROR = 0.001
"""The chance, a side, that chance alone contradicts: three rules with an interval, for ten workloads, stay under 6 %
if they were right at their margins, and far below for what no sound server comes near to."""
BUNDLE = 4.0
"""A first piece with this many times the text of the others is a bundle; a first word is at most twice as long."""
BUNDLE_SHARE = 0.1
"""A bundle of a smaller share of an answer moves a speed by less than the noise of a soak."""
DECODE_SPEEDS = frozenset({DECODE_RATIO, "decode_throughput"})
LEAST_ANSWERS = 8
"""Fewer answers do not show what a server does with its first piece."""
COUNTS_TOKENS = frozenset(metric.name for metric in ALL if Sight.TOKEN_COUNT in metric.needs)
"""Metrics that no one can know where the tokens are miscounted."""
_ADVICE = "do not rely on this server's counts: compare its usage, its timings and its text, and report what differs"
UNSEEN_SHARE = 0.5
"""A first piece after this share of an answer's time comes after reasoning: a prompt is read faster than that."""
_REASONING = "reasoning that is counted and not shown is the likely reason"
_SHOW_REASONING = (
    "let the server show its reasoning, or count it as `completion_tokens_details.reasoning_tokens`, or set "
    "thinking = false in [sampling]; where it does not reason, do not rely on its counts"
)


def contradictions(paired: PairedAnswers, about: str, *, speeds: bool = True) -> tuple[Finding, ...]:
    """Return a finding if the answers of both arms contradict themselves or each other, with each way they do.

    Without *speeds* counts alone are compared: answers of a sweep may be fast because a server replays them.
    """
    arms = (("with the draft", paired.answers), ("of plain decoding", paired.plain))
    details = [detail for arm, answers in arms for detail in _find_miscounts(successful(answers), arm)]
    compared = (_other_token_size(paired), *(_impossible_speeds(paired) if speeds else ()))
    details += [detail for detail in compared if detail is not None]
    if not details:
        return ()
    advice = _ADVICE
    if any(map(_reasons_unseen, (paired.answers, paired.plain))):
        details, advice = [*details, _REASONING], _SHOW_REASONING
    return (Finding(FindingKind.CONTRADICTION, about, "; ".join(details), advice, COUNTS_TOKENS),)


def bundled_first_pieces(paired: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding for each arm whose answers begin with several pieces sent as one, where text alone shows it.

    Decode speed is void where such a piece is more of an answer than in the other arm: its tokens can only be guessed.
    """
    arms = {"with the draft": successful(paired.answers), "of plain decoding": successful(paired.plain)}
    shares = [
        median(1 - generation.answer.columns.share_from(1) for generation in answers if generation.answer.arrivals)
        for answers in arms.values()
        if any(generation.answer.arrivals for generation in answers)
    ]
    voids = DECODE_SPEEDS if max(shares, default=0.0) - min(shares, default=0.0) > BUNDLE_SHARE else frozenset()
    findings = []
    for arm, answers in arms.items():
        times = [share for generation in answers if (share := _first_piece(generation.answer)) is not None]
        if len(times) < LEAST_ANSWERS or median(times) < BUNDLE:
            continue
        detail = (
            f"the first piece of answers {arm} holds {show_number(median(times))} times the text of the others: it is "
            "a bundle, and the first token comes late; speeds weigh each piece by its text"
        )
        advice = "find out what holds the beginning of an answer back: a parser, a proxy, or the draft's first rounds"
        findings.append(Finding(FindingKind.BUNDLED_FIRST_PIECE, about, detail, advice, voids))
    return tuple(findings)


def _first_piece(answer: Answer) -> float | None:
    """Return how many times the text of the others an answer's first piece holds; None where that is not known."""
    if not answer.columns.characters:
        return None
    first, *later = memoryview(answer.columns.characters).cast("q").tolist()
    usual = median(later) if len(later) >= 3 else 0
    return first / usual if usual > 0 else None


def _text_of(answer: Answer) -> str:
    return "".join((answer.reasoning, answer.text, *(str(call.get("function")) for call in answer.tool_calls)))


def _text_bytes(answer: Answer) -> int:
    return len(_text_of(answer).encode())


# Counts of one answer


def _find_miscounts(answers: Sequence[Generation], arm: str) -> list[str]:
    """Return each way in which more of an arm's answers contradict their own counts than may be lost to faults."""
    rules: list[Callable[[Answer], str | None]] = [_timings_differ, _chunks_differ]
    if any(_text_bytes(generation.answer) for generation in answers):  # else this backend shows no text
        rules.append(_tokens_exceed_bytes)
    details = []
    for rule in rules:
        by_answer = [(generation.canary, detail) for generation in answers if (detail := rule(generation.answer))]
        if len(by_answer) >= FEWEST and len(by_answer) > MAX_LOST_SHARE * len(answers):
            canary, detail = by_answer[0]
            details.append(f"in {len(by_answer)} of {len(answers)} answers {arm} {detail} (first {canary})")
    return details


def _timings_differ(answer: Answer) -> str | None:
    usage, timings = answer.generated_tokens, answer.claims.decode_tokens
    if usage is None or timings is None or abs(usage - timings) <= max(STOP_TOKENS, SAME_COUNT * max(usage, timings)):
        return None
    return f"the usage counts {usage} tokens and the server's own timings {timings}"


def _chunks_differ(answer: Answer) -> str | None:
    usage, chunks = answer.output_tokens, answer.columns.count_tokens()
    if usage is None or chunks is None:
        return None
    # Where a chunk tells how many tokens there are so far, those of reasoning that is not shown are among them.
    apart = min(abs(usage - chunks), abs((answer.generated_tokens or usage) - chunks))
    if apart <= max(UNSENT, UNSENT_SHARE * max(usage, chunks)):
        return None
    return f"the usage counts {usage} tokens and the pieces of the answer {chunks}"


def _tokens_exceed_bytes(answer: Answer) -> str | None:
    """Each token has a byte at least, but for those that mark channels and ends."""
    tokens, size = answer.output_tokens or 0, _text_bytes(answer)
    return f"{tokens} tokens are counted and {size} bytes of text came" if tokens > size + UNSENT else None


def _reasons_unseen(answers: Sequence[Generation]) -> bool:
    """Return whether most answers with tokens that no text carries begin late, as those after hidden reasoning do."""
    untold = [generation.answer for generation in successful(answers) if _tokens_exceed_bytes(generation.answer)]
    late = [
        (first_ns - answer.sent_ns) > UNSEEN_SHARE * (answer.ended_ns - answer.sent_ns)
        for answer in untold
        if (first_ns := answer.columns.first_ns) is not None
    ]
    return sum(late) > len(untold) / 2


# Counts of both arms


def _other_token_size(paired: PairedAnswers) -> str | None:
    """Return how the bytes of a token differ between the arms: the same target has the same tokens for a text."""
    logs, sizes = [], [0, 0, 0, 0]
    for drafting, plain in _sound_pairs(paired):
        if not _are_of_one_kind(drafting.answer, plain.answer, greedy=paired.greedy):
            continue  # other words have tokens of another size, and are found as such
        row = [_text_bytes(drafting.answer), drafting.answer.output_tokens or 0]
        row += [_text_bytes(plain.answer), plain.answer.output_tokens or 0]
        if min(row) > 0:
            expected = row[3] * row[0] / row[2]
            excess = row[1] - expected
            beyond = math.copysign(max(0.0, abs(excess) - 1), excess)  # a stop token, counted in one arm alone
            logs.append((drafting.canary, math.log((expected + beyond) / expected)))
            sizes = [total + value for total, value in zip(sizes, row, strict=True)]
    ratio = intervals.mean_of_logs(by_canary(logs), 1 - ERROR)
    if isinstance(ratio, Missing) or (ratio.lo <= 1 + SAME_COUNT and ratio.hi >= 1 / (1 + SAME_COUNT)):
        return None
    return (
        f"a token with the draft has {show_number(sizes[0] / sizes[1])} bytes of text, and one of plain decoding "
        f"{show_number(sizes[2] / sizes[3])}, on {ratio.n} canaries: one of the counts is wrong"
    )


def _are_of_one_kind(answer: Answer, plain: Answer, *, greedy: bool) -> bool:
    """Return whether two texts have tokens of one size: greedy ones that begin alike, and none that repeats itself."""
    text, plain_text = _text_of(answer), _text_of(plain)
    begin_alike = text[:ALIKE] == plain_text[:ALIKE]
    return is_repetitive(text) == is_repetitive(plain_text) and (begin_alike or not greedy)


def _sound_pairs(paired: PairedAnswers) -> Iterable[tuple[Generation, Generation]]:
    return (pair for pair in paired.pairs if all(generation.answer.fault is None for generation in pair))


# Speeds


def _impossible_speeds(paired: PairedAnswers) -> Iterable[str | None]:
    """Yield why a speed cannot be; of several streams at once, which share passes, nothing is known."""
    if any(generation.concurrency > 1 for generation in paired.answers):
        return
    for metric in PAIR_SPEEDS:
        yield _faster_than_rounds(metric, paired)
    yield _faster_than_whole_answers(paired)


def _faster_than_rounds(metric: str, paired: PairedAnswers) -> str | None:
    """Return why a ratio cannot be: an exact draft gains at most the tokens that a verify pass yields."""
    answers, _ = counted_or_claimed(tuple(successful(paired.answers)))
    counted = [rounds for generation in answers if (rounds := generation.answer.rounds) is not None]
    passes, accepted = sum(rounds.rounds for rounds in counted), sum(rounds.accepted for rounds in counted)
    if passes <= 0 or not paired.pairs:
        return None
    # At a level of its own: an SLO may be content with less confidence.
    a_round, ratio = 1 + accepted / passes, estimate(metric, replace(paired, level=1 - ERROR))
    if isinstance(ratio, Missing) or ratio.lo <= FASTER_ROUNDS * a_round:
        return None
    return (
        f"{metric} is {show_times(ratio.center)}, and a round yields {show_number(a_round)} tokens "
        f"({accepted} accepted in {passes} rounds): no exact draft is faster than that"
    )


def _faster_than_whole_answers(paired: PairedAnswers) -> str | None:
    """Return why the decode ratio cannot be: the time after the first piece, for all tokens, does not shrink as much.

    The first piece of a draft is a whole round, so that time shrinks by more than the decode ratio, not by less.
    """
    by_pieces, decoding, after_first = paired.table.read("decode_rate"), [], []
    for drafting, plain in _sound_pairs(paired):
        by_rate, by_time = (_log_ratio(drafting, plain, read) for read in (by_pieces, _rate_after_first))
        if by_rate is not None and by_time is not None:
            decoding.append((drafting.canary, by_rate))
            after_first.append((drafting.canary, by_time))
    logs = [(name, log - log_after) for (name, log), (_, log_after) in zip(decoding, after_first, strict=True)]
    apart = intervals.mean_of_logs(by_canary(logs), 1 - ERROR)
    if isinstance(apart, Missing) or apart.lo <= AFTER_FIRST:
        return None
    by_piece, by_clock = (math.exp(fmean(log for _, log in part)) for part in (decoding, after_first))
    return (
        f"decoding is {show_times(by_piece)} as fast by its pieces, and {show_times(by_clock)} by the time of whole "
        "answers after their first piece"
    )


def _log_ratio(drafting: Generation, plain: Generation, read: Callable[[Answer], float | None]) -> float | None:
    value, plain_value = read(drafting.answer), read(plain.answer)
    return math.log(value / plain_value) if value and plain_value else None


def _rate_after_first(answer: Answer) -> float | None:
    """Return the tokens of an answer in the time from its first arrival to its end."""
    first_ns = answer.columns.first_ns
    if first_ns is None or not answer.output_tokens or answer.ended_ns <= first_ns:
        return None
    return answer.output_tokens * 1e9 / (answer.ended_ns - first_ns)
