"""`gatekeeper selftest`: one file of sections, whatever fails in them."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import HostLacksError
from gatekeeper.report.commands.selftest_document import selftest_document
from gatekeeper.report.document_text import render_text
from gatekeeper.run.start import selftest

HOST_ITEM = {"kind": "host", "found": "yes", "needed_for": "objective x", "fix": None}


def selftest_text(document: Any, path: object, *, sources: bool = False) -> str:
    return render_text(selftest_document(document, path, sources=sources))


def raising(error: BaseException) -> selftest.Measure:
    def measure(_: Path) -> Any:
        raise error

    return measure


def run(path: Path, measures: Mapping[str, selftest.Measure], limit: float = 60.0) -> dict[str, Any]:
    sections = {name: selftest.SelftestPart(measure, limit) for name, measure in measures.items()}
    return selftest.selftest(path, lambda _: None, sections)


def test_a_section_that_fails_does_not_end_it(tmp_path: Path) -> None:
    """Its error, and for one of ours what to do, stand in the file; the next section is measured."""
    sections = {
        "device": raising(HostLacksError("no GPU", hint="buy one")),
        "sampling": raising(KeyError("x")),
        "doctor": lambda folder: {"empty": not any(folder.iterdir()), "items": [HOST_ITEM]},
    }

    document = run(tmp_path / "x.json", sections)

    assert document == json.loads((tmp_path / "x.json").read_text())
    assert ["no GPU", "KeyError: 'x'", None] == [part["error"] for part in document["sections"].values()]
    assert document["sections"]["device"]["hint"] == "buy one"
    assert document["sections"]["doctor"]["result"]["empty"]
    assert ["no", "no", "ok"] == [line.split()[0] for line in selftest_text(document, "x.json").splitlines()[:-1]]


def test_a_section_without_an_end_is_ended_alone(tmp_path: Path) -> None:
    """After the limit of its own it was not reached, which decides nothing; the next section is measured."""
    sections = {"sampling": lambda _: threading.Event().wait(), "doctor": lambda _: {"items": [HOST_ITEM]}}

    document = run(tmp_path / "x.json", sections, limit=0.5)

    lines = selftest_text(document, "x.json").splitlines()
    assert ["?", "ok"] == [line.split()[0] for line in lines[:-1]]
    assert "not reached within 0.5 s" in lines[0]


def test_an_interrupt_leaves_what_was_gathered(tmp_path: Path) -> None:
    """After Ctrl-C the file holds the sections before it, and its text says which were not reached."""
    path = tmp_path / "x.json"
    sections = {
        "doctor": lambda _: {"items": [HOST_ITEM]},
        "sampling": raising(KeyboardInterrupt()),
        "widths": lambda _: {},
    }

    with pytest.raises(KeyboardInterrupt):
        run(path, sections)

    document = selftest.read_selftest(path)
    assert ["doctor"] == [*document["sections"]]
    assert ["ok", "?", "?"] == [line.split()[0] for line in selftest_text(document, path).splitlines()[:-1]]


def test_names_are_cut_out_of_results_and_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's and the host's names are in no text of the file."""
    monkeypatch.setattr(selftest, "own_names", lambda: ["/Users/annika", "annika", "annikas-mini.local"])
    private_text = "/Users/annika/x on ANNIKAS-MINI.local"

    run(tmp_path / "x.json", {"doctor": lambda _: {"items": [private_text]}, "device": raising(OSError(private_text))})

    assert "annika" not in (tmp_path / "x.json").read_text().lower()


def tails(without: list[float], sampled: list[float]) -> dict[str, Any]:
    values_by_name = {"without": without, "with": sampled}
    return {name: {"p99": sum(values) / 2, "p99_of_blocks": values} for name, values in values_by_name.items()}


@pytest.mark.parametrize(
    ("name", "result", "mark"),
    [
        ("pause", {"following": 0.1, "after_pause": 0.3}, "?"),
        ("pause", {"following": 0.1, "after_pause": 0.11}, "ok"),
        ("sampling", tails([0.01, 0.012], [0.02, 0.03]), "no"),
        ("sampling", tails([0.01, 0.021], [0.02, 0.03]), "?"),
        ("sampling", tails([0.01, 0.02], [0.011, 0.012]), "ok"),
        ("widths", {"tokens": 2000, "flips": {"1": 0, "8": 13}}, "ok"),
        ("widths", {"tokens": 2000, "flips": {"1": 1, "8": 13}}, "no"),
        ("certify", {"exit_code": 3, "outcome": "unproven", "because": "noise"}, "?"),
        ("certify", {"exit_code": 1, "outcome": "graded_back", "because": "slower"}, "ok"),
        ("versions", {"mlx": None, "mlx-lm": "1"}, "no"),
        ("device", {"metal": True, "info": {"device_name": "M4", "max_recommended_working_set_size": 17e9}}, "ok"),
        ("device", {"metal": False, "info": {}}, "?"),
        ("telemetry", [{"source": "a", "values": {"x": 1.0}, "missing": {}}], "ok"),
        ("telemetry", [{"source": "a", "values": {"x": 1.0}, "missing": {"y": "parse_error"}}], "no"),
        ("doctor", {"items": [{"kind": "host", "found": None, "needed_for": "objective x", "fix": "do it"}]}, "no"),
        ("telemetry", [], "no"),
        ("telemetry", [{"source": "a", "values": {}, "missing": {"y": "absent"}}], "no"),
        ("doctor", {"items": []}, "?"),
        ("widths", {"flips": {}}, "?"),
        ("widths", {"tokens": 0, "flips": {"1": 0}}, "?"),
        ("widths", {"tokens": 1, "flips": {"1": 10**308 * 100}}, "?"),
    ],
)
def test_a_line_says_what_works(name: str, result: Any, mark: str) -> None:
    """Works, does not work, not decided: by the figures of the part, and without figures nothing works."""
    document = {"planned": [name], "sections": {name: {"result": result, "error": None}}}

    assert mark == selftest_text(document, "x").split()[0]


def test_a_file_with_too_many_parts_is_cut() -> None:
    """A file of a stranger may plan thousands of parts, and hold as many readings: a hundred of each are shown."""
    reading = {"source": "a", "values": {"x": 1.0}, "missing": {}}
    telemetry = {"result": [reading] * 5_000, "error": None}
    text = selftest_text({"planned": ["telemetry"] * 20_000, "sections": {"telemetry": telemetry}}, "x", sources=True)

    assert 300 > len(text.splitlines())


@pytest.mark.parametrize("section", [5, [], {}, {"result": 5, "error": None}, {"result": [5], "error": None}])
def test_a_damaged_section_is_not_decided(section: Any) -> None:
    """A part that is not what gatekeeper writes leaves its line undecided, and no source beneath it."""
    text = selftest_text({"planned": ["telemetry"], "sections": {"telemetry": section}}, "x", sources=True)

    assert ["?", "all"] == [line.split()[0] for line in text.splitlines()]
