"""Files for other systems: CI, Kubernetes, Prometheus, Grafana, releases; each says what gatekeeper does."""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

import gatekeeper
from gatekeeper.backends.http import control_requests
from gatekeeper.backends.listening_process import free_port
from gatekeeper.live import exposition
from gatekeeper.live.overlay import Overlay, OverlayRoute
from tests.builders.github import put_on_path
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.waiting import until

PROMETHEUS = ROOT / "integrations" / "prometheus"
YAML = [
    *sorted((ROOT / "integrations").rglob("*.yml")),
    ROOT / ".pre-commit-hooks.yaml",
    ROOT / ".github" / "dependabot.yml",
]
AT = datetime(2026, 11, 22, tzinfo=UTC)
STATE = Overlay("m4", "", "", AT, AT, (OverlayRoute('a "b"', True, ""), OverlayRoute("c", False, "")))


def read(path: Path) -> Any:
    return next(iter(pytest.importorskip("ruamel.yaml").YAML(typ="safe").load_all(path.read_text("utf-8"))))


def promtool(*words: str, stdin: str | None = None, cwd: Path = PROMETHEUS) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool (Debian: prometheus)")
    ran = subprocess.run(
        [program, *words], input=stdin, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == ran.returncode, ran.stdout + ran.stderr


def test_the_textfile_is_what_the_node_exporter_reads(tmp_path: Path) -> None:
    """Every metric has its help and type, labels are escaped, promtool accepts it, and a file is replaced whole."""
    text = exposition.render_watch(STATE, AT)
    fault = exposition.replace_file(tmp_path / "gatekeeper-m4.prom", text)
    lost = exposition.replace_file(tmp_path / "nowhere" / "gatekeeper-m4.prom", text)

    assert 'gatekeeper_watch_speculation{slo="m4",workload="a \\"b\\""} 1.0\n' in text
    assert 'gatekeeper_watch_speculation{slo="m4",workload="c"} 0.0\n' in text
    assert (None, text) == (fault, (tmp_path / "gatekeeper-m4.prom").read_text())
    assert str(tmp_path / "nowhere") in str(lost)
    promtool("check", "metrics", stdin=text)


def test_the_alert_rules_fire_as_they_say() -> None:
    """Promtool accepts the rules and their tests."""
    promtool("check", "rules", "gatekeeper.rules.yml")
    promtool("test", "rules", "gatekeeper.test.yml")


def test_rules_and_dashboard_name_metrics_that_are_written() -> None:
    """Every name in an expression is a metric of the textfile, and each alert links to a section of its runbook."""
    rules = [rule for group in read(PROMETHEUS / "gatekeeper.rules.yml")["groups"] for rule in group["rules"]]
    board = json.loads((PROMETHEUS / "grafana-dashboard.json").read_text())
    expressions = [rule["expr"] for rule in rules] + [panel["targets"][0]["expr"] for panel in board["panels"]]
    runbook = (ROOT / "docs" / "alerts.md").read_text()
    sections = {head.lower().replace(" ", "-") for head in re.findall(r"^## (.+)$", runbook, re.MULTILINE)}

    metric_names = {name for expression in expressions for name in re.findall(r"gatekeeper_watch_(\w+)", expression)}

    assert set(exposition.WATCH_GAUGES) == metric_names
    assert sections == {rule["annotations"]["runbook_url"].partition("docs/alerts.md#")[2] for rule in rules}


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_files_are_yaml(path: Path) -> None:
    """Each file is read as YAML, and what it runs are commands that gatekeeper has."""
    assert read(path)

    commands = set(re.findall(r"^- `(\w+)", (ROOT / "docs" / "reference" / "commands.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"^ *(?:- |command: )gatekeeper (\w+)", path.read_text(), re.MULTILINE)) <= commands


@pytest.mark.parametrize(
    ("code", "phase"),
    [(0, "Successful"), (1, "Failed"), (3, "Inconclusive"), (2, "Inconclusive"), (4, "Inconclusive"), (None, "Error")],
)
def test_unproven_is_inconclusive_for_argo(tmp_path: Path, code: int | None, phase: str) -> None:
    """By the template's conditions on `admit --json` only 0 succeeds, only 1 fails, and no answer is an error."""
    with (ROOT / "integrations" / "kubernetes" / "admit-gate.yml").open() as file:
        gate, _ = pytest.importorskip("ruamel.yaml").YAML(typ="safe").load_all(file)
    (container,) = gate["spec"]["template"]["spec"]["containers"]
    shell, option, script = container["command"]
    answer = "true" if code is None else f"""echo '{{"exit_code": {code}}}'; exit {code}"""
    path = put_on_path(tmp_path / "bin", os.environ["PATH"], gatekeeper=answer, python=f'exec {sys.executable} "$@"')
    port = free_port()
    environment = {**os.environ, "PATH": path, "ANSWERS": str(tmp_path), "PORT": str(port), "EVERY": "60"}
    process = subprocess.Popen(
        [shell, option, script], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        measured = argo_phase(f"http://127.0.0.1:{port}/admit.json")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    assert {variable["name"] for variable in container["env"]} == {"ANSWERS", "PORT", "EVERY"}
    assert phase == measured


def argo_phase(address: str) -> str:
    """Return the phase of a measurement of the template's metric, once the address answers."""
    (metric,) = read(ROOT / "integrations" / "kubernetes" / "analysis-template.yml")["spec"]["metrics"]
    assert "{$.exit_code}" == metric["provider"]["web"]["jsonPath"]
    until(lambda: control_requests.status(address, {}) == 200)
    try:
        result = requests.get(address, timeout=10).json()["exit_code"]
    except ValueError:
        return "Error"
    fulfilled = [metric[f"{kind}Condition"] == f"result == {result}" for kind in ("success", "failure")]
    return {(True, False): "Successful", (False, True): "Failed"}.get(tuple(fulfilled), "Inconclusive")


def test_the_hook_checks_several_files(tmp_path: Path) -> None:
    """The pre-commit hook counts good files, and names file and fault of a bad one, code 2."""
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    project = ProjectFolder(tmp_path, {**os.environ})
    good = str(ROOT / "slos" / "smoke.toml")
    (tmp_path / "bad.toml").write_text("schema = 1\nnam = 'x'\n")
    command = hook["entry"].split()[1:]

    passed = project.run(*command, good, good, code=0)
    refused = project.run(*command, good, "bad.toml", code=2)

    assert passed.out.startswith("2 ")
    assert refused.out.startswith("bad.toml: ")
    assert re.fullmatch(hook["files"], "slos/smoke.toml")


def test_actions_are_pinned_by_commit() -> None:
    """Every action of the workflows and of our own action is named by a commit, with its version beside it."""
    paths = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    uses = [line.strip() for path in paths for line in path.read_text().splitlines() if re.match(r" +(- )?uses:", line)]

    loose = [use for use in uses if not re.fullmatch(r"(- )?uses: (\$/|\S+@[0-9a-f]{40}  # v\d+\.\d+\.\d+)", use)]

    assert len(uses) > 20
    assert [] == loose


def test_release_notes_are_a_section_of_the_changelog(tmp_path: Path) -> None:
    """The notes of a tag are the changelog's section of this version; another tag, or no such section, is refused."""
    tool = runpy.run_path(str(ROOT / "tools" / "release_notes.py"))["notes"]
    version = gatekeeper.__version__
    released = (
        (ROOT / "CHANGELOG.md").read_text().replace(f"## [Unreleased]: {version}", f"## [{version}] - 2026-12-01")
    )
    (tmp_path / "gatekeeper").mkdir()
    (tmp_path / "gatekeeper" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(released)
    tool.__globals__["ROOT"] = tmp_path

    notes = tool(f"v{version}")
    with pytest.raises(SystemExit, match="is not v"):
        tool("v9.9.9")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(SystemExit, match="has no section"):
        tool(f"v{version}")

    assert notes.startswith("The first release.")
    assert "## [" not in notes
