"""What a draft's prompt cache does to the words, beyond what plain decoding's own does."""

import pytest

from gatekeeper.analysis.metrics.words.warm_cache_words import CONTROL, beyond_control
from gatekeeper.core.records import Answer, Generation, Role, setting
from gatekeeper.core.verdict import Estimate, Missing

NAMES = [f"c{number:02}" for number in range(20)]


def record(arm: str, canary: str, first: str, text: str, repeat: int = 0) -> Generation:
    key, answer = f"{arm}{canary}{repeat}", Answer(0, 1, text=text)
    return Generation("t", key, "w", canary, arm, setting(), Role.WARM, repeat, first, 1, answer)


def records(*, drafting: int = 0, control: int = 0) -> list[Generation]:
    """Return the pass over NAMES: the first ones differ with the draft's cache, the last ones with plain decoding's."""
    wrong = {"candidate": NAMES[:drafting], CONTROL: NAMES[len(NAMES) - control :]}
    generations = []
    for name in NAMES:
        for arm in ("plain", "candidate", CONTROL):
            repeats = 1 if arm == "plain" else 2
            text = "other" if name in wrong.get(arm, []) else "same"
            generations += [record(arm, name, name, text, repeat) for repeat in range(repeats)]
            generations.append(record(arm, f"{name}+", name, "same"))
    return generations


def cold(differing: int = 0) -> list[Generation]:
    return [record("candidate", name, name, "flip" if name in NAMES[:differing] else "same") for name in NAMES]


@pytest.mark.parametrize(
    ("drafting", "control", "flips", "expected"),
    [
        (0, 0, 0, (1.0, 1.0)),
        (1, 0, 0, (0.95, 0.95)),  # nothing else ever changes a word: one difference is a defect
        (3, 3, 0, (1.0, 1.0)),
        (2, 5, 0, (1.0, 1.0)),
        (3, 1, 0, (0.9, 1.0)),
        (12, 1, 4, (0.45, 0.45)),
        (2, 0, 4, (0.9, 1.0)),
    ],
)
def test_only_what_the_draft_adds_counts(
    drafting: int, control: int, flips: int, expected: tuple[float, float]
) -> None:
    """
    Where numerics are at work, a difference counts beyond the control's; what the sign test leaves open is open.
    """
    estimate = beyond_control(records(drafting=drafting, control=control), NAMES, cold(flips), 0.95)

    assert isinstance(estimate, Estimate)
    assert expected == pytest.approx((estimate.lo, estimate.hi))


def test_a_control_that_is_cut_off_proves_nothing() -> None:
    """
    Without all of the control's answers nothing is known of plain decoding's own cache.
    """
    without = [generation for generation in records() if (generation.arm, generation.canary) != (CONTROL, "c00")]

    assert isinstance(beyond_control(without, NAMES, cold(), 0.95), Missing)
