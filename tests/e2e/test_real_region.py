"""A certified region of the real little pair: what it says is what the records show."""

import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.policy import parse
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import ROOT, ProjectFolder, project_folder
from tests.builders.proxy_process import proxied, served_pair
from tests.builders.real_pair import TIMES, certified_as, records

pytestmark = [pytest.mark.mlx, pytest.mark.nightly, pytest.mark.timeout(1800)]  # minutes each

LEAST_ACCEPTANCE = 0.7


def explored(project: ProjectFolder, *, ratio: str = "throughput_ratio", **changes: Mapping[str, Any]) -> ProjectFolder:
    """
    Certify slos/quickstart-region.toml with absolute paths, a *ratio* that any machine has, and *changes* by table.
    """
    slo = tomllib.loads((ROOT / "slos" / "quickstart-region.toml").read_text())
    models = {name: str(ROOT / "models" / name) for name in ("little-target", "little-draft")}
    slo["subject"] |= {"target": models["little-target"], "drafts": [models["little-draft"]]}
    slo["soak"] |= {"sentinel_drift": 0.99}
    slo["objective"][0] |= {"metric": ratio, "at_least": 0.4}
    for name, table in changes.items():
        slo[name] |= table
    project.write_slo(slo)
    certified_as(project, {"code": "promoted"})
    return project


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    project = project_folder(tmp_path_factory.mktemp("region"))
    return explored(project)


def region_of(project: ProjectFolder) -> dict[str, Any]:
    region: dict[str, Any] = project.verdict()["workloads"][0]["region"]
    return region


