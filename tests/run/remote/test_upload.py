"""The parcel: what travels, and that every path in the SLO means the same where it arrives."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.core import inputs
from gatekeeper.core.errors import InputError
from gatekeeper.run.remote.upload import Parcel, pack
from tests.builders.place import ROOT, canary_lines


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


def laid_out(parcel: Parcel, root: Path) -> Path:
    for name, content in parcel.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root / parcel.slo


def test_the_same_inputs_are_read_where_the_parcel_arrives(folder: Path, tmp_path: Path) -> None:
    """
    Laid out elsewhere the SLO reads the same files with the same digests, line ends and all; the profile travels, too.
    """
    path = written(folder, {}, tomli_w.dumps(slo()).replace("\n", "\r\n"))

    parcel = pack(path)
    there = laid_out(parcel, tmp_path / "there")

    assert inputs.read(path).files == inputs.read(there).files
    assert path.read_bytes() == there.read_bytes()
    assert "inputs/a 'project'; $HOME/slos/made.toml".endswith(parcel.slo.removeprefix("inputs/"))
    assert {"made.toml", "easy.jsonl", "steady.toml", "truth.json"} == {Path(name).name for name in parcel.files}


def test_a_changed_canary_is_another_parcel(folder: Path) -> None:
    """
    The parcel's digest is that of everything in it.
    """
    path = written(folder, slo())
    before = pack(path).sha256
    same = pack(path).sha256
    (folder / "canaries/easy.jsonl").write_text(canary_lines("easy", 4))

    assert before == same
    assert before != pack(path).sha256


def test_models_by_path_are_told_with_their_digests() -> None:
    """
    The quickstart's models have a place among the inputs, and digests; nothing of them is in the parcel itself.
    """
    parcel = pack(ROOT / "slos/quickstart.toml")

    assert "inputs/slos/quickstart.toml" == parcel.slo
    assert {"inputs/models/little-target", "inputs/models/little-draft"} <= {one.place for one in parcel.models}
    assert all(one.here is not None and len(one.here.digest) == 64 for one in parcel.models)
    assert not any("safetensors" in name for name in parcel.files)
    assert "model.safetensors" in {name for name, _, path in parcel.models[0].contents() if path.is_file()}


def test_a_model_that_is_not_here_is_only_named(folder: Path) -> None:
    """
    Who runs elsewhere need not have the models here.
    """
    document = slo(backend="mlx", target="mlx-community/none-8B", drafts=["../models/none"])
    del document["subject"]["script"]

    models = pack(written(folder, document)).models

    assert [("mlx-community/none-8B", None), ("../models/none", None)] == [(one.name, one.here) for one in models]
    assert "inputs/models/none" == models[1].place


@pytest.mark.parametrize("name", ["/etc/hostname", "~/canaries.jsonl"])
def test_a_whole_path_does_not_travel(folder: Path, name: str) -> None:
    """
    A canary file by its whole path is exit 2 with its line: there would be another file, or none.
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

    with pytest.raises(InputError, match="is a whole path of this machine") as refused:
        pack(path)

    assert "made.toml: line " in refused.value.message


def test_what_is_wrong_with_an_slo_is_said_here(folder: Path) -> None:
    """
    A missing canary file is exit 2 before anything is connected to.
    """
    (folder / "canaries/easy.jsonl").unlink()

    with pytest.raises(InputError, match="does not exist"):
        pack(written(folder, slo()))
