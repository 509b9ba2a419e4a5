"""The examples in the README, to be run unchanged."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def example(language: str, about: str) -> str:
    """Return the one code block of *language* that mentions *about*."""
    found = [
        body for name, body in re.findall(r"(?ms)^```(\w+)\n(.*?)^```", README) if name == language and about in body
    ]
    assert 1 == len(found), f"{len(found)} {language} examples about {about}"
    return str(found[0])
