"""A system under test that cannot be started again in the middle of a run."""

import json
import os
import signal
import subprocess
import sys

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
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send(json.dumps({"data": [{"id": "big"}]}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in range(8):
            time.sleep(0.004)
            self.write({"choices": [{"index": 0, "delta": {"content": f"word{word} "}, "finish_reason": None}]})
        self.write({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.write({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 8}})
        self.wfile.write(b"data: [DONE]\\n\\n")

    def write(self, chunk):
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\\n\\n")
        self.wfile.flush()

    def send(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def serve(port: int) -> subprocess.Popen[bytes]:
    """Start a plain server on *port*, and wait until it accepts connections."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
    until(lambda: control_requests.status(f"http://127.0.0.1:{port}/", {}) is not None)
    return process


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
    server = serve(port)
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
    try:
        with monkeypatch.context() as patch:
            at_line(patch, file, 4, lambda: os.kill(server.pid, number))
            done = project.run("certify", "slo.toml", "--out", "run")
        before = stored(project.path / "run")
    finally:
        server.kill()
        server.wait()
    server = serve(port)
    try:
        resumed = project.run("certify", "slo.toml", "--out", "run", "--resume")
    finally:
        server.kill()
        server.wait()

    after = stored(project.path / "run")
    assert 3 == done.code
    assert "SHA256SUMS" not in before
    assert resumed.code in {1, 3}
    assert "SHA256SUMS" in after
    for name in {*RECORDS} & {*before}:
        lines_before = lines(before[name])
        assert lines_before == lines(after[name])[: len(lines_before)]
