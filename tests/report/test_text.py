"""The verdict as plain lines."""

from typing import Any

from gatekeeper.core.verdict import Check, Finding, Outcome, Transition, Verdict, WorkloadVerdict
from gatekeeper.report import text as plaintext
from tests.builders.scene import VERDICT
from tests.builders.scenes import like_golden

MEASURED = {"throughput_ratio": {"center": 1.31, "lo": 1.22, "hi": 1.38, "n": 24}}


def check(outcome: Outcome) -> Check:
    return Check("throughput_ratio", "at_least", 1.16, outcome, "1", "the reason", "the why", 1.31, 1.22, 1.38, 24)


def workload(outcome: str, *checks: Check, **more: Any) -> WorkloadVerdict:
    knobs = {"draft": "org/heavy", "num_draft_tokens": 4} if outcome == "promoted" else {"draft": None}
    return WorkloadVerdict("easy", outcome, knobs, checks, required=True, because="because of this", **more)


def test_a_promotion_reads_at_a_glance() -> None:
    """
    Outcome and exit code first, then each workload with its setting, figures and promises.
    """
    verdict = Verdict("made", "certification", "abc", (workload("promoted", check(Outcome.PASS), measured=MEASURED),))

    assert (
        "made: promoted (exit code 0, grade certification)\n"
        "\n"
        "  easy: promoted, heavy, draft length 4\n"
        "    ratio 1.31 [1.22, 1.38]\n"
        "    pass     throughput_ratio: the reason\n"
    ) == plaintext.render(verdict)


def test_a_promise_that_is_not_kept_says_why_it_was_made() -> None:
    """
    Fail and unproven come with the reason behind the promise, a pass without.
    """
    checks = (check(Outcome.FAIL), check(Outcome.UNPROVEN), check(Outcome.PASS))

    text = plaintext.render(Verdict("made", "demo", "abc", (workload("failed", *checks),)))

    assert 2 == text.count("why: the why")
    assert ("FAIL" in text, "unproven" in text, "because because of this" in text) == (True, True, True)


def test_the_way_down_is_told() -> None:
    """
    Transitions, host checks, findings and missing evidence all stand in the summary.
    """
    step = Transition("now", "easy", {"draft": "org/heavy", "num_draft_tokens": 4}, {"draft": None}, "too slow")
    finding = Finding("quantisation_mismatch", "heavy", "other weights", "try another")
    verdict = Verdict(
        "made",
        "demo",
        "abc",
        (workload("graded_back"),),
        (check(Outcome.FAIL),),
        (finding,),
        (step,),
        incomplete="cut off",
    )

    text = plaintext.render(verdict)

    for expected in (
        "  not proven: cut off",
        "  easy: graded back, plain decoding",
        "  host\n    FAIL",
        "  easy: heavy, draft length 4 -> plain decoding (too slow)",
        "  quantisation_mismatch, heavy: other weights\n    try another",
    ):
        assert expected in text


def test_speed_against_plain_is_the_soaks_or_else_the_sweeps_best() -> None:
    """
    A promoted route shows what was soaked; a plain one shows the best the sweep saw, and says so; else a dash.
    """
    swept = {"settings": [{"ratio": 0.8, "lo": 0.7, "hi": 0.9}, {"ratio": None}, {"ratio": 0.95, "lo": 0.9, "hi": 1.0}]}

    soaked = plaintext.against_plain(workload("promoted", measured=MEASURED))
    plain = plaintext.against_plain(workload("graded_back", choice=swept))

    assert "1.31 [1.22, 1.38]" == soaked
    assert ("0.95" in plain, "sweep" in plain) == (True, True)
    assert "-" == plaintext.against_plain(workload("graded_back"))


def test_a_whole_run_is_as_it_was() -> None:
    """
    Every line of a run that ended: compared with a stored file.
    """
    like_golden("verdict.txt", plaintext.render(VERDICT))


def test_what_a_subject_says_steers_no_terminal() -> None:
    """
    Escape sequences in a server's words are replaced; lines stay lines.
    """
    text = plaintext.render(Verdict("made", "demo", "abc", (workload("failed"),), incomplete="\x1b]0;mine\x07 gone"))

    assert "  not proven: \ufffd]0;mine\ufffd gone\n" in text
