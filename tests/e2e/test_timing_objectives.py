"""Whole runs with `from = "timing"`: the real mlx_lm.server behind the bare protocol, where it reports nothing."""

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gatekeeper.analysis.metrics.timed_rounds import TIMING_NOTE
from gatekeeper.analysis.metrics.timing import acceptance_length
from gatekeeper.backends import open_backend
from gatekeeper.core import canary
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.records import setting
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.verdict import UNSEEN
from tests.builders.project_folder import ROOT, ProjectFolder

pytestmark = [pytest.mark.mlx, pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(600)]

TARGET, DRAFT = (str(ROOT / "models" / name) for name in ("little-target", "little-draft"))
SERVED = (sys.executable, "-m", "mlx_lm", "server", "--model", "{target}")
DRAFTED = ("--draft-model", "{draft}", "--num-draft-tokens", "{num_draft_tokens}")
LENGTH, TOKENS = 4, 96


def soaked(project: ProjectFolder, *relay: str) -> dict[str, Any]:
    """Soak the server, behind a relay if one is given; return the check of the acceptance length."""
    port = ("--port", "{inner}" if relay else "{port}")
    project.write_slo(
        {
            "schema": 1,
            "name": "timing",
            "subject": {
                "backend": "openai",
                "target": TARGET,
                "drafts": [DRAFT],
                "command": [*relay, *SERVED, *DRAFTED, *port],
                "plain_command": [*relay, *SERVED, *port],
            },
            "sampling": {"max_tokens": TOKENS},
            "workload": [{"name": "json", "canaries": "little/json", "first": 8}],
            "sweep": {"repeats": 1, "budget": 6, "num_draft_tokens": [LENGTH]},
            "soak": {"duration": "6 s", "max_duration": "60 s", "sentinel_share": 0.5, "sentinel_drift": 0.9},
            "objective": [{"metric": "acceptance_length", "at_least": 1.2, "from": "timing", "why": "a test"}],
        }
    )
    project.run("soak", "slo.toml", "--set", f"num_draft_tokens={LENGTH}", "--out", "run")
    (workload,) = project.run("judge", "run", "--json").document["workloads"]
    (acceptance_check,) = (check for check in workload["checks"] if check["metric"] == "acceptance_length")
    return dict(acceptance_check)


def counted(tmp_path: Path) -> float:
    """Return the tokens a round that the mlx worker counts on the same canaries."""
    which = setting(draft=DRAFT, num_draft_tokens=LENGTH)
    canaries = canary.parse((ROOT / "canaries" / "little" / "json.jsonl").read_text(), "json")[:8]
    subject = Subject.model_validate({"backend": "mlx", "target": TARGET, "drafts": [DRAFT]})
    models = {TARGET: Path(TARGET), DRAFT: Path(DRAFT)}
    system = open_backend(subject, models=models, base=ROOT, logs=tmp_path).start(which)
    try:
        lengths = [
            acceptance_length(system.answer(DecodeRequest(prompt, which, SamplingParameters(max_tokens=TOKENS))))
            for prompt in canaries
        ]
    finally:
        system.close()
    return fmean(length for length in lengths if length is not None)


def test_the_timing_of_a_real_server_shows_its_acceptance(project: ProjectFolder, tmp_path: Path) -> None:
    """
    The interval from the timing of bursts holds the length that the same pair has where rounds are counted; on a
    machine that is too busy to see rounds it is unproven, with the reason.
    """
    check = soaked(project)

    if check["lo"] is None:
        assert UNSEEN in check["because"]
    else:
        truth = counted(tmp_path)
        assert TIMING_NOTE in check["because"]
        assert ("pass", True) == (check["outcome"], 0.97 * check["lo"] <= truth <= 1.03 * check["hi"])


def test_a_real_server_that_buffers_is_refused(project: ProjectFolder) -> None:
    """
    Behind a relay that sends what has gathered each 100 ms, plain decoding comes in bursts too: unproven, and said so.
    """
    check = soaked(project, sys.executable, str(ROOT / "tests" / "builders" / "buffering_relay.py"), "{port}")

    assert ("unproven", None) == (check["outcome"], check["lo"])
    assert f"rounds {UNSEEN}" in check["because"]
    assert "buffers" in check["because"]
