"""The docs site, built and read in a browser."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.axe import NEEDED, broken_rules, fetched_axe
from tests.builders.browser import browser, found

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs" / "site"
NOT_OURS = ("404.html", "gallery")
"""A page that finds its style on a server alone, and reports, which have their own test."""
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), *NEEDED]


def test_no_page_breaks_a_rule_of_accessibility(tmp_path: Path) -> None:
    """Every page of the site, light and dark: contrast, names, and what scrolls is reached from the keyboard."""
    pytest.importorskip("zensical")
    subprocess.run([sys.executable, ROOT / "tools" / "build_site.py"], check=True, capture_output=True)
    pages = [path for path in sorted(SITE.rglob("*.html")) if not {path.name, path.parent.name} & set(NOT_OURS)]
    axe, program = fetched_axe(tmp_path), found()
    assert program is not None
    broken = {}
    for dark in (False, True):
        with browser(program) as tab:  # a theme is remembered in its profile
            for path in pages:
                tab.open(path, dark=dark)
                if rules := broken_rules(tab, axe):
                    broken[path.relative_to(SITE).as_posix(), dark] = rules

    assert len(pages) > 50
    assert {} == broken
