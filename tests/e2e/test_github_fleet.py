"""The nightly workflow of a fleet: its shell steps, run in order, with a gatekeeper that records its arguments."""

import os
import shutil
from pathlib import Path

import pytest

from tests.builders.github import Runner, document, put_on_path
from tests.builders.project_folder import ROOT

WORKFLOW = document(ROOT / ".github" / "workflows" / "nightly-fleet.yml")
GATEKEEPER = """{ printf '<%s>' "$@"; echo; } >> "$CALLS"
case "$1 $2" in
"fleet certify") mkdir nightly-fleet; echo "a table" > nightly-fleet/fleet.md; exit "$CODE" ;;
esac
"""
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to run the steps")


def runner(job: str, folder: Path, **values: str) -> Runner:
    expressions = {
        "inputs.slos": "", "inputs.hosts": "", "vars.FLEET_SLOS": "a.toml b.toml", "vars.FLEET_HOSTS": "my hosts.toml",
        "github.repository": "some/where", **values,
    }  # fmt: skip
    path = put_on_path(folder / "bin", os.environ["PATH"], gatekeeper=GATEKEEPER)
    steps = [step for step in WORKFLOW["jobs"][job]["steps"] if step.get("name") != "Install gatekeeper"]
    environment = {"PATH": path, "CALLS": str(folder / "calls.txt"), "CODE": "1"}
    workflow_job = Runner(steps, folder, folder, expressions, environment)
    workflow_job.environment |= {name: workflow_job.fill(value) for name, value in WORKFLOW["env"].items()}
    return workflow_job


def test_a_night_certifies_every_cell(tmp_path: Path) -> None:
    """SLOs and hosts reach `fleet certify`; table, upload and exit code are the job's."""
    done = runner("certify", tmp_path).run()

    assert (1, "a table\n", "nightly-fleet") == (done.code, done.summary, done.uploaded)
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    runs = "<--runs><nightly-fleet><--retries><300>"
    assert [f"<fleet><certify><--hosts><my hosts.toml>{runs}<--><a.toml><b.toml>"] == calls
