"""The examples in the docs, to be run unchanged."""

import re
from pathlib import Path

WATCH = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()


def example(language: str, about: str) -> str:
    """Return the one code block of *language* in `docs/watch.md` that mentions *about*."""
    found = [
        body for name, body in re.findall(r"(?ms)^```(\w+)\n(.*?)^```", WATCH) if name == language and about in body
    ]
    assert 1 == len(found), f"{len(found)} {language} examples about {about}"
    return str(found[0])
