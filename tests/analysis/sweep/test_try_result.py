"""What a probe tells a person to do next."""

import pytest

from gatekeeper.analysis.plan.sweep_plan import Trial
from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.analysis.sweep.try_result import TryResult, next_step_text
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import setting

TRIAL = Trial("default", "candidate", setting(draft="heavy"))


@pytest.mark.parametrize(
    ("word", "ratio", "sent", "most", "expected"),
    [
        ("helps", Estimate(1.5, 1.2, 1.8, 8), 8, 24, "certify before"),
        ("hurts", Estimate(0.6, 0.5, 0.7, 8), 8, 24, "use plain decoding"),
        ("unclear", Missing("too few", 4), 4, 24, "again --seconds 70"),
        ("unclear", Estimate(1.4, 0.95, 2.1, 8), 8, 24, "again --seconds 100"),
        ("unclear", Missing("too few", 5), 5, 5, "at least 8 are needed"),
        ("unclear", Missing("3 of 24 pairs are lost", 21), 24, 24, "the records"),
        ("unclear", Estimate(1.01, 0.95, 1.05, 24), 24, 24, "the effect is small"),
        ("unclear", Estimate(1.4, 0.95, 2.1, 24), 24, 24, "vary too much"),
    ],
)
def test_the_next_step_fits_the_answer(
    word: str, ratio: Estimate | Missing, sent: int, most: int, expected: str
) -> None:
    """More time where canaries are left, more canaries where there are too few; a wide interval is not called small."""
    setting_result = SettingResult(TRIAL, ratio, "throughput_ratio", None)
    result = TryResult(word, setting_result, "", (sent,), most)  # type: ignore[arg-type]

    assert expected in next_step_text(result, 30.0, "again")
