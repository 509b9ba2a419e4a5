"""From a certificate to its watch: what `certify` writes is what `watch` reads, and the run stays what it was."""

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

import tomli_w

from gatekeeper.core.manifest import sha256
from tests.builders.project_folder import ProjectFolder


def test_a_certified_run_is_watched(demo: ProjectFolder) -> None:
    """The policy of a run is watched where it lies; the run is neither touched by that nor taken for tampered with."""
    before = demo.run("admit", "slo.toml", "--run", "run", "--grade", "demo", "--json").document

    ran = demo.run("watch", "run/policy.toml", "--slo", "slo.toml", "--rounds", "90", "--no-host", "--json", code=0)

    live = tomllib.loads((demo.path / "run" / "policy.live.toml").read_text())
    entries = [json.loads(line) for line in ran.out.splitlines()]
    assert "was edited" not in ran.err
    assert {"easy": True, "hard": False} == {route["workload"]: route["speculation"] for route in live["route"]}
    assert ("begun", "look", "ended") == (entries[0]["kind"], entries[-2]["kind"], entries[-1]["kind"])
    guards = entries[-2]["routes"]["easy"]["guards"]
    outcomes = {name.split()[0]: guard[0] for name, guard in guards.items()}
    assert ("pass", "pass") == (outcomes["throughput_ratio"], outcomes["acceptance_rate"])
    assert "fail" not in outcomes.values()
    after = demo.run("admit", "slo.toml", "--run", "run", "--grade", "demo", "--json").document
    assert before["reason"] == after["reason"] != "tampered"


RAISED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "max_concurrency": (lambda policy: policy["route"][0].update(max_concurrency=64), "max_concurrency is above 1"),
    "longest_prompt": (lambda policy: policy["route"][0].update(longest_prompt=10**9), "longest_prompt is above"),
    "temperature": (lambda policy: policy["conditions"].update(sampling={"temperature": 1.0}), "[conditions] or"),
}


def test_a_policy_that_is_edited_in_place_raises_no_limit_of_its_own(demo: ProjectFolder) -> None:
    """What was certified is derived from the records again, wherever the edited policy lies."""
    path = demo.path / "run" / "policy.toml"
    certified = path.read_text()
    sums = path.with_name("SHA256SUMS")
    checksums = sums.read_text()
    watch = ("watch", "run/policy.toml", "--slo", "slo.toml", "--rounds", "1", "--no-host")

    for edit, because in RAISED.values():
        policy = tomllib.loads(certified)
        edit(policy)
        path.write_text(tomli_w.dumps(policy))
        refused = demo.run(*watch, code=2)
        assert because in refused.err
        sums.write_text(re.sub(r"\w{64}(?=  policy.toml)", sha256(path.read_text()), checksums))
        again = demo.run(*watch, code=2)
        assert because in again.err
    edited = tomllib.loads(certified)
    RAISED["max_concurrency"][0](edited)
    path.write_text(tomli_w.dumps(edited))
    sums.write_text(checksums)
    path.rename(demo.path / "moved.toml")
    moved_policy = demo.run("watch", "moved.toml", "--run", "run", *watch[2:], code=2)
    assert RAISED["max_concurrency"][1] in moved_policy.err
    path.write_text(tomli_w.dumps({**tomllib.loads(certified), "guard": []}))
    in_place = demo.run(*watch, code=0)
    path.rename(demo.path / "copy.toml")
    path.write_text(certified)
    copy = demo.run("watch", "copy.toml", "--run", "run", *watch[2:], code=0)
    for begun in (in_place, copy):
        assert "(guard)" in begun.err
    assert [True, False] == ["admit" in begun.err for begun in (in_place, copy)]
    (demo.path / "copy.toml").rename(path)
    (demo.path / "run" / "soak-1.jsonl").unlink()
    demo.run(*watch, code=2)


def test_a_run_whose_policy_and_certificate_are_deleted_allows_what_its_records_show(demo: ProjectFolder) -> None:
    """A copy of the policy is compared with what is derived again; where the records are gone too, it is refused."""
    certified = (demo.path / "run" / "policy.toml").read_text()
    for name in ("policy.toml", "certificate.intoto.json"):
        (demo.path / "run" / name).unlink()
    watch = ("watch", "copy.toml", "--run", "run", "--slo", "slo.toml", "--rounds", "1", "--no-host")
    copy = demo.path / "copy.toml"

    for edit, because in RAISED.values():
        policy = tomllib.loads(certified)
        edit(policy)
        copy.write_text(tomli_w.dumps(policy))
        assert because in demo.run(*watch, code=2).err
    copy.write_text(certified)
    demo.run(*watch, code=0)
    (demo.path / "run" / "soak-1.jsonl").unlink()
    assert "the records do not show" in demo.run(*watch, code=2).err
