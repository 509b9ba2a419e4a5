"""Every report of a stored run, and of a run that did not end."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gatekeeper.report import FORMATS
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_every_format_is_what_its_reader_expects(demo: ProjectFolder, form: str) -> None:
    """`-o` writes what stdout shows, and what `certify` wrote is in SHA256SUMS and rendered the same again."""
    run, published = demo.path / "run", {"html": "report.html", "junit": "junit.xml", "json": "verdict.json"}

    text = demo.run("report", "run", "--format", form, code=0).out
    demo.run("report", "run", "--format", form, "-o", "report.out", code=0)

    assert text == (demo.path / "report.out").read_text()
    assert ("canary" if form in {"csv", "ndjson"} else "scripted") in text
    if form in published:
        assert text == (run / published[form]).read_text()
        assert published[form] in (run / "SHA256SUMS").read_text()
    if form == "junit":
        root = ET.fromstring(text)  # noqa: S314 (our own output)
        assert ("testsuites", "0", "0") == (root.tag, root.get("failures"), root.get("errors"))


@pytest.mark.parametrize("file", ["manifest.json", "plan.json"])
def test_a_newer_schema_is_a_clear_error(demo: ProjectFolder, file: str) -> None:
    """A run written by a later gatekeeper is refused with what to do, not half read."""
    path = demo.path / "run" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))

    refused = demo.run("report", "run", "--format", "html", code=3)

    assert f"{file}: schema 2 " in refused.err
    assert "update gatekeeper" in refused.err


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "scrambled": lambda path: path.write_bytes(b"\xff\xfe{"),
    "renamed within": lambda path: path.write_text(path.read_text().replace("easy", "esay")),
    "deleted": Path.unlink,
}


FROZEN = ("manifest.json", "plan.json", "inputs/slo.toml", "inputs/profile.toml", "inputs/canaries-easy.jsonl")
DAMAGED = [
    *((file, damage) for file in FROZEN for damage in ("truncated", "deleted")),
    *(
        ("manifest.json", "scrambled"),
        ("inputs/slo.toml", "scrambled"),
        ("inputs/canaries-easy.jsonl", "renamed within"),
    ),
]


@pytest.mark.parametrize(("file", "damage"), DAMAGED)
def test_damaged_inputs_make_a_run_unproven(finished: Scripted, file: str, damage: str) -> None:
    """A run whose frozen files are damaged or missing is unproven, as with damaged records; code 2 is for arguments."""
    project = finished(workload=EASY)
    DAMAGE[damage](project.path / "run" / file)

    judged = project.run("judge", "run", code=3)
    page = project.run("report", "run", "--format", "html")

    assert "Traceback" not in judged.err + page.err
    assert page.code in {0, 3}  # what can still be drawn is a page, which says what is missing
    assert "drafting gained for" not in page.out


def test_a_run_compared_with_itself_proves_nothing(demo: ProjectFolder) -> None:
    """A run compared with itself is named as such, and for a gate it is unproven."""
    assert "the same run" in demo.run("compare", "run", "./run/", "--fail-on", "worse", code=3).out


def test_an_interrupted_run_renders_in_every_format(scripted: Scripted) -> None:
    """A run that was interrupted in its soak has a page and every other report, and none of them is a pass."""
    project = scripted()
    soak = project.path / "run" / "soak-1.jsonl"
    process = project.held("run/soak-1.jsonl", after=5).start("certify", "slo.toml", "--out", "run")
    until(lambda: soak.exists() and len(soak.read_text().splitlines()) > 5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)

    texts = {form: project.run("report", "run", "--format", form, code=0).out for form in FORMATS}

    assert not (project.path / "run" / "report.html").exists()
    assert all("during soak-1" in texts[form] for form in ("html", "text"))
    assert "--resume --output run" in texts["text"]
    assert "‖ scripted: interrupted" in texts["markdown"]
    assert "unproven" == json.loads(texts["json"])["outcome"]
    assert "<error" in texts["junit"]


def test_a_run_killed_before_its_first_answer_has_a_page(demo: ProjectFolder) -> None:
    """With nothing but the frozen inputs there is a page, and it states that nothing was recorded."""
    for path in (demo.path / "run").iterdir():
        if path.suffix == ".jsonl" or path.name in {"SHA256SUMS", "policy.toml", "verdict.json", "plan.json"}:
            path.unlink()

    page = demo.run("report", "run", "--format", "html", code=0).out

    assert "No decision yet" in page
    assert "before its first event" in page


def test_github_gets_annotations(demo: ProjectFolder, scripted: Scripted) -> None:
    """Inside GitHub Actions errors go to stderr with the line of the checkout's file; stdout is the same."""
    elsewhere, on_github = (demo.with_environment(GITHUB_ACTIONS=on) for on in ("", "true"))
    (demo.path / "run" / "soak-1.jsonl").unlink()
    failing = [{"metric": "error_rate", "at_most": 0, "when": "always", "why": "an answer is an answer"}]
    project = scripted({"faults": [{"every": 9, "fault": "truncate"}]}, objective=failing)

    plain, annotated = (folder.run("judge", "run") for folder in (elsewhere, on_github))
    failed = project.with_environment(GITHUB_ACTIONS="true").run("certify", "slo.toml", "--quiet", code=1)

    assert plain.out == annotated.out
    assert "::" not in plain.err
    assert all(word in annotated.err for word in ("::error ", "file=slo.toml,line=1,", "scripted%3A not proven::"))
    assert all(word in failed.err for word in ("::error ", "file=slo.toml,line=", "easy%3A error_rate "))
