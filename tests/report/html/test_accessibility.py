"""The page against the rules of WCAG 2.2 AA, as axe-core checks them in a real browser."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.fleet import fleet_page
from gatekeeper.fleet.answer import Fleet
from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.fleet_cell import FleetCell
from gatekeeper.fleet.task import Done
from gatekeeper.report.data.compared_runs import ComparedFigure
from gatekeeper.report.data.run_history import (
    HistoryRun,
    HistoryWorkload,
    RunHistory,
    SloHistory,
    StandingCheck,
    UnreadableRun,
)
from gatekeeper.report.html import history_page, page
from tests.builders.browser import Tab, browser, found
from tests.builders.page_data import DRAFTED, PAGE, page_of, whole_case

PROGRAM, NPM = found(), shutil.which("npm")
AXE = "axe-core@4.14.1"
"""Newer versions may have new rules: they come in with a commit, not by themselves."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
NIGHT = HistoryRun(
    run="runs/night",
    at="2026-01-01T00:00:00Z",
    outcome="graded_back",
    grade="demo",
    trouble=None,
    footprint_peak=None,
    host="Apple M4, 24 GB",
    failed=(StandingCheck("easy", "ttft_delta", "too late"),),
    workloads={"easy": HistoryWorkload("promoted", DRAFTED, {}, ComparedFigure(1.31, 1.22, 1.38), 1.16)},
    changed=("mlx: 0.1 → 0.2",),
)
HISTORY = RunHistory((SloHistory("made", (NIGHT, NIGHT), None),), (UnreadableRun("x", "damaged"),))
STUDIO, MINI = (Cell("made", Path("slo.toml"), host) for host in ("studio", "mini"))
FLEET = Fleet("2026-01-01T00:00:00Z", None, (FleetCell(STUDIO), FleetCell(MINI, Done(MINI.name, 3, error="no route"))))
PAGES = {
    "promoted": lambda: page.render(page_of(whole_case())),
    "failed": lambda: page.render(PAGE),
    "fleet": lambda: fleet_page.render(FLEET),
    "history": lambda: history_page.render(HISTORY),
}
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH (on Debian: apt-get install chromium)"),
    pytest.mark.skipif(NPM is None, reason="no npm on PATH, which fetches axe-core (on Debian: apt-get install npm)"),
]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("axe")
    packed = subprocess.run(
        [str(NPM), "pack", "--silent", AXE], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if packed.returncode != 0:
        pytest.skip(f"npm cannot fetch {AXE}: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert PROGRAM is not None
    with browser(PROGRAM) as one:
        yield one


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 320])
@pytest.mark.parametrize("kind", PAGES)
def test_no_rule_is_broken(tab: Tab, axe: str, tmp_path: Path, kind: str, width: int, *, dark: bool) -> None:
    """
    Colours have contrast, controls have names, regions can be reached, also in what is folded away.
    """
    path = tmp_path / "report.html"
    path.write_text(PAGES[kind](), encoding="utf-8")
    tab.open(path, width=width, dark=dark)
    tab.run(axe)

    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    broken = tab.run(
        f"""axe.run({{runOnly: {RULES}}}).then((seen) => seen.violations.map(
          (one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120))]))"""
    )

    assert [] == broken
