"""`says`: compares a text with the one stored for it, so that a reword is one file to review and no test to change."""

import os
import tomllib

import tomli_w

from tests.builders.project_folder import ROOT

WORDS = ROOT / "tests" / "golden" / "words"
"""A file for each kind of text."""


def says(kind: str, what: str, text: str | None) -> None:
    """Compare *text* with the words for *what* in the file of its *kind*; GATEKEEPER_GOLDEN=write stores it instead."""
    assert text is not None
    path = WORDS / f"{kind}.toml"
    if os.environ.get("GATEKEEPER_GOLDEN") == "write":
        words = {**(tomllib.loads(path.read_text()) if path.exists() else {}), what: text}
        path.write_text(tomli_w.dumps(dict(sorted(words.items())), multiline_strings=True))
    assert tomllib.loads(path.read_text())[what] == text
