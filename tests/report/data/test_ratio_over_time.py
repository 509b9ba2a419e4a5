"""The speed over plain decoding in the course of a soak."""

from gatekeeper.core.clock import wall_seconds
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.report.data.ratio_over_time import LEAST_PAIRS, ratio_stretches
from tests.builders.slo import evidence, generation, steady

CANARIES = 5
BEGUN = wall_seconds("2026-01-01T00:00:00.000000Z") or 0.0


def stretches(pairs: int, late_s: float) -> list[tuple[float, float, float]]:
    """Return the stretches of a soak whose draft takes *late_s* a token in its second half, 10 ms before."""

    def answer(number: int, seconds: float) -> Answer:
        return steady(seconds * (1 + number % CANARIES / 100), 20, sent_s=60 * number)

    def record(number: int, arm: str, role: Role, seconds: float) -> Generation:
        at = f"2026-01-01T{number // 60:02}:{number % 60:02}:30.000000Z"
        name = f"c-{number % CANARIES:02}"
        return generation(answer(number, seconds), name, arm=arm, role=role, pair=f"p{number}", at=at)

    drafted = [
        record(number, "candidate", Role.MEASURED, 0.01 if number < pairs / 2 else late_s) for number in range(pairs)
    ]
    plain = [record(number, "plain", Role.BASELINE, 0.02) for number in range(pairs)]
    parts = ratio_stretches({"easy": evidence(drafted, plain)}, lambda at: at - BEGUN)
    return [(part.lo, part.center, part.hi) for part in parts]


def test_a_gain_that_is_lost_midway_is_seen_where_it_is_lost() -> None:
    """Stretches of the first half read 2x, those of the second 1x, each within an interval of its own."""
    parts = stretches(4 * LEAST_PAIRS, late_s=0.02)

    assert [2, 2, 1, 1] == [round(center, 2) for _, center, _ in parts]
    assert all(lo <= center <= hi for lo, center, hi in parts)


def test_a_soak_with_too_few_pairs_has_no_curve() -> None:
    """One stretch says no more than the ratio of the whole soak, which stands elsewhere."""
    assert [] == stretches(2 * LEAST_PAIRS - 1, late_s=0.01)
    assert 2 == len(stretches(2 * LEAST_PAIRS, late_s=0.01))
