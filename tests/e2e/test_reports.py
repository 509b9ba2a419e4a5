"""Every report of a stored run: written by certify, rendered again later, and of a run that did not end."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gatekeeper.report import FORMATS
from tests.builders.project_folder import ProjectFolder
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]


def test_certify_writes_the_page_and_its_checksum(demo: ProjectFolder) -> None:
    """report.html and junit.xml are in the run directory and in SHA256SUMS; the page is what report renders."""
    run = demo.path / "run"
    listed = {line.split()[1] for line in (run / "SHA256SUMS").read_text().splitlines()}

    again = demo.run("report", "run", "--format", "html", code=0)

    assert {"report.html", "junit.xml", "verdict.json"} <= listed
    assert (run / "report.html").read_text() == again.out
    assert "drafting gained for" in again.out


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_every_format_is_written_to_a_file(demo: ProjectFolder, form: str) -> None:
    """`-o` writes what stdout would show."""
    finished = demo.run("report", "run", "--format", form, code=0)
    demo.run("report", "run", "--format", form, "-o", "report.out", code=0)

    assert finished.out == (demo.path / "report.out").read_text()
    assert ("canary" if form in {"csv", "ndjson"} else "scripted") in finished.out


def test_each_format_is_what_its_reader_expects(demo: ProjectFolder) -> None:
    """JSON parses, JUnit is XML, Markdown starts with the verdict."""

    def report(form: str) -> str:
        return demo.run("report", "run", "--format", form, code=0).out

    assert "promoted" == json.loads(report("json"))["outcome"]
    assert "testsuites" == ET.fromstring(report("junit")).tag  # noqa: S314
    assert report("markdown").startswith("## ✓ scripted: promoted")


def test_a_path_that_cannot_be_written_is_an_error(demo: ProjectFolder) -> None:
    """The error names the file and what to do."""
    refused = demo.run("report", "run", "--format", "html", "-o", "no/such/folder.html", code=2)

    assert "no/such/folder.html" in refused.err
    assert "hint" in refused.err


@pytest.mark.parametrize("file", ["manifest.json", "plan.json"])
def test_a_newer_schema_is_a_clear_error(demo: ProjectFolder, file: str) -> None:
    """A run written by a later gatekeeper is refused with what to do, not half read."""
    path = demo.path / "run" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))

    refused = demo.run("report", "run", "--format", "html", code=3)

    assert f"{file}: schema 2 " in refused.err
    assert "update gatekeeper" in refused.err


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _scrambled(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{")


def _renamed_within(path: Path) -> None:
    path.write_text(path.read_text().replace("easy", "esay"))


@pytest.mark.parametrize("damage", [_truncated, _scrambled, _renamed_within, Path.unlink])
@pytest.mark.parametrize(
    "file",
    [
        "manifest.json",
        "plan.json",
        "inputs/slo.toml",
        "inputs/profile.toml",
        "inputs/canaries-easy.jsonl",
    ],
)
def test_damaged_inputs_make_a_run_unproven(demo: ProjectFolder, file: str, damage: Callable[[Path], None]) -> None:
    """A run whose frozen files are damaged or missing is unproven, as with damaged records; code 2 is for arguments."""
    path = demo.path / "run" / file
    before = path.read_bytes()
    damage(path)
    code = 0 if path.exists() and before == path.read_bytes() else 3

    judged = demo.run("judge", "run", code=code)
    compared = demo.run("compare", "run", "run", code=code)
    page = demo.run("report", "run", "--format", "html")

    assert "Traceback" not in judged.err + compared.err + page.err
    assert page.code in {0, code}  # what can still be drawn is a page, which says what is missing
    assert (code == 0) == ("drafting gained for" in page.out)


def test_a_run_compared_with_itself_proves_nothing(demo: ProjectFolder) -> None:
    """A run compared with itself is named as such, and for a gate it is unproven."""
    compared = demo.run("compare", "run", "./run/", "--fail-on", "worse", code=3)

    assert "the same run" in compared.out


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
    assert "during soak-1" in texts["html"]
    assert "during soak-1" in texts["text"]
    assert "--resume --output run" in texts["text"]
    assert "‖ scripted: interrupted" in texts["markdown"]
    assert "unproven" == json.loads(texts["json"])["outcome"]
    assert "<error" in texts["junit"]


def test_a_run_killed_before_its_first_answer_has_a_page(demo: ProjectFolder) -> None:
    """With nothing but the frozen inputs there is a page, and it states that nothing was recorded."""
    run = demo.path / "run"
    for path in run.iterdir():
        if path.suffix == ".jsonl" or path.name in {"SHA256SUMS", "policy.toml", "verdict.json", "plan.json"}:
            path.unlink()

    page = demo.run("report", "run", "--format", "html", code=0).out

    assert "No decision yet" in page
    assert "before its first event" in page


def test_a_folder_that_is_not_a_run_is_an_error(demo: ProjectFolder) -> None:
    """The error names the folder and asks whether it is a run directory."""
    (demo.path / "empty").mkdir()

    refused = demo.run("report", "empty", "--format", "html", code=2)

    assert "is this a run directory" in refused.err


@pytest.mark.parametrize("command", [("judge", "run"), ("report", "run", "--format", "text")])
def test_github_gets_annotations_from_judge_and_report(demo: ProjectFolder, command: tuple[str, ...]) -> None:
    """Inside GitHub Actions the annotations go to stderr, with the line of the checkout's file; stdout is the same."""
    elsewhere, on_github = (demo.with_environment(GITHUB_ACTIONS=on) for on in ("", "true"))
    (demo.path / "run" / "soak-1.jsonl").unlink()
    (demo.path / "a folder.toml").mkdir()

    plain = elsewhere.run(*command)
    annotated = on_github.run(*command)

    assert plain.out == annotated.out
    assert all(word in annotated.err for word in ("::error ", "file=slo.toml,line=1,", "scripted%3A not proven::"))
    assert "::" not in plain.err


def test_github_gets_annotations_from_certify(scripted: Scripted) -> None:
    """A check that fails during certify is an error at the objective's line of the given file."""
    project = scripted(
        {"faults": [{"every": 9, "fault": "truncate"}]},
        objective=[{"metric": "error_rate", "at_most": 0, "when": "always", "why": "an answer is an answer"}],
    )
    on_github = project.with_environment(GITHUB_ACTIONS="true")

    annotated = on_github.run("certify", "slo.toml", "--out", "run", "--json", "--quiet", code=1)

    assert "failed" == annotated.document["outcome"]
    assert all(word in annotated.err for word in ("::error ", "file=slo.toml,line=", "easy%3A error_rate "))
