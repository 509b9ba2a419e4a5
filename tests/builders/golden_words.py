"""`says`: compares a text with the one stored for it, so that a reword is one file to review and no test to change."""

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable

import tomli_w

from tests.builders.project_folder import ROOT

WORDS = ROOT / "tests" / "golden" / "words"
"""A file for each kind of text."""

temporary = tempfile.gettempdir()
"""Where pytest makes a folder for each test, another in each run; tests/conftest.py sets it."""

AS_MEANT = "if that is meant, run the test with GATEKEEPER_GOLDEN=write and read the diff"


def says(kind: str, test_case: str, text: str | None, **values: object) -> None:
    """Compare *text* with the words for *test_case* in the file of its *kind*; GATEKEEPER_GOLDEN=write stores it
    instead.

    *values* are what differs from run to run or between parameters: each is stored as its name in braces. So are the
    folder of the test, the repository and the interpreter, as {tmp_path}, {repository} and {python}.
    """
    assert text is not None
    values = {"python": sys.executable, "repository": ROOT, **values}
    for name, value in sorted(values.items(), key=lambda pair: -len(str(pair[1]))):
        text = text.replace(str(value), f"{{{name}}}") if str(value) else text
    text = re.sub(rf"{re.escape(temporary)}/\w+", "{tmp_path}", text)
    path = WORDS / f"{kind}.toml"
    if os.environ.get("GATEKEEPER_GOLDEN") == "write":
        words = {**(tomllib.loads(path.read_text()) if path.exists() else {}), test_case: text}
        path.write_text(tomli_w.dumps(dict(sorted(words.items())), multiline_strings=True))
    stored = tomllib.loads(path.read_text()).get(test_case)
    assert stored == text, f"{kind}.toml, {test_case!r}: stored {stored!r}, said {text!r}; {AS_MEANT}"


def lines_with(words: str, text: str | Iterable[str]) -> str:
    """Return the lines of *text* that have *words* in them, for `says`; there must be one."""
    lines = [line for line in (text.splitlines() if isinstance(text, str) else text) if words in line]
    assert lines, f"no line has {words!r}"
    return "\n".join(dict.fromkeys(lines))
