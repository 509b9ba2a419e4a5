"""Reading a stored run back: what was frozen in it decides, not what this version would do today."""

import json
from collections.abc import Callable

import pytest

from gatekeeper import host
from tests.builders.project_folder import ProjectFolder
from tests.e2e.conftest import project, scripted

__all__ = ["project", "scripted"]


@pytest.mark.whole
def test_a_run_is_judged_by_the_interval_it_was_sampled_at(
    scripted: Callable[..., ProjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The sampling interval is frozen in the manifest: a later version that samples more often judges the run alike.
    """
    objectives = [
        {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"},
        {"metric": "memory_headroom", "at_least": "1 MB", "why": "the machine must not swap"},
    ]
    here = scripted(objective=objectives)
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 2.0)
    certified = here.run("certify", "slo.toml", "--out", "run", "--json")
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 0.5)

    judged = here.run("judge", "run", "--json")

    assert 2.0 == json.loads((here.path / "run" / "manifest.json").read_text())["sample_interval"]
    assert ["pass"] == [check["outcome"] for check in certified.document["host_checks"]]
    assert (certified.code, certified.out) == (judged.code, judged.out)
