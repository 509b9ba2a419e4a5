"""`gatekeeper versus`: two systems in one run, their requests interleaved."""

import json
import shutil
import signal
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders.deployment import Answering
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.waiting import until
from tests.e2e.conftest import project
from tests.e2e.test_worker_run import EXAMPLE, echoing

__all__ = ["project"]

PACKAGE = "echo_worker"
QUICK = ("--seconds", "1", "--json", "--quiet")


def row(document: Mapping[str, Any], metric: str) -> dict[str, Any]:
    (metric_row,) = (line for line in document["metrics"] if line["metric"] == metric)
    return dict(metric_row)


def make_environment(folder: Path, accepted: int) -> Path:
    """Make a virtual environment with the example worker, whose draft is right for *accepted* tokens."""
    venv.create(folder, symlinks=True)
    code = EXAMPLE.read_text().replace(
        "for place, word in enumerate(words[len(arrivals) :][: width + 1]):",
        f"right = min(width, {accepted})\n        for place, word in enumerate(words[len(arrivals) :][: right + 1]):",
    )
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    (packages / f"{PACKAGE}.py").write_text(code.replace("[now, 1, place < width,", "[now, 1, place < right,"))
    return packages


@pytest.fixture
def worker(project: ProjectFolder) -> ProjectFolder:
    """A folder with an SLO of the example worker as a package."""
    echoing(project, command=["python", "-m", PACKAGE, "{target}", "{draft}"])
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["sweep"]["default"] = {"num_draft_tokens": 4}
    project.write_slo(slo)
    return project


def test_two_environments_are_compared_request_by_request(worker: ProjectFolder) -> None:
    """Virtual environments with two versions of a package: half the accepted tokens is proven worse, and exits 1."""
    for folder, accepted in (("env-old", 4), ("env-new", 2)):
        make_environment(worker.path / folder, accepted)

    words = ("versus", "env-old", "env-new", "--slo", "slo.toml", *QUICK, "--out", "run", "--fail-on", "worse")
    document = worker.run(*words, code=1).document

    acceptance, speed = row(document, "acceptance_rate"), row(document, "throughput_ratio")
    assert "worse" == acceptance["says"]
    assert "better" != speed["says"]
    assert 1.0 == row(document, "token_agreement")["center"]
    assert (worker.path / "run" / "a" / "answers.jsonl").is_file()


@pytest.fixture
def servers() -> Iterator[tuple[Answering, Answering]]:
    with Answering() as a, Answering() as b:
        a.cached = b.cached = 0
        yield a, b


def test_two_addresses_need_no_slo(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """On the shipped canaries models are named, and words and right answers counted side by side."""
    a, b = servers
    a.model, b.model = "org/target", "target.gguf"

    comparison = worker.run("versus", a.url, b.url, *QUICK, code=0).document

    assert ("org/target", "target.gguf") == (comparison["a"]["model"], comparison["b"]["model"])
    assert (24, 24) == (comparison["words"]["canaries"], comparison["words"]["same"])
    assert [0.0, 0.0] == [comparison[side]["measured"]["json_pass_rate"]["center"] for side in "ab"]
    assert "no difference shown" == row(comparison, "json_pass_delta")["says"]
    assert 0.9 == comparison["a"]["measured"]["acceptance_rate"]["center"]


def test_a_cached_prompt_shows_no_first_token(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """B took prompts from its cache: its first token is not compared, and the reason names B."""
    a, b = servers
    b.cached = 3

    comparison = worker.run("versus", a.url, b.url, *QUICK, code=0).document

    first = row(comparison, "ttft_delta")
    assert "not measured" == first["says"]
    assert str(first["because"]).startswith("B had ")
    assert comparison["b"]["measured"]["ttft"]["center"] is None
    assert comparison["a"]["measured"]["ttft"]["center"] > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--canaries", "none.jsonl"), "none.jsonl"),
        (("--slo", "slo.toml", "--canaries", "json"), "--canaries"),
        (("--slo", "slo.toml", "--target", "big"), "--target"),
    ],
)
def test_what_two_addresses_cannot_do_is_refused(
    worker: ProjectFolder, servers: tuple[Answering, Answering], words: tuple[str, ...], reason: str
) -> None:
    """A file of canaries that does not exist, and canaries or a model beside an SLO, which names its own."""
    refused = worker.run("versus", *(server.url for server in servers), *words, *QUICK, code=2)

    assert reason in refused.err


