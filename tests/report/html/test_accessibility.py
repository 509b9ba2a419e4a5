"""The page against the rules of WCAG 2.2 AA, as axe-core checks them in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.axe import NEEDED, broken_rules, fetched_axe
from tests.builders.browser import Tab, browser, found
from tests.builders.pages import PAGES

PROGRAM = found()
pytestmark = [pytest.mark.whole, *NEEDED]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fetched_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert PROGRAM is not None
    with browser(PROGRAM) as new_tab:
        yield new_tab


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(1400, False, id="desk-light"),
        pytest.param(320, True, id="phone-dark", marks=pytest.mark.nightly),
        pytest.param(1400, True, id="desk-dark", marks=pytest.mark.nightly),
        pytest.param(320, False, id="phone-light", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("kind", PAGES)
def test_no_rule_is_broken(tab: Tab, axe: str, tmp_path: Path, kind: str, width: int, *, dark: bool) -> None:
    """Colours have contrast, controls have names, regions can be reached, also in what is folded away."""
    path = tmp_path / "report.html"
    path.write_text(PAGES[kind](), encoding="utf-8")
    tab.open(path, width=width, dark=dark)

    assert [] == broken_rules(tab, axe)


@pytest.mark.parametrize("kind", PAGES)
def test_every_drawing_says_what_it_shows(tab: Tab, tmp_path: Path, kind: str) -> None:
    """A drawing has a name for a screen reader, or is hidden from it; an identity is given once."""
    path = tmp_path / "report.html"
    path.write_text(PAGES[kind](), encoding="utf-8")
    tab.open(path)

    has_name = "one.closest('[aria-hidden]') || one.getAttribute('aria-label')"
    nameless = tab.run(
        f"[...document.querySelectorAll('svg')].filter((one) => !({has_name})).map((one) => one.outerHTML)"
    )
    identities = tab.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert [] == nameless
    assert len(set(identities)) == len(identities)
