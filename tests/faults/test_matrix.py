"""The fault matrix is complete: every row names a test that exists, and the page in docs/ counts these rows."""

import re
from collections import Counter

from tests.builders.faults import PAGE, functions, rows


def test_each_row_names_a_test_that_exists() -> None:
    """`where` of each row is a test function in a file of this repository."""
    missing = [row.where for row in rows() if not row.file.is_file() or row.function not in functions(row.file)]

    assert missing == []


def test_no_row_stands_twice() -> None:
    """Each fault is listed once."""
    assert [fault for fault, times in Counter(row.fault for row in rows()).items() if times > 1] == []


def test_the_matrix_covers_at_least_120_faults() -> None:
    """The matrix has at least 120 rows over all groups."""
    assert len(rows()) >= 120


def test_the_page_counts_every_row_and_every_one_is_kept() -> None:
    """docs/faults.md counts the rows of each group, and no promise was broken when the page was made."""
    page = PAGE.read_text()
    counted = {group: int(number) for group, number in re.findall(r"^\| \[(\w+)\]\S* \| (\d+) \|", page, re.MULTILINE)}

    assert Counter(row.group for row in rows()) == counted
    assert "BROKEN" not in page
