"""The page in a real browser: it loads without a complaint, its filters filter, and nothing that was said runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.fleet.cell_task import CellResult
from gatekeeper.fleet.fleet_document import fleet_document
from gatekeeper.fleet.fleet_record import FleetRecord
from gatekeeper.report.html import page
from gatekeeper.report.html.document_page import render_page
from tests.builders.browser import Tab, browser, found
from tests.builders.fleet import make_fleet_cell
from tests.builders.page_data import page_of, whole_case
from tests.builders.pages import PAGES
from tests.report.html.test_page import hostile, many

PROGRAM = found()
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH (on Debian: apt-get install chromium)"),
]


CENTRE = """(() => {
  const one = document.querySelector("%s");
  one.scrollIntoView({ block: "center" });
  const box = one.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""
"""Where the middle of an element is, once it is on the screen."""

WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert PROGRAM is not None
    with browser(PROGRAM) as new_tab:
        yield new_tab


@pytest.fixture(autouse=True)
def quiet(tab: Tab) -> None:
    tab.complaints.clear()
    tab.requests.clear()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.render(page_of(whole_case())), encoding="utf-8")
    return path


def chosen(tab: Tab, picker: str, text: str) -> None:
    """Choose an option by its text, as a person does."""
    tab.run(
        f"""(() => {{
          const select = document.getElementById({picker!r});
          select.value = [...select.options].find((one) => one.text === {text!r}).value;
          select.dispatchEvent(new Event("change"));
        }})()"""
    )


def rows(tab: Tab) -> dict[str, int]:
    """Return the settings the sweep shows, and how many answers each has."""
    dots: dict[str, int] = tab.run(
        """Object.fromEntries([...document.querySelectorAll("#sweep [data-setting]")].map(
          (one) => [one.dataset.setting, one.querySelectorAll(".dot").length]))"""
    )
    return dots


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False), (390, True)])
def test_it_loads_without_a_complaint(tab: Tab, mixed: Path, width: int, *, dark: bool) -> None:
    """Light or dark, desk or phone: no error in the console, no request but the file, nothing wider than the screen."""
    tab.open(mixed, width=width, dark=dark)

    wide = tab.run("document.documentElement.scrollWidth")
    assert ([], [mixed.as_uri()]) == (tab.complaints, tab.requests)
    assert wide <= width
    assert 0 < len(rows(tab))


def test_dark_is_dark(tab: Tab, mixed: Path) -> None:
    """The colours follow what the reader's system prefers."""
    colours = []
    for dark in (False, True):
        tab.open(mixed, dark=dark)
        colours.append(tab.run("getComputedStyle(document.documentElement).backgroundColor"))

    assert ["rgb(251, 251, 249)", "rgb(20, 23, 26)"] == colours


def test_the_sweep_is_filtered(tab: Tab, mixed: Path) -> None:
    """Workload, knob and metric are picked: another workload has other figures, another metric shows the plain arm
    too.
    """
    tab.open(mixed)
    easy = rows(tab)
    first = tab.run("document.querySelector('#sweep').textContent")
    chosen(tab, "pick-workload", "hard")
    second = tab.run("document.querySelector('#sweep').textContent")
    chosen(tab, "pick-metric", "ttft")
    ttft = rows(tab)

    assert first != second
    assert {"null", "default", "num_draft_tokens-2"} == set(easy)
    assert {"baseline", "null", "default", "num_draft_tokens-2"} == set(ttft)
    assert {8} == set(easy.values())
    assert [] == tab.complaints


def test_a_knob_shows_its_own_settings(tab: Tab, mixed: Path) -> None:
    """A knob that is picked keeps the default and the settings in which it was moved."""
    tab.open(mixed)
    knobs = tab.run("[...document.getElementById('pick-knob').options].map((one) => one.text)")
    chosen(tab, "pick-knob", "num draft tokens")

    assert ["all", "num draft tokens"] == knobs
    assert {"null", "default", "num_draft_tokens-2"} == set(rows(tab))


def test_a_dot_tells_its_answer(tab: Tab, mixed: Path) -> None:
    """Hovering over a dot shows the canary, the setting and the figures; Escape hides them."""
    tab.open(mixed)
    where = tab.run(CENTRE % "[data-setting=default] .dot")
    tab.move(1, 1)
    tab.move(*where)
    tip = tab.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    tab.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")

    assert [] == [
        words for words in ("easy-0", "heavy, draft length 4", "throughput ratio", "tokens") if words not in tip
    ]
    assert tab.run("document.getElementById('tip').hidden")


def test_a_lane_is_read_where_the_pointer_is(tab: Tab, mixed: Path) -> None:
    """Moving along any chart of a soak shows the time there, and every value of the host at it."""
    tab.open(mixed)
    tab.move(*tab.run(CENTRE % ".lanes .area"))

    lines = tab.run("document.getElementById('tip').textContent").splitlines()
    assert lines[0] in {"4.95 min", "5.04 min"}  # the axis is as long as the answers
    assert "Memory headroom: 13.7 GB" == lines[1]
    assert ["Swap used", "Memory pressure"] == [line.partition(":")[0] for line in lines[2:4]]
    cursors = "[...document.querySelectorAll('.lanes .cursor:not(.hidden)')].map((one) => one.getAttribute('x1'))"
    assert 1 == len(set(tab.run(cursors)))
    assert tab.run("document.querySelectorAll('.lanes .area').length") == len(tab.run(cursors))


