"""axe-core, which npm fetches, and what it finds in the page of a tab."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.builders.browser import Tab, found

NPM = shutil.which("npm")
PACKAGE = "axe-core@4.14.1"
"""Newer versions may have new rules: they come in with a commit, not by themselves."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
NEEDED = (
    pytest.mark.skipif(found() is None, reason="no Chromium on PATH (on Debian: apt-get install chromium)"),
    pytest.mark.skipif(NPM is None, reason="no npm on PATH, which fetches axe-core (on Debian: apt-get install npm)"),
)
"""Marks of tests that use it."""


def fetched_axe(folder: Path) -> str:
    """Return the source of axe-core; skip the test where it cannot be fetched."""
    packed = subprocess.run(
        [str(NPM), "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if packed.returncode != 0:
        pytest.skip(f"npm cannot fetch {PACKAGE}: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


def broken_rules(tab: Tab, axe: str) -> list[list[object]]:
    """Return the rules that the page breaks, each with its first elements; what is folded away is unfolded."""
    tab.run(axe)
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    violations: list[list[object]] = tab.run(
        f"""axe.run({{runOnly: {RULES}}}).then((seen) => seen.violations.map(
          (one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120))]))"""
    )
    return violations
