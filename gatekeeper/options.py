"""What commands share: their options, and how each prints its answer and what is wrong."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.terms.errors import InputError

if TYPE_CHECKING:
    from gatekeeper.terms.outcome import Verdict

SLO = click.argument("slo", type=click.Path(path_type=Path))
RUN_DIR = click.argument("run_dir", type=click.Path(path_type=Path))
OUT = click.option("--out", type=click.Path(path_type=Path), help="Run directory [default: runs/TIME-NAME-ID].")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")


def show(document: Any, text: str, *, as_json: bool) -> None:
    """Print the document or the text on stdout."""
    from gatekeeper.reports.plaintext import clean  # noqa: PLC0415

    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n" if as_json else clean(text))


def annotate(verdict: "Verdict", run_dir: Path, slo: Path | None) -> None:
    """Inside GitHub Actions, say on stderr what is wrong beside the lines of the SLO file."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from gatekeeper.inputs import written_at  # noqa: PLC0415
    from gatekeeper.reports import annotations  # noqa: PLC0415
    from gatekeeper.terms.slo import parse  # noqa: PLC0415

    file, text = written_at(run_dir, slo)
    sys.stderr.write(annotations.render(verdict, parse(text, str(file)), text, str(file)))


def seconds(written: str | None, option: str, example: str = "7d") -> float | None:
    """Read a duration such as *example*; None stays None."""
    from gatekeeper.terms.units import SECONDS, parse  # noqa: PLC0415

    try:
        found = None if written is None else parse(written, SECONDS)
    except ValueError as error:
        raise InputError(f"{option}: {error}", hint=f"for example {option} {example}") from error
    if found is not None and found <= 0:
        raise InputError(f"{option} {written}: nothing is that short", hint=f"for example {option} {example}")
    return found
