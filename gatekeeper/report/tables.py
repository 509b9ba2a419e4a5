"""Rows of a run as CSV or as JSON lines: a value that is missing is empty or null, never 0."""

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from io import StringIO

from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.text import inert_json, printable_error
from gatekeeper.report.data.run_rows import AnswerFile, AnswerRow, SampleRow, answer_rows, column_of, sample_rows

Cell = str | int | float | bool | None
_FORMULA = re.compile("(?:^|(?<=;))(?=[=+@\uff0b\uff0d\uff1d\uff20-])")
"""Where a spreadsheet takes a text for a formula, and texts of a server are not ours: at its begin, behind a semicolon
where that separates cells, as in Germany, and at the wide forms of East Asia."""


@dataclass(frozen=True, slots=True)
class RowTable:
    """The names of the columns, and the rows, each made when it is written."""

    columns: Sequence[str]
    rows: Iterable[Mapping[str, Cell]]


def answer_table(run: str, files: Iterable[AnswerFile]) -> RowTable:
    """Return a row an answer."""
    columns = [field.name for field in fields(AnswerRow)]
    return RowTable(columns, ({name: getattr(row, name) for name in columns} for row in answer_rows(run, files)))


def sample_table(run: str, samples: HostColumns) -> RowTable:
    """Return a row a host sample, with a column a reading."""
    own = [field.name for field in fields(SampleRow) if field.name != "values"]
    readings = [column_of(name, slot.unit) for layout in samples.layouts for name, slot in layout.items()]
    rows = ({name: getattr(row, name) for name in own} | dict(row.values) for row in sample_rows(run, samples))
    return RowTable(list(dict.fromkeys([*own, *readings])), rows)


def render_csv(table: RowTable) -> str:
    """Return a line of names and one a row."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([_csv_cell(row.get(name)) for name in table.columns])
    return text.getvalue()


def _csv_cell(value: Cell) -> Cell:
    if not isinstance(value, str):
        return value
    return _FORMULA.sub("'", printable_error(value).replace("\n", " "))


def render_ndjson(table: RowTable) -> str:
    """Return an object a line."""
    documents = ({name: row.get(name) for name in table.columns} for row in table.rows)
    return "".join(inert_json(json.dumps(document, ensure_ascii=False)) + "\n" for document in documents)
