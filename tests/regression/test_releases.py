"""Releases that are programs, servers or drafts: `bisect` and `versus` on real processes."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.http import control_requests
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.waiting import until
from tests.e2e.conftest import project, scripted
from tests.e2e.test_llama_server import FAKE, smoke
from tests.e2e.test_worker_run import echoing

__all__ = ["project", "scripted"]

WORSE = {"rejected": 2}
"""Two of four drafted tokens more are rejected, as after a change of a release."""
QUICK = ("--seconds", "1", "--json", "--quiet")
BISECT = ("bisect", "slo.toml", "--json", "--quiet", "--out", "search")


def row(document: Mapping[str, Any], metric: str) -> dict[str, Any]:
    (metric_row,) = (line for line in document["metrics"] if line["metric"] == metric)
    return dict(metric_row)


@pytest.fixture
def releases(project: ProjectFolder) -> ProjectFolder:
    """Four releases of a fake llama-server, of which the last two reject more; the little pair as GGUF."""
    for number, change in enumerate(({}, {}, WORSE, WORSE)):
        program = project.path / f"b610{number}" / "llama-server"
        program.parent.mkdir()
        fake = f"FAKE_LLAMA='{json.dumps(change)}' exec '{sys.executable}' '{FAKE}' new"
        program.write_text(f'#!/bin/sh\n{fake} "$@"\n')
        program.chmod(0o755)
    smoke(project, "llama-server")
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["sweep"]["default"] = {"num_draft_tokens": 4}
    project.write_slo({**slo, "workload": [{**slo["workload"][0], "first": 8}]})
    return project


def test_the_first_bad_program_is_found_by_what_its_server_counts(releases: ProjectFolder) -> None:
    """
    Releases of llama-server as programs, named from here; acceptance is what the server reports, as we see no rounds.
    """
    programs = [word for number in range(4) for word in ("--program", f"./b610{number}/llama-server")]

    document = releases.run(*BISECT, "--metric", "acceptance_rate", *programs, code=0).document

    assert ("./b6101/llama-server", "./b6102/llama-server") == (document["last_good"], document["first_bad"])
    again = document["reproduce"].split()
    assert ["./b6101/llama-server", "./b6102/llama-server"] == [
        value for option, value in pairwise(again) if option == "--program"
    ]


def test_two_programs_are_compared(releases: ProjectFolder) -> None:
    """
    The same two servers side by side: the newer one's acceptance is proven worse, and exits 1.
    """
    sides = ("./b6100/llama-server", "./b6103/llama-server")

    document = releases.run("versus", *sides, "--slo", "slo.toml", *QUICK, "--fail-on", "worse", code=1).document

    assert "worse" == row(document, "acceptance_rate")["says"]
    assert 1.0 == row(document, "token_agreement")["center"]


def test_a_side_that_does_not_start_is_named(releases: ProjectFolder) -> None:
    """
    Exit code 2 with the side and the line of its log that says why.
    """
    broken = releases.path / "b6103" / "llama-server"
    failing = "#!/bin/sh\ncase \"$*\" in *--port*) echo 'error: unknown model architecture' >&2; exit 3;; esac\n"
    broken.write_text(broken.read_text().replace("#!/bin/sh\n", failing))
    sides = ("./b6100/llama-server", "./b6103/llama-server")

    done = releases.run("versus", *sides, "--slo", "slo.toml", "--seconds", "1", "--quiet", code=2)

    assert all(word in done.err for word in ("B cannot be started: ", "error: unknown model"))


def test_an_environment_without_the_server_is_said(releases: ProjectFolder) -> None:
    """
    A virtual environment into which mlx-lm was not installed.
    """
    empty = releases.path / "empty" / "bin"
    empty.mkdir(parents=True)
    (empty / "python").symlink_to(sys.executable)
    slo = tomllib.loads((releases.path / "slo.toml").read_text())
    slo["subject"] |= {"backend": "mlx-server", "target": str(ROOT / "models" / "little-target"), "drafts": []}
    releases.write_slo({**slo, "subject": {key: slo["subject"][key] for key in ("backend", "target", "drafts")}})

    done = releases.run("versus", "empty", "empty", "--slo", "slo.toml", "--seconds", "1", "--quiet", code=2)

    assert "mlx_lm.server is not in" in done.err
    assert "install mlx-lm there" in done.err


@contextmanager
def serving(program: Path, target: Path, draft: Path) -> Iterator[str]:
    """Start a server that gatekeeper did not start, as one that is deployed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ("--model", target, "--model-draft", draft, "--spec-type", "draft-simple", "--spec-draft-n-max", "4")
    words = [program, *flags, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([str(word) for word in words])
    try:
        until(lambda: control_requests.status(f"http://127.0.0.1:{port}/health", {}) == 200)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_two_running_servers_are_compared(releases: ProjectFolder) -> None:
    """
    Two addresses take the place of the SLO's server; nothing is started, and both are asked in turns.
    """
    pair = releases.path / "little-target.gguf", releases.path / "little-draft.gguf"
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(serving(releases.path / release / "llama-server", *pair))
            for release in ("b6100", "b6103")
        )
        document = releases.run("versus", a, b, "--slo", "slo.toml", *QUICK, "--out", "run", code=0).document

    assert "worse" == row(document, "acceptance_rate")["says"]
    assert [a, b] == [document[key]["name"] for key in "ab"]


