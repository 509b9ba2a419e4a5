"""The verdict in one line."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.verdict import Verdict, WorkloadVerdict
from gatekeeper.report import one_line
from tests.builders.scene import DRAFTED, RATIO, VERDICT
from tests.builders.scenes import like_golden

FAST = WorkloadVerdict("easy", "promoted", DRAFTED, (), True, "it is faster", {"throughput_ratio": RATIO})
PLAIN = WorkloadVerdict("hard", "graded_back", {"draft": None}, (), False, "too slow")


def test_a_run_is_as_it_was() -> None:
    """
    A run that failed in every way: compared with a stored file.
    """
    like_golden("line.txt", one_line.render(VERDICT))


def test_a_promotion_says_how_fast() -> None:
    """
    Outcome and exit code, then each route; a demo is called one.
    """
    verdict = Verdict("made", "demo", "abc", (FAST, PLAIN))

    assert (
        "made: promoted (exit code 0, demo): easy 1.31 [1.22, 1.38] times plain decoding; hard decodes plainly\n"
    ) == one_line.render(verdict)


def test_what_is_missing_comes_first() -> None:
    """
    A run that is not whole says so before any figure, and a required route that was graded back says why.
    """
    line = one_line.render(Verdict("made", "demo", "abc", (replace(PLAIN, required=True),), incomplete="cut off"))

    assert "made: graded back (exit code 1, demo): not proven: cut off; hard graded back: too slow\n" == line


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_stays_on_one_line(name: str, because: str) -> None:
    """
    What a subject or a file said adds no line, no control character and no page of text.
    """
    verdict = Verdict("made", "demo", "abc", (replace(FAST, name=name, outcome="failed", because=because),))

    line = one_line.render(verdict)

    assert (1, "\n") == (len(line.splitlines()), line[-1])
    assert line[:-1].isprintable()
    assert len(line) <= len(name) + 240
