"""Text for people: foreign text, settings and lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.text import QUOTED, describe_setting, join_names, one_line, printable, quote, show_count
from tests.builders.golden_words import says

PAIR = {"draft": "org/heavy", "num_draft_tokens": 4}


@given(st.text(st.characters(), max_size=80))
def test_foreign_text_steers_no_terminal(text: str) -> None:
    """Control characters are replaced and line ends kept; on one line there is none."""
    printed = printable(text)

    assert (len(text), text.count("\n")) == (len(printed), printed.count("\n"))
    assert printed.replace("\n", "").isprintable()
    assert one_line(text).isprintable()
    assert QUOTED >= len(quote(text * 9))


def test_a_setting_has_one_sentence_for_reports_and_one_for_operators() -> None:
    """A report shortens the draft's name and says `draft length`; an operator reads the names that files use."""
    assert "heavy, draft length 4" == describe_setting(PAIR)
    says("core", "a setting has one sentence for reports and one for operators", describe_setting(PAIR, whole=True))
    assert "org/heavy" == describe_setting({"draft": "org/heavy"}, whole=True)
    assert {"plain decoding"} == {describe_setting({"draft": None}, whole=full) for full in (True, False)}


@pytest.mark.parametrize(("names", "written"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_names_and_numbers_read_as_in_a_sentence(names: list[str], written: str) -> None:
    """The last name follows an `and`; only one thing is singular."""
    assert written == join_names(names)
    assert ("0 runs", "1 run", "2 runs") == tuple(show_count(count, "run") for count in range(3))
