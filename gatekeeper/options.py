"""The options that commands share, and how each prints its answer."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from gatekeeper.reports.plaintext import clean

SLO = click.argument("slo", type=click.Path(path_type=Path))
RUN_DIR = click.argument("run_dir", type=click.Path(path_type=Path))
OUT = click.option("--out", type=click.Path(path_type=Path), help="Run directory [default: runs/TIME-NAME-ID].")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")


def show(document: Any, text: str, *, as_json: bool) -> None:
    """Print the document or the text on stdout."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n" if as_json else clean(text))
