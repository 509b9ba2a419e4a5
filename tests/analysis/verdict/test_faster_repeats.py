"""Repeated answers against first ones, within each arm."""

import math
import random

import numpy as np
import pytest

from gatekeeper.analysis.metrics.answer_table import tabulate
from gatekeeper.analysis.metrics.over_time import running_seconds
from gatekeeper.analysis.verdict.faster_repeats import History, Repeat, _gains, examine_repeats
from gatekeeper.core.records import Generation, setting
from tests.builders.slo import evidence, generation, steady

COUNT = 12


def asked(speeds: list[tuple[str, str, float]], length: int = 4) -> list[Generation]:
    """Return the answers to (arm, canary, speed) one after the other, with 2 % of noise."""
    noise = random.Random(1)
    knobs = {"candidate": setting(draft="heavy", num_draft_tokens=length), "plain": setting(draft=None)}
    return [
        generation(
            steady(0.02 / speed * (1 + noise.gauss(0, 0.02)), 20, sent_s=float(at)),
            canary,
            arm=arm,
            setting=knobs[arm],
            key=f"{at}.{length}",
        )
        for at, (arm, canary, speed) in enumerate(speeds)
    ]


def told(answers: list[Generation]) -> History:
    speed = tabulate((answers, 0.0)).read("speed")
    return History(tuple(answers), tuple(running_seconds(answers)), speed)


def kinds(answers: list[Generation]) -> list[str]:
    candidate, plain = ([answer for answer in answers if answer.arm == arm] for arm in ("candidate", "plain"))
    _, replays = examine_repeats(told(answers), evidence(candidate, plain), "easy, soak-1")
    return [finding.kind for finding in replays]


@pytest.mark.parametrize(("again", "expected"), [(1.0, []), (1.03, []), (1.3, ["replayed"])])
def test_repeats_of_one_arm_alone_are_replays(again: float, expected: list[str]) -> None:
    """Repeats that are 30 % faster in the draft's arm are found; equal ones, and 3 %, are not."""
    speeds = [("candidate", 1.0), ("plain", 1.0), ("candidate", again), ("plain", 1.0)]

    answers = asked([(arm, f"c-{at}", speed) for at in range(COUNT) for arm, speed in speeds])

    assert expected == kinds(answers)


def test_repeats_that_gain_in_both_arms_are_none() -> None:
    """A host that becomes faster after the first round is no cache of one arm."""
    rounds = [(arm, f"c-{at}", speed) for speed in (1.0, 1.5) for at in range(COUNT) for arm in ("candidate", "plain")]

    assert [] == kinds(asked(rounds))


def test_a_warm_up_is_no_replay() -> None:
    """A draft that is slow in its first answers alone: later first answers show no gain."""
    first = [("candidate", f"c-{at}", 0.5 if at < 4 else 1.0) for at in range(COUNT)]
    later = [("candidate", f"c-{at}", 1.0) for at in range(COUNT)]
    plain = [("plain", f"c-{at}", 1.0) for at in (*range(COUNT), *range(COUNT))]

    assert [] == kinds(asked([*first, *later, *plain]))


@pytest.mark.parametrize("share", [0.25, 0.9])
def test_a_process_that_warms_up_over_minutes_is_no_replay(share: float) -> None:
    """A draft that becomes a third faster over a share of the soak: its age explains that."""
    rounds = [(arm, f"c-{at}") for _ in range(4) for at in range(COUNT) for arm in ("candidate", "plain")]
    warm = share * len(rounds)

    speeds = [
        (arm, canary, 0.75 + 0.25 * min(1.0, at / warm) if arm == "candidate" else 1.0)
        for at, (arm, canary) in enumerate(rounds)
    ]

    assert [] == kinds(asked(speeds))


def test_a_cache_in_a_long_soak_is_found() -> None:
    """Repeats 15 % faster from the second of four rounds on: being repeats explains that better than age."""
    speeds = [
        (arm, f"c-{at}", 1.15 if arm == "candidate" and again else 1.0)
        for again in range(4)
        for at in range(COUNT)
        for arm in ("candidate", "plain")
    ]

    assert ["replayed"] == kinds(asked(speeds))


def test_a_cache_that_the_other_arm_fills_is_found() -> None:
    """Half of the draft's first requests are answered from plain decoding's cache."""
    speeds = []
    for at in range(COUNT):
        candidate_first = at % 2 == 0
        speeds += [("candidate", f"c-{at}", 1.0)] if candidate_first else []
        speeds += [("plain", f"c-{at}", 1.0)]
        speeds += [] if candidate_first else [("candidate", f"c-{at}", 3.0)]
    again = [
        (arm, f"c-{at}", 3.0 if arm == "candidate" else 1.0) for at in range(COUNT) for arm in ("candidate", "plain")
    ]

    assert ["replayed"] == kinds(asked([*speeds, *again]))


@pytest.mark.parametrize("compared", [2, COUNT])
def test_what_settings_differ_by_is_uncertain_in_all_canaries_alike(compared: int) -> None:
    """The error of what repeats gain is that of a least-squares fit with a column for every canary and setting: where
    few canaries were repeated at the first setting, the second one's speed, and so the gain, is hardly known.
    """
    random = np.random.default_rng(1)
    repeats = [(at, 0, False) for at in range(COUNT)]
    repeats += [(at, 0, True) for at in range(compared)] + [(at, 1, True) for at in range(COUNT)]
    values = random.normal(0, 0.1, len(repeats))

    gain = _gains(
        [
            Repeat(str(at), str(which), value, later, later, float(second))
            for second, ((at, which, later), value) in enumerate(zip(repeats, values, strict=True))
        ]
    )

    design = np.zeros((len(repeats), COUNT + 2))
    design[np.arange(len(repeats)), [at for at, _, _ in repeats]] = 1
    design[:, -2:] = [(which, later) for _, which, later in repeats]
    residuals = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    degrees = len(repeats) - COUNT - 2
    variance = np.linalg.inv(design.T @ design)[-1, -1] * float(residuals @ residuals) / degrees
    assert pytest.approx(variance) == gain.variance
    assert degrees == gain.degrees
    assert math.sqrt(gain.variance) > 0.1 / math.sqrt(compared)
