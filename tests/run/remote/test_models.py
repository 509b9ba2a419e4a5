"""Models on another machine: shipped once by their digest, found where the hosts file says, and never another one."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.builders.place import ROOT, canary_lines
from tests.run.remote.conftest import Pair

Make = Callable[..., Pair]


@pytest.fixture
def echo(pair: Make) -> Pair:
    """The manual's worker with a target and a draft that lie beside the SLO here; the other machine has neither."""
    made = pair()
    path = made.place.path
    shutil.copy(ROOT / "tests/backends/example_worker.py", path / "my_worker.py")
    for name, source in (("target", "little-draft"), ("draft", "little-draft-lite")):
        shutil.copytree(ROOT / "models" / source, path / "models" / name)
    canaries = [json.loads(line) for line in canary_lines("line", 8).splitlines()]
    for canary in canaries:
        canary["messages"][0]["content"] = canary["expect"]["equals"]
    (path / "lines.jsonl").write_text("".join(json.dumps(canary) + "\n" for canary in canaries))
    made.place.write_slo(
        {
            "schema": 1,
            "name": "echo",
            "subject": {
                "backend": "worker",
                "target": "models/target",
                "drafts": ["models/draft"],
                "command": ["python3", "my_worker.py", "{target}", "{draft}"],
            },
            "workload": [{"name": "lines", "canaries": "lines.jsonl"}],
            "sweep": {"repeats": 1, "budget": 6, "num_draft_tokens": [1, 2]},
            "objective": [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}],
        }
    )
    return made


def say_where(made: Pair, **models: str) -> None:
    """Write into the hosts file where models lie over there."""
    path = made.place.path / "soak/hosts.toml"
    document: dict[str, Any] = tomllib.loads(path.read_text())
    document["host"]["far"]["models"] = {f"models/{name}": place for name, place in models.items()}
    path.write_text(tomli_w.dumps(document))


SWEEP = ("remote", "sweep", "slo.toml", "--on", "far")


def test_a_model_that_is_not_there_is_named_before_anything_runs(echo: Pair) -> None:
    """
    Exit 3 with each missing model and how it gets there; nothing is left behind.
    """
    done = echo.place.run(*SWEEP, code=3)

    assert "model models/target: it is not there" in done.err
    assert "model models/draft: it is not there" in done.err
    assert "--ship-models" in done.err
    assert [] == list(echo.jobs.iterdir())
    assert [] == echo.ledger()


def test_models_are_shipped_once(echo: Pair) -> None:
    """
    --ship-models copies each file by its digest; the next run finds them there and needs to send nothing.
    """
    first = echo.place.run(*SWEEP, "--ship-models", "--json", code=0)
    second = echo.place.run(*SWEEP, "--json", code=0)

    shelves = [one for one in (echo.server.state / "models").iterdir() if one.is_dir()]
    weights = echo.place.path / "models/target/model.safetensors"
    assert 2 == len(shelves)
    assert weights.read_bytes() in [(one / "model.safetensors").read_bytes() for one in shelves]
    assert "sending" in first.err
    assert "sending" not in second.err
    assert {"lines"} == set(first.document["workloads"])
    assert "draft" in json.dumps(second.document["workloads"]["lines"]["setting"])


def test_models_that_are_only_there_are_found_by_the_hosts_file(echo: Pair, tmp_path: Path) -> None:
    """
    A laptop that can not hold the models certifies them where they are; a later run says that one was exchanged.
    """
    for name in ("target", "draft"):
        shutil.move(echo.place.path / "models" / name, tmp_path / name)
    say_where(echo, target=str(tmp_path / "target"), draft=str(tmp_path / "draft"))

    first = echo.place.run(*SWEEP, code=0)
    config = tmp_path / "draft/config.json"
    config.write_text(config.read_text() + "\n")
    second = echo.place.run(*SWEEP, code=0)

    assert "not as in the run of" not in first.err
    assert "model models/draft: it was " in second.err
    assert "drafts" in second.err


def test_another_model_of_the_same_name_is_refused(echo: Pair, tmp_path: Path) -> None:
    """
    The same name with other bytes over there is exit 3: the verdict would be about something else.
    """
    shutil.copytree(echo.place.path / "models/draft", tmp_path / "draft")
    config = tmp_path / "draft/config.json"
    config.write_text(config.read_text() + "\n")
    say_where(echo, target=str(echo.place.path / "models/target"), draft=str(tmp_path / "draft"))

    done = echo.place.run(*SWEEP, code=3)

    assert "model models/draft: it is another one there" in done.err


def test_a_place_that_is_not_there_is_said(echo: Pair, tmp_path: Path) -> None:
    """
    A hosts file that names a folder nobody has is an error with that folder.
    """
    say_where(echo, target=str(tmp_path / "none"), draft=str(tmp_path / "none"))

    done = echo.place.run(*SWEEP)

    assert 3 == done.code
    assert f"there is no {tmp_path / 'none'}" in done.err
