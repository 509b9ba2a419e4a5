"""Stored runs, written by gatekeeper 0.1.0 or the version in their name, that later versions must judge alike.

tests/golden/make.py says how they were made. A run is judged in a copy; the stored one is never written to.
"""

import json
import shutil
import tomllib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import gatekeeper
from tests.builders.project_folder import Done, ProjectFolder

GOLDEN = Path(__file__).parent / "golden"
ENDS = {
    "promoted": ("promoted", 0),
    "graded_back": ("graded_back", 1),
    "failed": ("failed", 1),
    "unproven": ("unproven", 3),
    "damaged": ("unproven", 3),
    "graded_back_0.2.0": ("graded_back", 1),
    "unproven_0.2.0": ("unproven", 3),
    "promoted_0.3.0": ("promoted", 0),
    "graded_back_0.3.0": ("graded_back", 1),
    "failed_0.3.0": ("failed", 1),
    "unproven_0.3.0": ("unproven", 3),
    "region_0.3.0": ("promoted", 0),
}
"""The outcome and the exit code of each run."""
WITH_POLICY = (
    "promoted",
    "graded_back",
    "failed",
    "graded_back_0.2.0",
    "promoted_0.3.0",
    "graded_back_0.3.0",
    "failed_0.3.0",
    "region_0.3.0",
)
WORDING = frozenset({"because", "why"})
"""Free text, which a later version may word differently."""
ADDED = frozenset({"scope", "population", "conditions", "launch", "longest_prompt"})
"""Keys of a check and of a policy that versions before 0.3.0 did not write."""
BOUNDS = frozenset({"lo", "hi"})
"""Of every interval, and other ones since 0.3.0: bounds for a frozen set hold its canaries fixed."""
PAIRED = "ttft_delta"
"""A change of two medians before 0.3.0, since then of each canary: the figures do not compare."""
FIGURES = ("center", "lo", "hi")
MOVED = 0.03
"""Share by which other figures may differ from those of another version: quantiles now weigh each canary alike, and
guards follow from the bounds."""
each_run = pytest.mark.parametrize("name", ENDS)


class Copies:
    """A folder with a copy of each stored run, which commands read; what they print is read once for all tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ENDS:
            shutil.copytree(GOLDEN / "runs" / name, folder / name)
        self.judged, self.junit, self.policy = cache(self._judged), cache(self._junit), cache(self._policy)

    def _judged(self, name: str) -> Done:
        return ProjectFolder(self.folder, {}).run("judge", name, "--json", code=ENDS[name][1])

    def _junit(self, name: str) -> str:
        return ProjectFolder(self.folder, {}).run("report", name, "--format", "junit", code=0).out

    def _policy(self, name: str) -> str:
        return policy_of(self.folder / name, name)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    return Copies(tmp_path_factory.mktemp("golden"))


def expected(name: str, file: str) -> str:
    return (GOLDEN / "expected" / name / file).read_bytes().decode()


def same_version(name: str, *programs: str) -> bool:
    """Tell whether the running versions of *programs* are those the run was made with."""
    then: dict[str, str] = json.loads((GOLDEN / "runs" / name / "manifest.json").read_text())["versions"]
    now = {"gatekeeper": gatekeeper.__version__, "numpy": np.__version__}
    return all(then[program] == now[program] for program in programs)


def near(name: str, figure: Any) -> Any:
    """Return *figure* to compare with: exactly, or nearly where another numpy or another version is running.

    Bounds are read off 2000 sums of resampled values, and another numpy may round their last bits differently. One that
    draws other samples for the same seed moves them by more than 0.1 %, and that should be noticed.
    """
    if not isinstance(figure, float) or same_version(name, "gatekeeper", "numpy"):
        return figure
    return pytest.approx(figure, rel=1e-3 if same_version(name, "gatekeeper") else MOVED)


def compared(name: str, check: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be alike of a check: all of it but its wording, or what another version has in common."""
    left_out = set(WORDING)
    if not same_version(name, "gatekeeper"):
        left_out |= ADDED | BOUNDS | ({"center"} if check["metric"] == PAIRED else set())
    return {key: value for key, value in check.items() if key not in left_out}


