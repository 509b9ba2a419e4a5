"""The options that commands share, and how each prints its answer."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from gatekeeper.terms.errors import InputError

SLO = click.argument("slo", type=click.Path(path_type=Path))
RUN_DIR = click.argument("run_dir", type=click.Path(path_type=Path))
OUT = click.option("--out", type=click.Path(path_type=Path), help="Run directory [default: runs/TIME-NAME-ID].")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")


def show(document: Any, text: str, *, as_json: bool) -> None:
    """Print the document or the text on stdout."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n" if as_json else text)


def seconds(written: str | None, option: str) -> float | None:
    """Read a duration such as 7d; None stays None."""
    from gatekeeper.terms.units import SECONDS, parse  # noqa: PLC0415

    try:
        found = None if written is None else parse(written, SECONDS)
    except ValueError as error:
        raise InputError(f"{option}: {error}", hint=f"for example {option} 7d") from error
    if found is not None and found <= 0:
        raise InputError(f"{option} {written}: nothing is that young", hint=f"for example {option} 7d")
    return found
