"""One policy for many hosts."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

from gatekeeper.core.policy import Policy
from gatekeeper.fleet.cell_task import CellResult
from gatekeeper.fleet.common_policy import merge_policies, write_common_policies
from tests.builders.fleet import make_fleet_cell
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT

PROMOTED = ROOT / "tests/golden/runs/promoted"
FOUR = {"draft": "d", "num_draft_tokens": 4}
TWO = {"draft": "d", "num_draft_tokens": 2}


def route(name: str, setting: dict[str, Any] | None, ratio: float = 1.5, **limits: Any) -> dict[str, Any]:
    """Return a route of a policy; without a *setting* it decodes plainly."""
    figure = {"center": ratio, "lo": ratio, "hi": ratio, "n": 9}
    return {
        "workload": name, "speculation": setting is not None, "setting": setting or {},
        "measured": {"throughput_ratio": figure}, **limits,
    }  # fmt: skip


def policy(*routes: dict[str, Any], **changes: Any) -> Policy:
    """Return a policy that differs from a stored one in its routes and in *changes*."""
    document = tomllib.loads((PROMOTED / "policy.toml").read_text())
    return Policy.model_validate({**document, "guard": [], "route": routes, **changes})


def test_a_route_holds_where_every_host_proved_the_same_setting() -> None:
    """The same setting everywhere speculates; another one, or plain decoding on a host, does not, with its cost."""
    policies = {
        "a": policy(route("json", FOUR), route("code", FOUR), route("chat", FOUR, 1.9)),
        "b": policy(route("json", FOUR), route("code", TWO), route("chat", None)),
    }

    json, code, chat = merge_policies("s", policies)["route"]

    assert (True, FOUR) == (json["speculation"], json["setting"])
    assert "different settings" in code["because"]
    assert {"a", "b"} == code["cost"].keys()
    assert not chat["speculation"]
    assert "not promoted on b" == chat["because"]
    assert {"a"} == chat["cost"].keys()
    says("fleet", "a route holds where every host proved the same setting", chat["cost"]["a"])


def test_the_strictest_limits_of_all_hosts_hold() -> None:
    """A warm-up that one host needs, the shortest limits, the requests of all and the earliest expiry hold."""
    tools = {"tools": True}
    first = route("json", FOUR, longest_prompt=900, max_concurrency=2, models=["t"], request=[{}, tools])
    second = route(
        "json", FOUR, longest_prompt=800, warm_up=True, warm_up_after=10.0, max_concurrency=4, models=["t"],
        request=[tools],
    )  # fmt: skip
    policies = {
        "a": policy(first, expires="2026-12-01T00:00:00+00:00"),
        "b": policy(second, expires="2026-11-30T23:30:00-02:00"),
    }

    merged = merge_policies("s", policies)

    assert "2026-12-01T00:00:00+00:00" == merged["expires"]
    (common,) = merged["route"]
    limits = ("longest_prompt", "max_concurrency", "warm_up", "warm_up_after")
    assert (800, 2, True, 10.0) == tuple(common[key] for key in limits)
    assert (["t"], [tools]) == (common["models"], common["request"])


def test_a_host_without_proof_refuses_the_policy(tmp_path: Path) -> None:
    """Where one host is open or unproven there is no policy, and none of an earlier fleet stays."""
    run = Path(shutil.copytree(PROMOTED, tmp_path / "run"))
    cells = [
        make_fleet_cell(f"s@{host}", result=CellResult(exit_code=0, outcome="promoted", run=str(run))) for host in "ab"
    ]
    file = tmp_path / "policy-s.toml"

    said = write_common_policies(tmp_path, cells)
    merged = tomllib.loads(file.read_text())
    unproven = make_fleet_cell("s@c", result=CellResult(exit_code=3, error="lost"))
    refused = write_common_policies(tmp_path, [*cells, unproven])

    assert {"s": str(file)} == said
    assert ["a", "b"] == merged["hosts"]
    assert merged["route"][0]["speculation"]
    assert {"s": "none, not proven: s@c"} == refused
    assert not file.exists()
