"""Rows of a run as CSV, as JSON lines or as Parquet: a value that is missing is empty or null, never 0."""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from types import UnionType
from typing import Any, BinaryIO, TextIO, get_args, get_type_hints

from gatekeeper.core.errors import InputError
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.text import inert_json, printable_error
from gatekeeper.report.data.answer_rows import AnswerFile, AnswerRow, answer_rows
from gatekeeper.report.data.sample_rows import SampleRow, column_of, sample_rows

Cell = str | int | float | bool | None
MISSING_EXTRA = "Parquet needs the package pyarrow, which is not installed here"
BATCH_ROWS = 10_000
"""Rows that a Parquet file takes at once."""
_FORMULA = re.compile("(?:^|(?<=;))(?=[=+@\uff0b\uff0d\uff1d\uff20-])")
"""Where a spreadsheet takes a text for a formula, and texts of a server are not ours: at its begin, behind a semicolon
where that separates cells, as in Germany, and at the wide forms of East Asia."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with their types, and the rows, each made when it is written."""

    columns: Mapping[str, type]
    rows: Iterable[Mapping[str, Cell]]


def answer_table(run: str, files: Iterable[AnswerFile]) -> Table:
    """Return a row an answer."""
    columns = _columns(AnswerRow)
    return Table(columns, ({name: getattr(row, name) for name in columns} for row in answer_rows(run, files)))


def sample_table(run: str, samples: HostColumns) -> Table:
    """Return a row a host sample, with a column a reading."""
    slots = [(column_of(name, slot.unit), slot) for layout in samples.layouts for name, slot in layout.items()]
    readings = {name: str for name, slot in slots if isinstance(slot.constant, str) and slot.status == "ok"}
    values: dict[str, type] = {name: readings.get(name, float) for name, _ in slots}
    own = {name: kind for name, kind in _columns(SampleRow).items() if name != "values"}
    rows = ({name: getattr(row, name) for name in own} | dict(row.values) for row in sample_rows(run, samples))
    return Table(own | values, rows)


def _columns(row: type) -> dict[str, type]:
    """Return the fields of a row, each with its type where it is known."""
    hints = get_type_hints(row)
    return {field.name: _known_type(hints[field.name]) for field in fields(row)}


def _known_type(hint: Any) -> type:
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] if isinstance(hint, UnionType) else [hint]
    kind: type = kinds[0]
    return kind


def write_csv(table: Table, out: TextIO) -> None:
    """Write a line of names and one a row."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([_csv_cell(row.get(name)) for name in table.columns])


def _csv_cell(value: Cell) -> Cell:
    if not isinstance(value, str):
        return value
    return _FORMULA.sub("'", printable_error(value).replace("\n", " "))


def write_ndjson(table: Table, out: TextIO) -> None:
    """Write an object a line."""
    for row in table.rows:
        document = {name: row.get(name) for name in table.columns}
        out.write(inert_json(json.dumps(document, ensure_ascii=False)) + "\n")


def write_parquet(table: Table, out: BinaryIO) -> None:
    """Write a Parquet file; raise InputError without the package pyarrow."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'gatekeeper-slo[parquet]', or take --format csv or ndjson"
        raise InputError(MISSING_EXTRA, hint=hint) from error
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in table.columns.items()])
    rows = iter(table.rows)
    with parquet.ParquetWriter(out, schema) as writer:
        while batch := list(islice(rows, BATCH_ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
