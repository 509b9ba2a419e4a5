"""Uploading inputs and models: every path of the SLO means the same on the remote host."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.core.errors import InputError
from gatekeeper.core.system import inputs
from gatekeeper.run.remote.upload import Bundle, pack
from tests.builders.project_folder import ROOT, canary_lines
from tests.run.remote.conftest import ON, Make, Pair


def slo(**subject: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "made",
        "subject": {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json", **subject},
        "workload": [{"name": "easy", "canaries": "../canaries/easy.jsonl"}],
        "objective": [{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must pay"}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "a 'project'; $HOME"
    for name in ("slos", "canaries"):
        (project / name).mkdir(parents=True)
    (project / "slos/truth.json").write_text(json.dumps({"token": "20 ms"}))
    (project / "canaries/easy.jsonl").write_text(canary_lines("easy", 3))
    return project


def written(folder: Path, document: dict[str, Any], text: str = "") -> Path:
    path = folder / "slos/made.toml"
    path.write_bytes((text or tomli_w.dumps(document)).encode())
    return path


def laid_out(bundle: Bundle, root: Path) -> Path:
    for name, content in bundle.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root / bundle.slo


def test_the_same_inputs_are_read_on_the_remote_host(folder: Path, tmp_path: Path) -> None:
    """
    Laid out elsewhere the SLO reads the same files with the same digests, line ends and all; the profile is sent, too.
    """
    path = written(folder, {}, tomli_w.dumps(slo()).replace("\n", "\r\n"))

    bundle = pack(path)
    sent_slo = laid_out(bundle, tmp_path / "there")

    assert inputs.read(path).files == inputs.read(sent_slo).files
    assert path.read_bytes() == sent_slo.read_bytes()
    assert "inputs/a 'project'; $HOME/slos/made.toml".endswith(bundle.slo.removeprefix("inputs/"))
    assert {"made.toml", "easy.jsonl", "steady.toml", "truth.json"} == {Path(name).name for name in bundle.files}


@pytest.mark.parametrize("name", ["easy", "little/random"])
def test_a_set_by_its_name_is_sent(folder: Path, tmp_path: Path, name: str) -> None:
    """
    A named set is put where it is searched first, so the remote host reads this one, whatever it ships.
    """
    document = slo()
    document["workload"][0]["canaries"] = name
    path = written(folder, document)

    sent_slo = laid_out(pack(path), tmp_path / "there")

    assert inputs.read(path).files == inputs.read(sent_slo).files
    assert (sent_slo.parent / f"{name}.jsonl").is_file()


def test_a_changed_canary_is_another_bundle(folder: Path) -> None:
    """
    The bundle's digest is that of everything in it.
    """
    path = written(folder, slo())
    before = pack(path).sha256
    again = pack(path).sha256
    (folder / "canaries/easy.jsonl").write_text(canary_lines("easy", 4))

    assert before == again
    assert before != pack(path).sha256


def test_models_by_path_have_digests() -> None:
    """
    The quickstart's models have a place among the inputs, and digests; nothing of them is in the bundle itself.
    """
    bundle = pack(ROOT / "slos/quickstart.toml")

    assert "inputs/slos/quickstart.toml" == bundle.slo
    assert {"inputs/models/little-target", "inputs/models/little-draft"} <= {model.place for model in bundle.models}
    assert all(model.model is not None and len(model.model.digest) == 64 for model in bundle.models)
    assert not any("safetensors" in name for name in bundle.files)
    assert "model.safetensors" in {name for name, _, path in bundle.models[0].contents() if path.is_file()}


def test_a_model_that_is_not_here_is_only_named(folder: Path) -> None:
    """
    A remote run does not need local models.
    """
    document = slo(backend="mlx", target="mlx-community/none-8B", drafts=["../models/none"])
    del document["subject"]["script"]

    models = pack(written(folder, document)).models

    assert [("mlx-community/none-8B", None), ("../models/none", None)] == [
        (model.name, model.model) for model in models
    ]
    assert "inputs/models/none" == models[1].place


@pytest.mark.parametrize("name", ["/etc/hostname", "~/canaries.jsonl"])
def test_an_absolute_path_is_refused(folder: Path, name: str) -> None:
    """
    A canary file by its absolute path is exit 2 with its line: the remote host has another file there, or none.
    """
    document = slo()
    document["workload"][0]["canaries"] = name
    path = written(folder, document)
    if name.startswith("~"):
        (folder / "slos/~").mkdir()
        (folder / "slos" / name).write_text(canary_lines("easy", 3))
    else:
        document["workload"][0]["canaries"] = str((folder / "canaries/easy.jsonl").resolve())
        path = written(folder, document)

    with pytest.raises(InputError, match="absolute local path") as refused:
        pack(path)

    assert "made.toml: line " in refused.value.message


def test_a_mistake_in_an_slo_is_found_here(folder: Path) -> None:
    """
    A missing canary file is exit 2 before anything is connected to.
    """
    (folder / "canaries/easy.jsonl").unlink()

    with pytest.raises(InputError, match="does not exist"):
        pack(written(folder, slo()))


@pytest.fixture
def echo(pair: Make) -> Pair:
    """The manual's worker with a target and a draft next to the local SLO; the remote host has neither."""
    remote = pair()
    path = remote.project.path
    shutil.copy(ROOT / "integrations/example_worker.py", path / "my_worker.py")
    for name, source in (("target", "little-draft"), ("draft", "little-draft-lite")):
        shutil.copytree(ROOT / "models" / source, path / "models" / name)
    canaries = [json.loads(line) for line in canary_lines("line", 8).splitlines()]
    for canary in canaries:
        canary["messages"][0]["content"] = canary["expect"]["equals"]
    (path / "lines.jsonl").write_text("".join(json.dumps(canary) + "\n" for canary in canaries))
    remote.project.write_slo(
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
    return remote


def map_models(remote: Pair, **models: str) -> None:
    """Write the remote paths of models into the hosts file."""
    path = remote.project.path / "soak/hosts.toml"
    document: dict[str, Any] = tomllib.loads(path.read_text())
    document["host"]["mini"]["models"] = {f"models/{name}": project for name, project in models.items()}
    path.write_text(tomli_w.dumps(document))


SWEEP = ("remote", "sweep", "slo.toml", *ON)


def test_a_model_that_is_not_there_is_named_before_anything_runs(echo: Pair) -> None:
    """
    Exit 3 with each missing model and how to upload it; nothing is left behind.
    """
    done = echo.project.run(*SWEEP, code=3)

    assert all(f"model models/{name}: not on the" in done.err for name in ("target", "draft"))
    assert "--ship-models" in done.err
    assert [] == list(echo.jobs.iterdir())
    assert [] == echo.registry()


def test_models_are_shipped_once(echo: Pair) -> None:
    """
    --ship-models copies each file by its digest; the next run finds them on the remote host and uploads nothing.
    """
    first = echo.project.run(*SWEEP, "--ship-models", "--json", code=0)
    second = echo.project.run(*SWEEP, "--json", code=0)

    shelves = [path for path in (echo.server.state / "models").iterdir() if path.is_dir()]
    weights = echo.project.path / "models/target/model.safetensors"
    assert 2 == len(shelves)
    assert weights.read_bytes() in [(shelf / "model.safetensors").read_bytes() for shelf in shelves]
    assert "uploading" in first.err
    assert "uploading" not in second.err
    assert {"lines"} == set(first.document["workloads"])
    assert "draft" in json.dumps(second.document["workloads"]["lines"]["setting"])


@pytest.mark.nightly
def test_models_that_are_only_there_are_found_by_the_hosts_file(echo: Pair, tmp_path: Path) -> None:
    """
    A laptop that cannot hold the models certifies them where they are; a later run reports that one has changed.
    """
    for name in ("target", "draft"):
        shutil.move(echo.project.path / "models" / name, tmp_path / name)
    map_models(echo, target=str(tmp_path / "target"), draft=str(tmp_path / "draft"))

    first = echo.project.run(*SWEEP, code=0)
    config = tmp_path / "draft/config.json"
    config.write_text(config.read_text() + "\n")
    second = echo.project.run(*SWEEP, code=0)

    assert "changed since the run of" not in first.err
    assert "models/draft: changed" in second.err
    assert "drafts" in second.err


@pytest.mark.nightly
def test_another_model_of_the_same_name_is_refused(echo: Pair, tmp_path: Path) -> None:
    """
    The same name with other remote bytes is exit 3: the verdict would be about another model.
    """
    shutil.copytree(echo.project.path / "models/draft", tmp_path / "draft")
    config = tmp_path / "draft/config.json"
    config.write_text(config.read_text() + "\n")
    map_models(echo, target=str(echo.project.path / "models/target"), draft=str(tmp_path / "draft"))

    done = echo.project.run(*SWEEP, code=3)

    assert "models/draft: the remote" in done.err


def test_a_mapped_model_that_is_missing_is_named(echo: Pair, tmp_path: Path) -> None:
    """
    A hosts file that names a missing folder is an error with that folder.
    """
    map_models(echo, target=str(tmp_path / "none"), draft=str(tmp_path / "none"))

    done = echo.project.run(*SWEEP)

    assert 3 == done.code
    assert f"no such file or folder: {tmp_path / 'none'}" in done.err
