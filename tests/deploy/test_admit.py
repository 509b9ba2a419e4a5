"""The deploy gate and the models on disk: what is hashed is what lies there now."""

import json
import os
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.backends.models import artifacts
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Model
from gatekeeper.core.system import inputs
from gatekeeper.core.system.files import HashCache, user_hash_cache
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.deploy.admit import Requirements, admit
from gatekeeper.run.certify import resume
from gatekeeper.run.open_run import RunRequest
from tests.builders.golden_words import says
from tests.builders.manifest import manifest

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def model(folder: Path, name: str, *, fill: bytes = b"\0") -> Path:
    """Write the smallest folder that counts as a model."""
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"vocab_size": 8}))
    header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + fill * 64)
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An SLO of two models, and a run of it that has frozen them and not ended."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    slo: Mapping[str, Any] = {
        "schema": 1,
        "name": "made",
        "subject": {"backend": "mlx", "target": "big", "drafts": ["little"]},
        "workload": [{"name": "w", "canaries": "w.jsonl"}],
        "sweep": {"num_draft_tokens": [4]},
        "objective": [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}],
    }
    (tmp_path / "w.jsonl").write_text(
        "".join(
            json.dumps({"id": f"w-{at}", "messages": [{"role": "user", "content": "Hi"}]}) + "\n" for at in range(6)
        )
    )
    (tmp_path / "slo.toml").write_text(tomli_w.dumps(slo))
    for name in ("big", "little"):
        model(tmp_path, name)
    run(tmp_path, "run")
    return tmp_path


def run(place: Path, name: str) -> None:
    slo_inputs = inputs.read(place / "slo.toml")
    hashes = HashCache(user_hash_cache())  # as certify does: the cache now knows these files
    folder = place / name
    (folder / "inputs").mkdir(parents=True)
    for file, text in slo_inputs.texts.items():
        (folder / file).write_text(text)
    frozen = manifest(
        slo=slo_inputs.files["slo"],
        target=artifacts.freeze("big", place / "big", hashes),
        drafts=(artifacts.freeze("little", place / "little", hashes),),
        canaries={"w": slo_inputs.files["workload w"]},
        profile=slo_inputs.files["profile"],
        frozen_at="2026-05-01T00:00:00.000000Z",
    )
    (folder / "manifest.json").write_text(frozen.text())


def decide(place: Path) -> tuple[int, str, str]:
    decision = admit(place / "slo.toml", run=place / "run", required=Requirements(), now=NOW)
    return decision.exit_code, decision.reason, decision.because


def test_the_same_models_are_recognised(place: Path) -> None:
    """Untouched models match, so that the next thing is looked at: this run has not ended."""
    assert (3, "unfinished") == decide(place)[:2]


def test_changed_weights_are_refused_whatever_their_time_says(place: Path) -> None:
    """One byte of the weights, of the same size and with the old time set back, is another model; the file is named."""
    path = place / "little" / "model.safetensors"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    code, reason, because = decide(place)

    assert (3, "other_artifacts") == (code, reason)
    says("deploy", "changed weights are refused whatever their time says", because)


def test_a_finished_run_does_not_count_for_other_models(place: Path) -> None:
    """`certify --resume` on a finished run hashes the models again: other weights, or none, are bad input."""
    RunDirectory(place / "run").write_checksums()
    with (place / "little" / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")

    with pytest.raises(InputError) as refused:
        resume(RunRequest(place / "slo.toml", place / "run"))
    says("deploy", "a finished run does not count for other models", refused.value.message)

    (place / "big").rename(place / "moved")
    with pytest.raises(InputError, match="big"):
        resume(RunRequest(place / "slo.toml", place / "run"))


def test_a_missing_model_is_no_proof(place: Path) -> None:
    """Models that are not on this machine cannot be hashed: code 3, although for certify it is code 2."""
    (place / "big").rename(place / "moved")

    code, reason, because = decide(place)

    assert (3, "no_artifacts", True) == (code, reason, "big" in because)


def test_a_truncated_model_is_no_proof(place: Path) -> None:
    """A damaged model is none; nothing is admitted for it."""
    path = place / "big" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    assert (3, "no_artifacts") == decide(place)[:2]


def test_exchanged_models_are_refused(place: Path) -> None:
    """Each model has its own place: the same two digests the other way round are another pair."""
    (place / "run" / "manifest.json").unlink()
    (place / "big" / "model.safetensors").unlink()
    (place / "big").rename(place / "old")
    model(place, "big", fill=b"\1")
    for file in (place / "run" / "inputs").iterdir():
        file.unlink()
    (place / "run" / "inputs").rmdir()
    run(place, "run")
    document = json.loads((place / "run" / "manifest.json").read_text())
    document["target"], document["drafts"] = document["drafts"][0], [document["target"]]
    (place / "run" / "manifest.json").write_text(json.dumps(document))

    assert (3, "other_artifacts") == decide(place)[:2]


def test_a_remembered_digest_is_not_believed(place: Path) -> None:
    """Without a place to remember anything the cache reads every byte, and writes nothing."""
    path = place / "big" / "model.safetensors"
    fresh = HashCache(None)
    first = fresh.sha256(path)
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert first != fresh.sha256(path)
    frozen: Model = artifacts.freeze("big", place / "big", fresh)
    assert frozen.files["model.safetensors"] == fresh.sha256(path)
