"""SECURITY.md: each cell of its table names tests that exist, and says in words what they show."""

import re
from pathlib import Path

from tests.builders.faults import functions

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "SECURITY.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
TESTS = dict(re.findall(r"^(\d+)\. `(.+)`$", TEXT, re.MULTILINE))
CELL = re.compile(r"[^()]+ \((\d+(?:, \d+)*)\)")


def test_each_cell_names_its_tests() -> None:
    """Every cell ends in numbers of tests, and every test of the list is one of some cell's."""
    cells = [cell for row in ROWS[1:] for cell in row[1:]]
    matches = [CELL.fullmatch(cell) for cell in cells]
    numbers = {number for match in matches if match is not None for number in match[1].split(", ")}

    assert [] == [cell for cell, match in zip(cells, matches, strict=True) if match is None]
    assert {len(ROWS[0])} == {len(row) for row in ROWS}
    assert (6, 7) == (len(ROWS) - 1, len(ROWS[0]) - 1)
    assert set(TESTS) == numbers


def test_each_named_test_exists() -> None:
    """What the table says is shown by a function of a file in tests/."""
    missing = []
    for where in TESTS.values():
        file, _, function = where.partition("::")
        if not (ROOT / file).is_file() or function not in functions(ROOT / file):
            missing.append(where)

    assert missing == []