def test_a_server_that_is_not_there_is_named(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """Where no server listens at B, or one that answers nothing but errors, its address is named."""
    a, b = servers
    with Answering() as ended:
        ended_url = ended.url
    b.status = 404

    absent = worker.run("versus", a.url, ended_url, *QUICK, code=2)
    broken = worker.run("versus", a.url, b.url, *QUICK, code=2)

    assert ended_url in absent.err
    assert b.url in broken.err
    assert "404" in broken.err


def test_a_side_that_does_not_start_is_named(worker: ProjectFolder) -> None:
    """Exit code 2 with the side and the line of its log that says why."""
    make_environment(worker.path / "env-old", 4)
    broken = make_environment(worker.path / "env-new", 4) / f"{PACKAGE}.py"
    broken.write_text(broken.read_text().replace("send(ready=True)", "sys.exit('unknown model')"))

    done = worker.run("versus", "env-old", "env-new", "--slo", "slo.toml", "--seconds", "1", "--quiet", code=2)

    assert all(word in done.err for word in ("B cannot be started: ", "unknown model"))


@pytest.fixture
def drafts(project: ProjectFolder) -> ProjectFolder:
    """Two revisions of a draft, of which the newer one is right less often; a worker that reads them."""
    echoing(project, command=[sys.executable, "my_worker.py", "{target}", "{draft}"])
    worker = project.path / "my_worker.py"
    code = worker.read_text().replace(
        "for place, word in enumerate(words[len(arrivals) :][: width + 1]):",
        "right = min(width, int(open(sys.argv[2] + '/right').read())) if width else 0\n"
        "        for place, word in enumerate(words[len(arrivals) :][: right + 1]):",
    )
    worker.write_text(code.replace("[now, 1, place < width,", "[now, 1, place < right,"))
    for number, right in enumerate((4, 2)):
        folder = project.path / f"draft-rev{number}"
        shutil.copytree(ROOT / "models" / "little-draft", folder)
        (folder / "right").write_text(str(right))
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["subject"]["drafts"] = [str(project.path / "draft-rev0"), str(project.path / "draft-rev1")]
    slo["sweep"]["default"] = {"num_draft_tokens": 4}
    project.write_slo(slo)
    return project


@pytest.mark.nightly
def test_two_drafts_are_compared_and_an_interrupted_comparison_continues(drafts: ProjectFolder) -> None:
    """The worse draft is proven worse; --resume sends only what is missing, and a finished comparison no more."""
    sides = (str(drafts.path / "draft-rev0"), str(drafts.path / "draft-rev1"))
    words = ("versus", *sides, "--slo", "slo.toml", "--json", "--quiet", "--out", "run")
    process = drafts.start(*words, "--seconds", "600")
    answers = drafts.path / "run" / "b" / "answers.jsonl"
    until(lambda: answers.is_file() and answers.read_text().count("\n") > 10)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=120)
    before = answers.read_text()

    refused = drafts.run(*words, "--seconds", "1", code=2)
    document = drafts.run(*words, "--seconds", "1", "--resume", code=0).document
    again = drafts.run(*words, "--seconds", "600", "--resume", code=2)

    assert (130, True) == (process.returncode, "--resume continues" in output)
    assert "interrupted comparison" in refused.err
    assert answers.read_text().startswith(before)
    records = [json.loads(line) for line in answers.read_text().splitlines()[:-1]]
    measured = [record["key"] for record in records if record["role"] == "measured"]
    assert len(measured) == len(set(measured)) == 8 * document["rounds"]
    assert "worse" == row(document, "acceptance_rate")["says"]
    assert "finished comparison" in again.err


def test_a_side_whose_first_request_fails_is_said(drafts: ProjectFolder) -> None:
    """A side that answers nothing proves nothing: code 3 with its fault, before the canaries are sent."""
    (drafts.path / "draft-rev1" / "right").write_text("none")
    sides = (str(drafts.path / "draft-rev0"), str(drafts.path / "draft-rev1"))

    done = drafts.run("versus", *sides, "--slo", "slo.toml", *QUICK, code=3)

    assert "B: its first request" in done.err
