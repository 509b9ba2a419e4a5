"""Rows of a run as CSV and as JSON lines."""

import csv
import io
import json
from typing import Any

import pytest

from gatekeeper.report import tables
from gatekeeper.report.tables import RowTable

COLUMNS = ("text", "count", "speed", "flag")
ROWS: list[dict[str, Any]] = [
    {"text": "plain", "count": 3, "speed": 1.5, "flag": True},
    {"text": None, "count": 0, "speed": 0.0, "flag": False},
    {"text": 'a,"b"\nc', "count": None, "speed": None, "flag": None},
    {"text": "=1+1", "count": 1},
]


def table() -> RowTable:
    return RowTable(COLUMNS, iter(ROWS))


def test_in_csv_a_missing_value_is_empty_and_a_zero_is_not() -> None:
    """An empty cell is unknown; text of others starts no formula of a spreadsheet and breaks no line."""
    text = tables.render_csv(table())

    rows = list(csv.DictReader(io.StringIO(text)))
    assert ["plain", "3", "1.5", "True"] == list(rows[0].values())
    assert ["", "0", "0.0", "False"] == list(rows[1].values())
    assert ['a,"b" c', "", "", ""] == list(rows[2].values())
    assert ["'=1+1", "1", "", ""] == list(rows[3].values())


@pytest.mark.parametrize("text", ["=1", "-1", "@f", "a;=1", "a;-1", "\uff1d1", ";=1"])
def test_no_text_is_a_formula_where_semicolons_separate_cells(text: str) -> None:
    """Neither a cell nor what another language's spreadsheet takes for one begins like a formula."""
    written = tables.render_csv(RowTable(("text",), iter([{"text": text}])))

    (cell,) = written.splitlines()[1:]
    assert [] == [part for part in cell.split(";") if part[:1] in {"=", "+", "-", "@", "\uff1d"}]


def test_in_ndjson_each_line_has_every_column() -> None:
    """A row is an object a line with null for what is missing, so that a reader needs no other line to know the
    columns.
    """
    text = tables.render_ndjson(table())

    assert [dict.fromkeys(COLUMNS) | row for row in ROWS] == [json.loads(line) for line in text.splitlines()]
