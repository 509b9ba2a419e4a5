"""The lines of a terminal that are drawn over and over."""

import io

import pytest

from gatekeeper.report.terminal.live import CLEAR_BELOW, HIDE, SHOW, LiveView

VIEW = ("=" * 79, "speed")


def test_a_terminal_made_narrower_is_wiped_to_its_last_wrapped_row() -> None:
    """
    A line of 79 cells takes two rows of 40 columns: from there the region goes up three rows, not two.
    """
    file, width = io.StringIO(), [80]
    live = LiveView(file, lambda: VIEW, lambda: width[0])
    with live:
        width[0] = 40
        file.truncate(0)
        live.print_above(["kept"])
        said = file.getvalue().lstrip("\0")

    assert said.startswith("\r\x1b[3A\x1b[2Kkept\n")


def test_the_region_is_drawn_in_one_piece_and_wiped_at_the_end() -> None:
    """
    The cursor is hidden first and shown last; in between every write holds a whole view, so that nothing flickers.
    """
    file = io.StringIO()

    with LiveView(file, lambda: VIEW, lambda: 80):
        begun = file.getvalue()

    assert begun.startswith(f"\r{HIDE}")
    assert begun.endswith(f"speed\n{CLEAR_BELOW}")
    assert file.getvalue().endswith(f"\r\x1b[2A{CLEAR_BELOW}{SHOW}")


class Gone(io.StringIO):
    """A terminal that went away."""

    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_went_away_ends_no_run() -> None:
    """
    Nothing more is drawn, and what the run has to say is said to nobody.
    """
    with LiveView(Gone(), lambda: VIEW, lambda: 80) as live:
        live.print_above(["kept"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_ends_the_run_the_cursor_is_shown(error: type[BaseException]) -> None:
    """
    An interrupt and a bug of ours leave the same clean terminal.
    """
    file = io.StringIO()

    with pytest.raises(error), LiveView(file, lambda: VIEW, lambda: 80):
        raise error

    assert file.getvalue().endswith(SHOW)
