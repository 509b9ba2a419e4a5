"""Uploading inputs and models: every path of the SLO means the same on the remote host."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.core.errors import InputError
from gatekeeper.core.system import inputs
from gatekeeper.run.remote import run_inputs
from gatekeeper.run.remote.run_inputs import RunInputs, collect_inputs, upload_inputs
from gatekeeper.run.remote.ssh import RemoteHost
from tests.builders.project_folder import ROOT, canary_lines
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, ENDLESS, ON, REAL_TIME, Ended, Make


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


def laid_out(bundle: RunInputs, root: Path) -> Path:
    bundle.write(root)
    return root / bundle.slo


def test_the_same_inputs_are_read_on_the_remote_host(folder: Path, tmp_path: Path) -> None:
    """Laid out elsewhere, the SLO reads the same files with the same digests, line ends and all."""
    path = written(folder, {}, tomli_w.dumps(slo()).replace("\n", "\r\n"))

    bundle = collect_inputs(path)
    sent_slo = laid_out(bundle, tmp_path / "there")

    assert inputs.read(path).files == inputs.read(sent_slo).files
    assert path.read_bytes() == sent_slo.read_bytes()
    assert "inputs/a 'project'; $HOME/slos/made.toml".endswith(bundle.slo.removeprefix("inputs/"))
    assert {"made.toml", "easy.jsonl", "steady.toml", "truth.json"} == {Path(name).name for name in bundle.files}


@pytest.mark.parametrize("name", ["easy", "little/random"])
def test_a_set_by_its_name_is_sent(folder: Path, tmp_path: Path, name: str) -> None:
    """A named set is put where it is searched first, so the remote host reads this one, whatever it ships."""
    document = slo()
    document["workload"][0]["canaries"] = name
    path = written(folder, document)

    sent_slo = laid_out(collect_inputs(path), tmp_path / "there")

    assert inputs.read(path).files == inputs.read(sent_slo).files
    assert (sent_slo.parent / f"{name}.jsonl").is_file()


def test_models_by_path_have_digests(tmp_path: Path) -> None:
    """The quickstart's models have a place among the inputs, as links to the folders of their digests."""
    bundle = collect_inputs(ROOT / "slos/quickstart.toml")

    laid_out(bundle, tmp_path / "jobs/run")

    assert "inputs/slos/quickstart.toml" == bundle.slo
    assert {"inputs/models/little-target", "inputs/models/little-draft"} <= {model.place for model in bundle.models}
    assert all(len(model.digest) == 64 for model in bundle.models)
    for model in bundle.models:
        target = (tmp_path / "jobs/run" / model.place).resolve()
        assert tmp_path.resolve() / "models" / model.digest == target
    assert not any("safetensors" in name for name in bundle.files)


def test_a_model_by_its_hub_name_stays_where_it_is(folder: Path) -> None:
    """A remote run needs no local models; one that is named by a relative path has to be here."""
    document = slo(backend="mlx", target="mlx-community/none-8B", drafts=["~/models/none"])
    del document["subject"]["script"]

    models = collect_inputs(written(folder, document)).models
    document["subject"]["drafts"] = ["../models/none"]
    with pytest.raises(InputError, match="models/none") as refused:
        collect_inputs(written(folder, document))

    assert () == models
    assert "as ~/PATH" in refused.value.hint


@pytest.mark.parametrize("name", ["/etc/hostname", "~/canaries.jsonl"])
def test_an_absolute_path_is_refused(folder: Path, name: str) -> None:
    """A canary file by its absolute path is exit 2 with its line: the remote host has another file there, or none."""
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
        collect_inputs(path)

    assert "made.toml: line " in refused.value.message


@pytest.mark.parametrize("copied_by", ["rsync", "tar"])
def test_models_by_path_are_uploaded_once(pair: Make, copied_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files go to a folder by the model's digest; rsync copies none of them twice, and tar stands in for it."""
    if copied_by == "tar":
        monkeypatch.setattr(run_inputs, "which", lambda _name: None)
    remote = pair()
    path, state = remote.project.path, remote.server.state
    for name, source in (("target", "little-draft"), ("draft", "little-draft-lite")):
        shutil.copytree(ROOT / "models" / source, path / "models" / name)
    document = slo(backend="mlx", target="models/target", drafts=["models/draft"], script=None)
    del document["subject"]["script"]
    document["workload"][0]["canaries"] = "easy.jsonl"
    remote.project.write_slo(document)
    inputs = collect_inputs(path / "slo.toml")

    upload_inputs(RemoteHost("mini"), inputs, "first")
    stored = {file: file.stat().st_ino for file in state.glob("models/*/*")}
    upload_inputs(RemoteHost("mini"), inputs, "second")

    weights = path / "models/target/model.safetensors"
    for run in ("first", "second"):
        copy = state / "jobs" / run / "inputs"
        assert weights.read_bytes() == (copy / "models/target/model.safetensors").read_bytes()
        assert (path / "slo.toml").read_bytes() == (copy / "slo.toml").read_bytes()
    assert 2 == len({file.parent for file in stored})
    assert copied_by == "tar" or stored == {file: file.stat().st_ino for file in stored}


def test_no_shell_reads_a_path(pair: Make) -> None:
    """Quotes, spaces, dollars and semicolons in the SLO's path and the run directory are only characters."""
    remote = pair()
    odd = "a 'b\" ; touch pwned; $(touch pwned) `touch pwned` *"
    (remote.project.path / odd).mkdir()
    for path in list(remote.project.path.iterdir()):
        if path.is_file():
            (remote.project.path / odd / path.name).write_text(path.read_text())
    slo = remote.project.path / odd / "slo.toml"
    slo.write_text(slo.read_text().replace('"easy.jsonl"', f'"../{odd}/easy.jsonl"'.replace('b"', 'b\\"')))

    remote.project.run("remote", "certify", f"{odd}/slo.toml", *ON, "--out", f"{odd}/run", code=0)

    assert "promoted" == remote.project.verdict(f"{odd}/run")["outcome"]
    assert [] == list(remote.project.path.parent.rglob("pwned*"))
    assert (remote.job() / "inputs" / odd / "slo.toml").is_file()


def test_only_named_variables_are_sent_and_none_is_written(pair: Make, ended: Ended) -> None:
    """A named variable is in the environment of the run and nowhere on that disk; one that is not named is not sent."""
    remote = pair(REAL_TIME, soak=ENDLESS).with_environment(MY_KEY="s3cr3t-'4711", OTHER_KEY="s3cr3t-0815")

    process = remote.project.start(*CERTIFY, "--send-env", "MY_KEY")
    until(remote.measuring)
    process_environment = remote.process().environ()
    written = [path for path in remote.server.root.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    remote.project.run("remote", "cancel", *ON, code=0)
    ended(process)

    assert "s3cr3t-'4711" == process_environment["MY_KEY"]
    assert "OTHER_KEY" not in process_environment
    assert [] == written