@pytest.fixture
def drafts(project: ProjectFolder) -> ProjectFolder:
    """Four revisions of a draft, of which the last two are right less often; a worker that reads them."""
    echoing(project, command=[sys.executable, "my_worker.py", "{target}", "{draft}"])
    worker = project.path / "my_worker.py"
    code = worker.read_text().replace(
        "for place, word in enumerate(words[len(arrivals) :][: width + 1]):",
        "right = min(width, int(open(sys.argv[2] + '/right').read())) if width else 0\n"
        "        for place, word in enumerate(words[len(arrivals) :][: right + 1]):",
    )
    worker.write_text(code.replace("[now, 1, place < width,", "[now, 1, place < right,"))
    for number, right in enumerate((4, 4, 2, 2)):
        folder = project.path / f"draft-rev{number}"
        shutil.copytree(ROOT / "models" / "little-draft", folder)
        (folder / "right").write_text(str(right))
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["subject"]["drafts"] = [str(project.path / "draft-rev0"), str(project.path / "draft-rev3")]
    slo["sweep"]["default"] = {"num_draft_tokens": 4}
    project.write_slo(slo)
    return project


def test_the_first_bad_revision_of_a_draft_is_found(drafts: ProjectFolder) -> None:
    """
    Revisions of a draft as folders, named from here, whatever drafts the SLO names.
    """
    draft_words = [word for number in range(4) for word in ("--draft", f"./draft-rev{number}")]

    document = drafts.run(*BISECT, "--metric", "acceptance_rate", *draft_words, code=0).document

    assert ("./draft-rev1", "./draft-rev2") == (document["last_good"], document["first_bad"])


@pytest.mark.nightly
def test_two_drafts_are_compared_and_an_interrupted_comparison_continues(drafts: ProjectFolder) -> None:
    """
    Two drafts of the SLO: the worse one is proven worse. After Ctrl-C --resume sends only what is missing, and a
    finished comparison takes no more.
    """
    sides = (str(drafts.path / "draft-rev0"), str(drafts.path / "draft-rev3"))
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
    """
    A side that answers nothing proves nothing: code 3 with its fault, before the canaries are sent.
    """
    (drafts.path / "draft-rev3" / "right").write_text("none")
    sides = (str(drafts.path / "draft-rev0"), str(drafts.path / "draft-rev3"))

    done = drafts.run("versus", *sides, "--slo", "slo.toml", *QUICK, code=3)

    assert "B: its first request" in done.err


def test_a_later_first_token_is_found(scripted: Any) -> None:
    """
    Time to first token as the symptom, in simulated time: the draft from which on a round takes longer.
    """
    slow = {"one": "5 ms", "two": "5 ms", "three": "60 ms", "four": "60 ms"}
    folder: ProjectFolder = scripted({"draft_token": slow}, workload=[{"name": "easy", "canaries": "easy.jsonl"}])
    draft_words = [word for name in slow for word in ("--draft", name)]

    document = folder.run(*BISECT, "--metric", "ttft", *draft_words, code=0).document

    assert ("two", "three") == (document["last_good"], document["first_bad"])
    assert "at_most" == document["bound"]
    assert all(0.1 < step["center"] < 1 for step in document["steps"])
