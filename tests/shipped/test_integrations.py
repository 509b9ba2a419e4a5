"""Files for other systems: CI, Kubernetes, Prometheus, Grafana, releases; each says what gatekeeper does."""

import json
import os
import re
import runpy
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gatekeeper
from gatekeeper.core.errors import ExitCode
from gatekeeper.deploy.watch import textfile
from gatekeeper.deploy.watch.overlay import Overlay, OverlayRoute
from tests.builders.place import ROOT, Place

PROMETHEUS = ROOT / "integrations" / "prometheus"
YAML = [
    *sorted((ROOT / "integrations").rglob("*.yml")),
    ROOT / ".pre-commit-hooks.yaml",
    ROOT / ".github" / "dependabot.yml",
]
AT = datetime(2026, 11, 22, tzinfo=UTC)
STATE = Overlay("m4", "", "", AT, AT, (OverlayRoute('a "b"', True, ""), OverlayRoute("c", False, "")))


def read(path: Path) -> Any:
    return pytest.importorskip("ruamel.yaml").YAML(typ="safe").load(path.read_text("utf-8"))


def promtool(*words: str, given: str | None = None, cwd: Path = PROMETHEUS) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool (Debian: prometheus)")
    ran = subprocess.run(
        [program, *words], input=given, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == ran.returncode, ran.stdout + ran.stderr


def test_the_textfile_is_what_the_node_exporter_reads(tmp_path: Path) -> None:
    """
    Every metric has its help and type, labels are escaped, promtool accepts it, and a file is replaced whole.
    """
    text = textfile.render(STATE, AT)
    fault = textfile.write(tmp_path, STATE, AT)
    lost = textfile.write(tmp_path / "nowhere", STATE, AT)

    assert 'gatekeeper_watch_speculation{slo="m4",workload="a \\"b\\""} 1\n' in text
    assert 'gatekeeper_watch_speculation{slo="m4",workload="c"} 0\n' in text
    assert (None, text) == (fault, (tmp_path / "gatekeeper-m4.prom").read_text())
    assert "No such file or directory" in str(lost)
    promtool("check", "metrics", given=text)


def test_the_alert_rules_fire_as_they_say() -> None:
    """
    Promtool accepts the rules and their tests.
    """
    promtool("check", "rules", "gatekeeper.rules.yml")
    promtool("test", "rules", "gatekeeper.test.yml")


def test_rules_and_dashboard_name_metrics_that_are_written() -> None:
    """
    Every name in an expression is a metric of the textfile, and each alert links to a section of its runbook.
    """
    rules = [one for group in read(PROMETHEUS / "gatekeeper.rules.yml")["groups"] for one in group["rules"]]
    board = json.loads((PROMETHEUS / "grafana-dashboard.json").read_text())
    expressions = [one["expr"] for one in rules] + [one["targets"][0]["expr"] for one in board["panels"]]
    runbook = (ROOT / "docs" / "alerts.md").read_text()
    sections = {head.lower().replace(" ", "-") for head in re.findall(r"^## (.+)$", runbook, re.MULTILINE)}

    named = {name for one in expressions for name in re.findall(r"gatekeeper_watch_(\w+)", one)}

    assert set(textfile.METRICS) == named
    assert sections == {one["annotations"]["runbook_url"].partition("docs/alerts.md#")[2] for one in rules}


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_files_are_yaml(path: Path) -> None:
    """
    Each file is read as YAML, and what it runs are commands that gatekeeper has.
    """
    assert read(path)

    known = set(re.findall(r"^## (\S+)$", (ROOT / "docs" / "reference" / "commands.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"gatekeeper-slo gatekeeper (\w+)", path.read_text())) <= known


def test_unproven_is_inconclusive_for_argo() -> None:
    """
    Only exit code 0 succeeds and only 1 fails; any other answer fulfils neither condition.
    """
    (metric,) = read(ROOT / "integrations" / "kubernetes" / "analysis-template.yml")["spec"]["metrics"]

    said = {code: (code == 0, code == 1) for code in ExitCode}

    assert ("result == 0", "result == 1") == (metric["successCondition"], metric["failureCondition"])
    assert "{$.exit_code}" == metric["provider"]["web"]["jsonPath"]
    assert (False, False) == said[ExitCode.UNPROVEN]


def test_the_hook_checks_several_files(tmp_path: Path) -> None:
    """
    The pre-commit hook's command passes good files silently, and names file and fault of a bad one, code 2.
    """
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    place = Place(tmp_path, {**os.environ})
    good = str(ROOT / "slos" / "smoke.toml")
    (tmp_path / "bad.toml").write_text("schema = 1\nnam = 'x'\n")
    command = hook["entry"].split()[1:]

    silent = place.run(*command, good, good, code=0)
    refused = place.run(*command, good, "bad.toml", code=2)

    assert "" == silent.out
    assert refused.out.startswith("bad.toml: ")
    assert re.fullmatch(hook["files"], "slos/smoke.toml")


def test_actions_are_pinned_by_commit() -> None:
    """
    Every action of the workflows and of our own action is named by a commit, with its version beside it.
    """
    paths = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    uses = [line.strip() for path in paths for line in path.read_text().splitlines() if re.match(r" +(- )?uses:", line)]

    loose = [one for one in uses if not re.fullmatch(r"(- )?uses: (\$/|\S+@[0-9a-f]{40}  # v\d+\.\d+\.\d+)", one)]

    assert len(uses) > 20
    assert [] == loose


def test_release_notes_are_a_section_of_the_changelog(tmp_path: Path) -> None:
    """
    The notes of a tag are the changelog's section of this version; another tag, or no such section, is refused.
    """
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

    assert notes.startswith("### Added")
    assert "## [" not in notes


def test_image_and_formula_install_from_the_lock() -> None:
    """
    Both take every library by its hash, and the image runs without root.
    """
    image, formula = (ROOT / "Containerfile").read_text(), (ROOT / "Formula" / "gatekeeper-slo.rb").read_text()

    assert all("--require-hashes" in one and "pylock.toml" in one for one in (image, formula.replace('", "', " ")))
    assert "USER 10001" in image
