"""A system under test that cannot be started again in the middle of a run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gatekeeper.backends.http import control_requests
from gatekeeper.backends.listening_process import free_port
from tests.builders.disk import at_line
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.small_run import RECORDS, lines, stored
from tests.builders.waiting import until
from tests.e2e.conftest import project
from tests.e2e.test_worker_run import echoing

__all__ = ["project"]


def test_a_worker_that_never_starts_is_bad_input(project: ProjectFolder) -> None:
    """Before anything is measured the same is code 2: the command of the SLO file does not work."""
    echoing(project, command=["false"])

    project.run("certify", "slo.toml", "--out", "run", code=2)

    assert not (project.path / "run" / "manifest.json").exists()


def test_a_log_is_not_written_through_a_link(project: ProjectFolder) -> None:
    """logs/ that leads elsewhere: code 4 with the path, before anything is started."""
    echoing(project)
    (project.path / "elsewhere").mkdir()
    (project.path / "run").mkdir()
    (project.path / "run" / "logs").symlink_to(project.path / "elsewhere")

    done = project.run("certify", "slo.toml", "--out", "run", code=4)

    assert "it is a link" in done.err
    assert [] == list((project.path / "elsewhere").iterdir())


SERVER = """
import sys, time
from tests.builders.servers import PROTOCOLS, RecordedServer

def pieces(request, drafting):
    for piece in PROTOCOLS["openai"].pieces(request, drafting):
        time.sleep(0.004)
        yield piece

protocol = PROTOCOLS["openai"]._replace(pieces=pieces)
with RecordedServer(protocol, drafting=False, port=int(sys.argv[1])):
    time.sleep(600)
"""


@contextmanager
def serving(port: int) -> Iterator[int]:
    """Start a plain server on *port*, and yield its process number once it accepts connections."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], cwd=ROOT)
    try:
        until(lambda: control_requests.status(f"http://127.0.0.1:{port}/", {}) is not None)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.whole
@pytest.mark.parametrize(
    ("file", "number"),
    [
        pytest.param("baseline.jsonl", signal.SIGKILL, id="killed in the sweep", marks=pytest.mark.nightly),
        pytest.param("soak-1.jsonl", signal.SIGKILL, id="killed in the soak"),
        pytest.param("baseline.jsonl", signal.SIGSTOP, id="stopped in the sweep", marks=pytest.mark.nightly),
    ],
)
def test_an_attached_server_that_is_lost_is_unproven_and_continued(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, file: str, number: signal.Signals
) -> None:
    """A server killed or stopped in mid-run is code 3; when it is back, --resume ends in a verdict."""
    port = free_port()
    models = {name: str(ROOT / "models" / name) for name in ("little-target", "little-draft")}
    subject = {"backend": "openai", "target": models["little-target"], "drafts": [models["little-draft"]]}
    lines_of = [{"id": f"c-{at}", "messages": [{"role": "user", "content": f"Say {at}."}]} for at in range(6)]
    (project.path / "work.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines_of))
    url = f"http://127.0.0.1:{port}"
    project.write_slo(
        {
            "schema": 1,
            "name": "attached",
            "subject": {**subject, "url": url, "plain_url": url, "timeout": "300 ms", "start_timeout": "1 s"},
            "workload": [{"name": "work", "canaries": "work.jsonl"}],
            "sweep": {"repeats": 1},
            "soak": {"duration": "4 s", "baseline_drift": 0.9},
            "objective": [{"metric": "error_rate", "at_most": 0.0, "why": "each answer counts"}],
        }
    )
    with serving(port) as pid, monkeypatch.context() as patch:
        at_line(patch, file, 4, lambda: os.kill(pid, number))
        done = project.run("certify", "slo.toml", "--out", "run")
    before = stored(project.path / "run")
    with serving(port):
        resumed = project.run("certify", "slo.toml", "--out", "run", "--resume")

    after = stored(project.path / "run")
    assert 3 == done.code
    assert "SHA256SUMS" not in before
    assert resumed.code in {1, 3}
    assert "SHA256SUMS" in after
    for name in {*RECORDS} & {*before}:
        lines_before = lines(before[name])
        assert lines_before == lines(after[name])[: len(lines_before)]
