"""The worked example of the README: the real mlx_lm.server, the little pair, and what goes wrong with them."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import tomli_w

from bench import after_promotion
from gatekeeper.backends.models import artifacts
from gatekeeper.core.system.files import HashCache
from tests.builders.deployment import policy_of, write_run

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
    now, path = datetime.now(UTC), tmp_path / "run"
    write_run(
        path,
        {"slo.toml": slo, "profile.toml": profile, "canaries-json.jsonl": canaries},
        now,
        SETTING,
        backend="mlx-server",
        shares_process=False,
        restart_knobs=("draft",),
        target=target,
        drafts=(draft,),
    )
    route = {"workload": "json", "speculation": True, "setting": SETTING}
    policy = {**policy_of(path, now), "slo": "watched", "route": [route], "guard": GUARDS}
    (path / "policy.toml").write_text(tomli_w.dumps(policy))
    return path


@pytest.mark.timeout(600)  # servers that start, and a watch that judges: each has minutes of its own
@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        ("draft", "was started with .*little-draft-bad, which was not certified"),
        ("slow", "decode_throughput: .* tok/s"),
    ],
)
def test_speculation_is_turned_off_while_it_is_watched(tmp_path: Path, run: Path, case: str, pattern: str) -> None:
    """
    If a real server's draft is swapped, or it becomes slow, speculation is turned off, with the reason in the log.
    """
    folder = tmp_path / "watch"
    folder.mkdir()

    _, because = after_promotion.spoil(case, folder, run, 180.0)

    assert re.search(pattern, because), because
