"""The worked example of the README: the real mlx_lm.server, the little pair, and what goes wrong with them."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import tomli_w

from bench import after_promotion
from gatekeeper.backends.models import artifacts
from gatekeeper.core.clock import stamp
from gatekeeper.core.files import HashCache
from gatekeeper.core.manifest import File, Manifest, sha256

pytestmark = [pytest.mark.mlx, pytest.mark.alone]

ROOT = Path(__file__).parents[3]
SETTING = {"draft": "../models/little-draft", "num_draft_tokens": 3}
GUARDS = [
    {"metric": "acceptance_rate", "at_least": 0.5, "for": 2.0, "why": "wrong every other time is the wrong draft"},
    {"metric": "decode_throughput", "at_least": 1.0, "for": 2.0, "why": "slower than a person reads"},
    {"metric": "error_rate", "at_most": 0.5, "for": 2.0},
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of bench/watched.toml as it stands after a promotion: the certify before it takes most of a minute."""
    slo = (ROOT / "bench" / "watched.toml").read_text()
    canaries = (ROOT / "canaries" / "little" / "json.jsonl").read_text()
    profile = (ROOT / "soak" / "profiles" / "steady.toml").read_text()
    hashes = HashCache(None)
    names = ("../models/little-target", "../models/little-draft")
    target, draft = (artifacts.freeze(name, ROOT / "bench" / name, hashes) for name in names)
    manifest = Manifest(
        slo=File(name="watched.toml", sha256=sha256(slo)),
        backend="mlx-server",
        shares_process=False,
        streams=1,
        restart_knobs=("draft",),
        sight=(),
        target=target,
        drafts=(draft,),
        sampling={},
        canaries={"json": File(name="json.jsonl", sha256=sha256(canaries), count=12)},
        profile=File(name="steady.toml", sha256=sha256(profile)),
        versions={},
        host={},
        frozen_at=stamp(datetime.now(UTC)),
    )
    path = tmp_path / "run"
    (path / "inputs").mkdir(parents=True)
    (path / "inputs" / "slo.toml").write_text(slo)
    (path / "inputs" / "profile.toml").write_text(profile)
    (path / "inputs" / "canaries-json.jsonl").write_text(canaries)
    (path / "manifest.json").write_text(manifest.text())
    (path / "events.jsonl").write_text(json.dumps({"at": stamp(datetime.now(UTC))}) + "\n")
    workload = {"name": "json", "outcome": "promoted", "setting": SETTING}
    (path / "verdict.json").write_text(json.dumps({"schema": 1, "workloads": [workload]}))
    now = datetime.now(UTC)
    policy = {
        "schema": 1,
        "slo": "watched",
        "grade": "demo",
        "manifest_sha256": sha256(manifest.text()),
        "verdict_sha256": sha256((path / "verdict.json").read_bytes()),
        "issued": stamp(now),
        "expires": stamp(now + timedelta(days=30)),
        "route": [{"workload": "json", "speculation": True, "setting": SETTING}],
        "guard": GUARDS,
    }
    (path / "policy.toml").write_text(tomli_w.dumps(policy))
    return path


@pytest.mark.timeout(600)  # servers that start, and a watch that judges: each has minutes of its own
@pytest.mark.parametrize(
    ("case", "says"),
    [("draft", "was started with .*little-draft-bad, which has the digest"), ("slow", "decode_throughput: .* tok/s")],
)
def test_speculation_is_turned_off_while_it_is_watched(tmp_path: Path, run: Path, case: str, says: str) -> None:
    """
    A real server whose draft is swapped, or that becomes slow, is turned off while it is watched, and the log says why.
    """
    folder = tmp_path / "watch"
    folder.mkdir()

    _, because = after_promotion.spoil(case, folder, run, 180.0)

    assert re.search(says, because), because
