"""The time of a soak: how long its answers took, whether that suffices, and whether its clock can be trusted."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.text import show_count

SOAK_ROLES = frozenset({Role.MEASURED, Role.BASELINE})
"""Roles of answers given while the soak's clock runs; blocks and the closing pass are outside of it."""


def clock_ran_backwards(answers: Iterable[Generation]) -> str | None:
    """Describe answers that ended before they began: then no time near them can be trusted; None if there are none."""
    wrong = [generation.key for generation in answers if not _in_order(generation.answer)]
    return f"the clock ran backwards in {show_count(len(wrong), 'answer')}, first in {wrong[0]}" if wrong else None


def _in_order(answer: Answer) -> bool:
    first_ns, last_ns = answer.columns.first_ns, answer.columns.last_ns
    if first_ns is None or last_ns is None:
        return answer.sent_ns <= answer.ended_ns
    return answer.sent_ns <= first_ns and answer.columns.in_order() and last_ns <= answer.ended_ns


def too_short(answers: Sequence[Generation], required_s: float) -> str | None:
    """Describe how much of the soak is missing; None if one of its uninterrupted parts has the required seconds."""
    measured = [answer for answer in answers if answer.role in SOAK_ROLES]
    if not measured:
        return "the soak has no measured answer"
    seconds = max(_seconds_by_segment(measured))
    # The first answer is sent a moment after the clock starts and the last may end a moment before it stops.
    if seconds < 0.98 * required_s - 1:
        return f"the soak ran for {seconds:.0f} s without interruption; {required_s:.0f} s are required"
    return None


def soaked_seconds(answers: Iterable[Generation]) -> float:
    """Return the seconds of all parts of a soak."""
    return sum(_seconds_by_segment([answer for answer in answers if answer.role in SOAK_ROLES]))


def _seconds_by_segment(answers: Sequence[Generation]) -> list[float]:
    """Return the time from the first request to the last answer of each segment; clocks of two do not compare."""
    spans = spans_by(attrgetter("segment"), answers)
    return [(ended - begun) / 1e9 for begun, ended in spans.values()]


def spans_by(part: Callable[[Generation], int], answers: Iterable[Generation]) -> dict[int, tuple[int, int]]:
    """Return when the first request was sent and the last answer ended, by the *part* that answers belong to."""
    by_part: dict[int, list[Answer]] = defaultdict(list)
    for generation in answers:
        by_part[part(generation)].append(generation.answer)
    return {
        number: (min(answer.sent_ns for answer in group), max(answer.ended_ns for answer in group))
        for number, group in by_part.items()
    }