def test_a_level_is_told_by_its_name(tab: Tab, mixed: Path) -> None:
    """The second of memory pressure is a warning, in the words of the lane's own labels."""
    tab.open(mixed)
    tab.move(*tab.run(CENTRE % "[data-names]"))

    # The middle of ten minutes may be a pixel beside the one second of it.
    lines = tab.run("document.getElementById('tip').textContent").splitlines()
    assert lines[-1] in {"Memory pressure: warning", "Memory pressure: normal"}
    side = "document.querySelector('[data-names]').previousElementSibling"
    assert ["normal", "warning"] == tab.run(f"[...{side}.querySelectorAll('text')].map((one) => one.textContent)")


@pytest.mark.parametrize("width", [1200, 390])
def test_no_label_lies_on_another(tab: Tab, mixed: Path, width: int) -> None:
    """The labels at the side of every plot do not overlap."""
    tab.open(mixed, width=width)

    touching = tab.run(
        """[...document.querySelectorAll(".plot .side")].flatMap((side) => {
          const boxes = [...side.querySelectorAll("text")].map((one) => one.getBoundingClientRect());
          boxes.sort((a, b) => a.top - b.top);
          return boxes.slice(1).filter((one, at) => one.top < boxes[at].bottom - 2).map(
            () => side.nextElementSibling.getAttribute("aria-label"));
        })"""
    )
    assert [] == touching


def test_the_soak_is_filtered(tab: Tab, mixed: Path) -> None:
    """One workload of the soak leaves its own answers alone."""
    tab.open(mixed)
    count = "document.querySelectorAll('.dot[data-w]:not(.hidden)').length"
    every = tab.run(count)
    chosen(tab, "pick-soak", "hard")
    filtered = tab.run(count)
    chosen(tab, "pick-soak", "all")

    assert 0 < filtered < every
    assert every == tab.run(count)


def test_hostile_text_does_not_run(tab: Tab, tmp_path: Path) -> None:
    """What a model or a canary said is shown, also in the tip, and nothing of it runs or asks for anything."""
    path = tmp_path / "report.html"
    path.write_text(page.render(hostile()), encoding="utf-8")
    tab.open(path)
    tips = tab.run("[...document.querySelectorAll('#sweep [data-tip]')].map((one) => one.dataset.tip)")
    tab.run("document.querySelector('#sweep .dot').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")

    assert "undefined" == tab.run("typeof window.broken")
    written = tab.run("document.querySelectorAll('img, #tip *').length")
    assert 0 == written
    assert any("</script>" in tip for tip in tips)
    assert ([], [path.as_uri()]) == (tab.complaints, tab.requests)


def test_without_scripts_it_still_says_everything(tab: Tab, mixed: Path) -> None:
    """A viewer that forbids scripts, as those of CI systems do, shows everything but the picture of the sweep."""
    tab.open(mixed, script=False)

    document = tab.call("DOM.getDocument", depth=-1)
    assert "Turn drafting on" in json.dumps(document)
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    rows, lines = (f"document.querySelectorAll('{drawn}').length" for drawn in ("#sweep .row", ".plot path"))
    height = "document.querySelector('noscript').getBoundingClientRect().height"
    assert 0 == tab.run(rows)
    assert tab.run(height) > 0
    assert tab.run(lines) > 3


def test_it_prints(tab: Tab, mixed: Path, tmp_path: Path) -> None:
    """Printed it is a document of some pages, in ink on paper even where the screen is dark."""
    tab.open(mixed, dark=True)
    tab.printed(tmp_path / "report.pdf")
    tab.call("Emulation.setEmulatedMedia", media="print")

    assert b"%PDF" == (tmp_path / "report.pdf").read_bytes()[:4]
    assert "rgb(255, 255, 255)" == tab.run("getComputedStyle(document.documentElement).backgroundColor")


@pytest.mark.nightly  # tests/report/html/test_page.py bounds such a page
def test_ten_thousand_requests_open(tab: Tab, tmp_path: Path) -> None:
    """A page of 10,000 requests keeps few enough elements to be quick, and its filters still answer."""
    path = tmp_path / "report.html"
    path.write_text(many(), encoding="utf-8")
    tab.open(path)
    chosen(tab, "pick-metric", "decode throughput")

    assert [] == tab.complaints
    assert tab.run("document.querySelectorAll('*').length") < 20_000
    assert 8_000 <= sum(rows(tab).values())


@pytest.mark.parametrize("kind", PAGES)
def test_no_page_is_wider_than_a_phone(tab: Tab, tmp_path: Path, kind: str) -> None:
    """Tables scroll within themselves, the page never sideways, also where everything is unfolded."""
    path = tmp_path / "page.html"
    path.write_text(PAGES[kind](), encoding="utf-8")
    tab.open(path, width=390)
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")

    assert [390, 390] == tab.run(WIDTHS)


def test_a_fleets_page_fits_a_phone(tab: Tab, tmp_path: Path) -> None:
    """Five hosts, and a reason with a long path, are no wider than the screen."""
    path = tmp_path / "fleet.html"
    result = CellResult(exit_code=3, error=f"no route to /Users/{'long_name' * 20}", hint="check ssh")
    cells = tuple(make_fleet_cell(f"m2-ultra-64gb-gguf@studio-{number}", result=result) for number in range(5))
    path.write_text(render_page(fleet_document(FleetRecord(started="2026-01-01T00:00:00Z", cells=cells))))

    tab.open(path, width=390)

    assert [390, 390] == tab.run(WIDTHS)
