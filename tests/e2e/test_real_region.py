"""A certified region of the real little pair: what it says is what the records show."""

import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.policy import parse
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.place import ROOT, Place
from tests.builders.proxy_process import proxied, served_pair
from tests.builders.real_pair import certified_as, records
from tests.e2e.conftest import place as place_in

pytestmark = [pytest.mark.mlx, pytest.mark.nightly, pytest.mark.timeout(1800)]  # minutes each

LEAST_ACCEPTANCE = 0.7


def explored(place: Place, *, ratio: str = "throughput_ratio", **changes: Mapping[str, Any]) -> Place:
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
    place.write_slo(slo)
    certified_as(place, {"code": "promoted"})
    return place


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place: Place = place_in.__wrapped__(tmp_path_factory.mktemp("region"))  # type: ignore[attr-defined]
    return explored(place)


def region_of(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = place.verdict()["workloads"][0]["region"]
    return found


def measured(place: Place, point: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the records of a point, warm-ups left out."""
    name = "_".join(f"{axis}-{value:g}" for axis, value in sorted(point.items()))
    file = records(place.path / "run" / "region.jsonl")
    return [one for one in file if one["trial"] == name and one["role"] == "measured"]


def drafted(some: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["answer"] for one in some if one["arm"] == "candidate"]


def acceptance(some: list[dict[str, Any]]) -> float:
    rounds = [one["rounds"] for one in drafted(some)]
    accepted, proposed = (sum(int(one[name]) for one in rounds) for name in ("accepted", "drafted"))
    return accepted / proposed


def check_inside(place: Place) -> set[str]:
    """Compare every point inside with its own records; return the axes on which there is one."""
    axes = set[str]()
    for point in region_of(place)["points"]:
        mine = measured(place, point["point"])
        assert point["answers"] == len(mine)
        if point["outcome"] == "inside":
            assert {"pass"} == {one["outcome"] for one in point["checks"]}
            assert len(mine) >= 16
            assert not any(one["answer"]["fault"] for one in mine)
            assert acceptance(mine) > LEAST_ACCEPTANCE
            axes |= set(point["point"])
    return axes


def check_bounds(place: Place) -> None:
    """Compare the policy's bounds with the outermost point inside, and what it decides with both sides of it."""
    region = region_of(place)
    route = parse((place.path / "run" / "policy.toml").read_text(), "policy.toml").route_of("code").region
    assert route is not None
    certified = {axis["axis"]: axis["certified"] for axis in region["axes"]}
    for axis in region["axes"]:
        name, values = axis["axis"], axis["values"]
        inside = [one["value"] for one in values if one["outcome"] == "inside"]
        most = max([axis["certified"], *inside])
        assert most == route.axes[name].at_most
        assert route.beyond({**certified, name: most}) is None
        for beyond in (one["value"] for one in values if one["outcome"] in {"outside", "open"}):
            assert route.beyond({**certified, name: beyond}) is not None


def test_the_region_of_the_little_pair_is_what_its_answers_show(certified: Place) -> None:
    """
    Temperature 2 is outside, as the draft is hardly ever right there; a context that the pair never learned is not
    inside; a limit that no answer reached is open; each point inside has all objectives proven on answers of its own.
    """
    region = region_of(certified)
    outcomes = {(axis["axis"], one["value"]): one["outcome"] for axis in region["axes"] for one in axis["values"]}
    because = {json.dumps(one["point"]): one["because"] for one in region["points"]}

    assert {"temperature", "max_tokens"} <= check_inside(certified)
    check_bounds(certified)
    assert "outside" == outcomes["temperature", 2.0]
    assert acceptance(measured(certified, {"temperature": 2.0})) < LEAST_ACCEPTANCE
    assert outcomes["context", 128] in {"outside", "open"}
    assert acceptance(measured(certified, {"context": 128})) < LEAST_ACCEPTANCE
    assert "open" == outcomes["max_tokens", 192]
    assert "the limit was not tried" in because['{"max_tokens": 192}']
    longest = max(one["output_tokens"] for one in drafted(measured(certified, {"max_tokens": 192})))
    assert 64 < longest < 192


def test_its_policy_is_admitted_and_a_wider_one_is_not(certified: Place, tmp_path: Path) -> None:
    """
    `judge` derives the same region from the records, `explain` and the page draw it, `admit` accepts the policy, and
    refuses a copy that reaches one temperature further.
    """
    run = certified.path / "run"

    assert (run / "verdict.json").read_text() == certified.run("judge", "run", "--json", code=0).out
    drawn = certified.run("explain", "run", code=0).out
    assert "outside at temperature 2: " in drawn
    assert "Certified region" in (run / "report.html").read_text()
    certified.run("admit", "slo.toml", "--run", "run", "--grade", "demo", code=0)
    wider = tmp_path / "wider"
    shutil.copytree(run, wider)
    text = (run / "policy.toml").read_text()
    most = region_of(certified)["axes"][0]["at_most"]
    assert f"at_most = {most}," in text
    (wider / "policy.toml").write_text(text.replace(f"at_most = {most},", "at_most = 2.0,", 1))
    RunDirectory(wider).write_checksums()
    refused = certified.run("admit", "slo.toml", "--run", str(wider), "--grade", "demo", code=3)
    assert "policy.toml does not match the verdict" in refused.out + refused.err


REQUESTS: list[tuple[dict[str, Any], str | None]] = [
    ({"temperature": 0.0, "max_tokens": 32}, None),
    ({"temperature": 0.7, "max_tokens": 32}, None),
    ({"temperature": 2.0, "max_tokens": 32}, "temperature 2"),
    ({"temperature": 0.0, "max_tokens": 500}, "max_tokens 500"),
    ({"max_tokens": 32}, "temperature"),
]
"""What is sent to the proxy, and what its reason names where it may not speculate."""


def test_a_proxy_obeys_the_region_of_the_real_server(place: Place) -> None:
    """
    The region of the real mlx_lm.server, certified, then obeyed: requests inside speculate, those outside, and those
    that do not state their temperature, are answered by plain decoding, with the axis in the reason.
    """
    small = {"temperature": [0.0, 0.7, 2.0], "context": [], "max_tokens": [64], "canaries": 12, "repeats": 2}
    # Its chunks come in bunches from a busy machine, so the speed between them says nothing.
    explored(place, ratio="answer_throughput_ratio", subject={"backend": "mlx-server"}, region=small)
    run = place.path / "run"
    canary = json.loads((ROOT / "canaries" / "little" / "code.jsonl").read_text().splitlines()[0])

    assert "temperature" in check_inside(place)
    check_bounds(place)
    with served_pair(run) as pair, proxied(pair, slo=place.path / "slo.toml"):
        for body, _ in REQUESTS:
            pair.ask({"messages": canary["messages"], **body}, x_gatekeeper_workload="code")
        seen = pair.wait_for(len(REQUESTS))

    assert [why is None for _, why in REQUESTS] == [one["arm"] is not None for one in seen]
    for (_, why), one in zip(REQUESTS, seen, strict=True):
        assert (why or "") in one["because"]
