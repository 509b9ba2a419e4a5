"""The fault matrix is complete: every row names a test that exists, and none stands twice."""

from collections import Counter

from tests.builders.faults import functions, rows


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