def checks(name: str, document: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return what is compared of every check of a run, beside the workload it belongs to."""
    owned = [(workload["name"], check) for workload in document["workloads"] for check in workload["checks"]]
    owned += [("the host", check) for check in document["host_checks"]]
    return [(owner, compared(name, check)) for owner, check in owned]


def conclusions(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a verdict concludes from its checks, without its wording."""
    run = {key: document[key] for key in ("schema", "slo", "grade", "outcome", "exit_code", "manifest_sha256")}
    workloads = [
        [workload[key] for key in ("name", "outcome", "setting", "speculation")] for workload in document["workloads"]
    ]
    transitions = [
        [transition[key] for key in ("at", "workload", "from", "to")] for transition in document["transitions"]
    ]
    kinds = [finding["kind"] for finding in document["findings"]]
    incomplete = "incomplete" in document
    return run | {"workloads": workloads, "transitions": transitions, "findings": kinds, "incomplete": incomplete}


def cases(junit: str) -> list[tuple[str | None, str | None, list[str]]]:
    """Return the cases of a JUnit file, each with `failure`, `error` or nothing; 0.3.0 writes growth in MB/h."""
    root = ET.fromstring(junit.replace("100 kB/s", "360 MB/h"))  # noqa: S314 (our own output)
    bad = {"failure", "error"}
    return [
        (testcase.get("classname"), testcase.get("name"), [kind.tag for kind in testcase if kind.tag in bad])
        for testcase in root.iter("testcase")
    ]


def policy_of(run: Path, name: str) -> str:
    """Return the text of the policy that a run's records give, issued when the stored one was."""
    from gatekeeper.analysis.verdict.policy.certified_policy import issue_policy  # noqa: PLC0415
    from gatekeeper.core.parse import moment  # noqa: PLC0415
    from gatekeeper.core.slo import parse  # noqa: PLC0415
    from gatekeeper.core.system.inputs import load_manifest  # noqa: PLC0415
    from gatekeeper.core.system.record_files import EVENTS, read_records  # noqa: PLC0415
    from gatekeeper.report.policy_toml import render  # noqa: PLC0415
    from gatekeeper.run.stored.judge import judge  # noqa: PLC0415  these four move; nothing else here knows where they are

    stored = tomllib.loads(expected(name, "policy.toml"))
    content = issue_policy(
        parse((run / "inputs" / "slo.toml").read_text(), "slo.toml"),
        judge(run),
        load_manifest((run / "manifest.json").read_bytes()),
        read_records(run / "events.jsonl", EVENTS).records,
        verdict_sha256=sha256(expected(name, "verdict.json").encode()).hexdigest(),
        issued=moment(stored["issued"]),
    )
    return render(content)


def without_wording(name: str, value: Any) -> Any:
    """Return a parsed policy without its free text, and its figures as `near` has them."""
    if isinstance(value, dict):
        # Until 0.2.0 `warm_up` stood wherever the first token came 8 % later, and nothing read it.
        left_out = WORDING if same_version(name, "gatekeeper") else {*WORDING, *BOUNDS, *ADDED, PAIRED, "warm_up"}
        return {key: without_wording(name, item) for key, item in value.items() if key not in left_out}
    return [without_wording(name, item) for item in value] if isinstance(value, list) else near(name, value)


def test_each_run_ends_as_its_folder_says() -> None:
    """
    The stored runs end in promoted, graded back, failed and unproven; a damaged one is never promoted.
    """
    stored = {path.name: json.loads((path / "verdict.json").read_text()) for path in (GOLDEN / "expected").iterdir()}

    assert {name: (verdict["outcome"], verdict["exit_code"]) for name, verdict in stored.items()} == ENDS
    assert {path.name for path in (GOLDEN / "runs").iterdir()} == set(ENDS)
    assert {path.parent.name for path in GOLDEN.glob("expected/*/policy.toml")} == set(WITH_POLICY)


@each_run
def test_judging_comes_to_the_same_conclusions(copies: Copies, name: str) -> None:
    """
    Judging a stored run gives the exit code, outcomes, settings, transitions and kinds of findings that it gave.
    """
    document = copies.judged(name).document

    assert conclusions(json.loads(expected(name, "verdict.json"))) == conclusions(document)


@each_run
def test_judging_measures_the_same(copies: Copies, name: str) -> None:
    """
    Every check has the metric, bound, threshold, outcome and unit that it had, and the figures that still compare.
    """
    document = copies.judged(name).document

    stored = checks(name, json.loads(expected(name, "verdict.json")))
    expected_checks = [
        (owner, check | {key: near(name, check[key]) for key in FIGURES if key in check}) for owner, check in stored
    ]
    assert expected_checks == checks(name, document)


@each_run
def test_the_junit_file_has_the_same_cases(copies: Copies, name: str) -> None:
    """
    The JUnit file of a stored run has the same cases, and the same ones of them are failures and errors; where a
    workload was graded back, later versions add the objectives that failed while drafting.
    """
    now = cases(copies.junit(name))
    if same_version(name, "gatekeeper"):
        assert cases(expected(name, "junit.xml")) == now
        return

    added = [case for case in now if str(case[1]).endswith(" while drafting")]
    assert cases(expected(name, "junit.xml")) == [case for case in now if case not in added]
    assert (name.startswith("graded_back"), [["failure"]] * len(added)) == (bool(added), [case[2] for case in added])


@pytest.mark.parametrize("name", WITH_POLICY)
def test_the_policy_does_the_same(copies: Copies, name: str) -> None:
    """
    The policy made again from a stored run has the same routes, settings, guards and times; its wording may differ.
    """
    policy = copies.policy(name)

    stored = tomllib.loads(expected(name, "policy.toml"))
    assert without_wording(name, stored) == without_wording(name, tomllib.loads(policy))
    assert datetime.fromisoformat(stored["issued"]) < datetime.fromisoformat(stored["expires"])


@each_run
def test_the_same_version_writes_the_same_bytes(copies: Copies, name: str) -> None:
    """
    With the versions the run was made with, verdict, JUnit file and policy are the stored ones byte for byte.
    """
    if not same_version(name, "gatekeeper", "numpy"):
        pytest.skip("another version of gatekeeper or numpy than the run was made with")

    written = {
        "verdict.json": copies.judged(name).out,
        "junit.xml": copies.junit(name),
    } | ({"policy.toml": copies.policy(name)} if name in WITH_POLICY else {})

    assert {file: expected(name, file) for file in written} == written
