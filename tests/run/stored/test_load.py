"""Reading a stored run back: what was frozen in it decides, not what this version would do today."""

import json
from collections.abc import Callable

import pytest

from gatekeeper import host
from gatekeeper.core.records import Event, EventKind
from gatekeeper.run.stored.load import FIRST, SWEEP, busy_findings
from tests.builders.project_folder import ProjectFolder
from tests.e2e.conftest import project, scripted

__all__ = ["project", "scripted"]


@pytest.mark.whole
def test_a_run_is_judged_by_the_interval_it_was_sampled_at(
    scripted: Callable[..., ProjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampling interval is frozen in the manifest: a later version that samples more often judges the run alike."""
    objectives = [
        {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"},
        {"metric": "memory_headroom", "at_least": "1 MB", "why": "the machine must not swap"},
    ]
    folder = scripted(objective=objectives)
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 2.0)
    certified = folder.run("certify", "slo.toml", "--out", "run", "--json")
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 0.5)

    judged = folder.run("judge", "run", "--json")

    assert 2.0 == json.loads((folder.path / "run" / "manifest.json").read_text())["sample_interval"]
    assert ["pass"] == [check["outcome"] for check in certified.document["host_checks"]]
    assert (certified.code, certified.out) == (judged.code, judged.out)


def test_what_was_used_during_a_stage_counts_and_not_the_look_before_it() -> None:
    """A stage has at most one finding, of its busiest segment; of a killed one the look before."""
    looks = [
        {"before": FIRST, "because": "a", "cores": 2.0},
        {"during": SWEEP, "because": "b", "cores": 1.5, "busy": True},
        {"during": SWEEP, "because": "c", "cores": 0.9, "busy": True},
        {"before": "soak-1", "because": "d", "cores": 2.0},
        {"during": "soak-1", "because": "e", "cores": 0.1, "busy": False},
        {"before": "soak-2", "because": "f", "cores": 1.0},
    ]

    findings = busy_findings([Event("2026-11-25T12:00:00.000000Z", EventKind.BUSY, look) for look in looks])

    assert [("during the sweep", "b"), ("before soak-2", "f")] == [(item.about, item.detail) for item in findings]