def measured(project: ProjectFolder, point: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the records of a point, warm-ups left out."""
    name = "_".join(f"{axis}-{value:g}" for axis, value in sorted(point.items()))
    file = records(project.path / "run" / "region.jsonl")
    return [record for record in file if record["trial"] == name and record["role"] == "measured"]


def drafted(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record["answer"] for record in answers if record["arm"] == "candidate"]


def acceptance(answers: list[dict[str, Any]]) -> float:
    rounds = [answer["rounds"] for answer in drafted(answers)]
    accepted, proposed = (sum(int(counts[name]) for counts in rounds) for name in ("accepted", "drafted"))
    return accepted / proposed


def check_inside(project: ProjectFolder) -> None:
    """Compare every point inside with its own records."""
    for point in region_of(project)["points"]:
        answers = measured(project, point["point"])
        assert point["answers"] == len(answers)
        if point["outcome"] == "inside":
            assert {"pass"} == {check["outcome"] for check in point["checks"]}
            assert len(answers) >= 16
            assert not any(record["answer"]["fault"] for record in answers)
            assert acceptance(answers) > LEAST_ACCEPTANCE


def inside_but_for_time(point: Mapping[str, Any]) -> bool:
    """Tell whether a point is inside, or nothing but the speed, which a busy machine decides, left it open."""
    lost = {check["metric"] for check in point["checks"] if check["outcome"] != "pass"}
    return point["outcome"] == "inside" or (point["outcome"] == "open" and lost <= TIMES)


def check_bounds(project: ProjectFolder) -> None:
    """Compare the policy's bounds with the outermost point inside, and what it decides with both sides of it."""
    region = region_of(project)
    route = parse((project.path / "run" / "policy.toml").read_text(), "policy.toml").route_of("code").region
    assert route is not None
    certified = {axis["axis"]: axis["certified"] for axis in region["axes"]}
    for axis in region["axes"]:
        name, values = axis["axis"], axis["values"]
        inside = [value["value"] for value in values if value["outcome"] == "inside"]
        most = max([axis["certified"], *inside])
        assert most == route.axes[name].at_most
        assert route.beyond({**certified, name: most}) is None
        for beyond in (value["value"] for value in values if value["outcome"] in {"outside", "open"}):
            assert route.beyond({**certified, name: beyond}) is not None


def test_the_region_of_the_little_pair_is_what_its_answers_show(certified: ProjectFolder) -> None:
    """
    Temperature 2 is outside, as the draft is hardly ever right there, and so is a context that the pair never learned;
    a limit that no answer reached is open; each point inside has all objectives proven on answers of its own.

    On a busy machine an unsteady speed leaves points open, and those behind them are not probed.
    """
    region = region_of(certified)
    point_by_name = {json.dumps(point["point"]): point for point in region["points"]}
    hot, long, far = (
        point_by_name.get(point) for point in ('{"temperature": 2.0}', '{"context": 128}', '{"max_tokens": 192}')
    )

    check_inside(certified)
    check_bounds(certified)
    for point in ('{"temperature": 0.7}', '{"max_tokens": 64}'):
        assert inside_but_for_time(point_by_name[point])
    assert long is not None
    for outside in filter(None, (hot, long)):
        assert "inside" != outside["outcome"]
        assert acceptance(measured(certified, outside["point"])) < LEAST_ACCEPTANCE
    if far is not None:
        assert "open" == far["outcome"]
        assert "the limit was not tried" in far["because"]
        assert 64 < max(answer["output_tokens"] for answer in drafted(measured(certified, far["point"]))) < 192


def test_its_policy_is_admitted_and_a_wider_one_is_not(certified: ProjectFolder, tmp_path: Path) -> None:
    """
    `judge` derives the same region from the records, `explain` and the page draw it, `admit` accepts the policy, and
    refuses a copy that reaches further.
    """
    run = certified.path / "run"

    assert (run / "verdict.json").read_text() == certified.run("judge", "run", "--json", code=0).out
    drawn = certified.run("explain", "run", code=0).out
    assert "Certified region of code" in drawn
    assert "at context 128: " in drawn
    assert "Certified region" in (run / "report.html").read_text()
    certified.run("admit", "slo.toml", "--run", "run", "--grade", "demo", code=0)
    wider = tmp_path / "wider"
    shutil.copytree(run, wider)
    text = (run / "policy.toml").read_text()
    edited, times = re.subn(r"(temperature = {.*?, at_most = )[\d.]+", r"\g<1>2.0", text, count=1)
    assert 1 == times
    (wider / "policy.toml").write_text(edited)
    RunDirectory(wider).write_checksums()
    refused = certified.run("admit", "slo.toml", "--run", str(wider), "--grade", "demo", "--json", code=3).document
    assert ("tampered", True) == (refused["reason"], "policy.toml" in refused["because"])


REQUESTS: list[tuple[dict[str, Any], str | None]] = [
    ({"temperature": 0.0, "max_tokens": 32}, None),
    ({"temperature": 2.0, "max_tokens": 32}, "temperature 2"),
    ({"temperature": 0.0, "max_tokens": 500}, "max_tokens 500"),
    ({"max_tokens": 32}, "temperature"),
]
"""What is sent to the proxy, and what its reason names where it may not speculate."""


def test_a_proxy_obeys_the_region_of_the_real_server(project: ProjectFolder) -> None:
    """
    The region of the real mlx_lm.server, certified, then obeyed: requests inside speculate, those outside, and those
    that do not state their temperature, are answered by plain decoding, with the axis in the reason.
    """
    small = {"temperature": [0.0, 0.7, 2.0], "context": [], "max_tokens": [64], "canaries": 12, "repeats": 2}
    # Its chunks come in bunches from a busy machine, so the speed between them says nothing.
    explored(project, ratio="answer_throughput_ratio", subject={"backend": "mlx-server"}, region=small)
    run = project.path / "run"
    canary = json.loads((ROOT / "canaries" / "little" / "code.jsonl").read_text().splitlines()[0])

    check_inside(project)
    check_bounds(project)
    most = region_of(project)["axes"][0]["at_most"]
    requests = [({"temperature": most, "max_tokens": 32}, None), *REQUESTS]
    assert inside_but_for_time(region_of(project)["points"][0])
    assert most < 2.0
    with served_pair(run) as pair, proxied(pair, slo=project.path / "slo.toml"):
        for body, _ in requests:
            pair.ask({"messages": canary["messages"], **body}, x_gatekeeper_workload="code")
        records_written = pair.wait_for(len(requests))

    assert [why is None for _, why in requests] == [record["arm"] is not None for record in records_written]
    for (_, why), record in zip(requests, records_written, strict=True):
        assert (why or "") in record["because"]
