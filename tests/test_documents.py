"""The documents a contributor starts from: every path they name exists, and the map leaves no package out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gatekeeper"
PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:/|\.py|\.md|\.toml))`")
"""In backquotes: a folder that ends in a slash, or a file of one of these kinds."""
MADE_BY_A_RUN = {"policy.toml"}


def named(document: str) -> list[str]:
    found = PATH.findall((ROOT / document).read_text())
    assert len(found) > 5, "the pattern finds no paths any more"
    return [path for path in found if path not in MADE_BY_A_RUN and "NAME" not in path]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_that_a_document_names_exists(document: str) -> None:
    """
    A path stands in the repository or in the package; a row about one package may leave its folder out.
    """
    lost = [path for path in named(document) if not (ROOT / path).exists() and not any(PACKAGE.glob(f"**/{path}"))]

    assert [] == lost


def test_the_map_names_every_package() -> None:
    """
    A folder of the package that the map does not know is a room nobody can find.
    """
    text = (ROOT / "ARCHITECTURE.md").read_text()

    folders = [path.parent for path in PACKAGE.rglob("__init__.py")]
    unnamed = [folder for folder in folders if folder != PACKAGE and f"{folder.name}/" not in text]

    assert {"agent"} >= {folder.name for folder in unnamed}
