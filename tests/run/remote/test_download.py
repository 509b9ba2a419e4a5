"""Bringing a run home: nothing that lies there already is lost, and no name leads out of the folder."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import Mock

import pytest

from gatekeeper.core import run_directory
from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.run.remote.download import fetch
from gatekeeper.run.remote.reconnect import Tether

FILES = {"manifest.json": b"{1}", "soak-1.jsonl": b"records", "inputs/slo.toml": b"schema = 1", "lock": b"7", ".x": b""}


class Shelf:
    """The far end of a link, as far as fetching asks it: files by name."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []

    def stream(self, verb: str, **_: Any) -> Iterator[dict[str, Any]]:
        assert "files" == verb
        for name, content in self.files.items():
            digest = hashlib.sha256(content).hexdigest()
            yield {"name": name, "path": f"jobs/one/run/{name}", "size": len(content), "sha256": digest}

    def get(self, path: str, into: BinaryIO) -> str:
        name = path.removeprefix("jobs/one/run/")
        self.asked.append(name)
        into.write(self.files[name])
        return ""

    def close(self) -> None:
        pass


def bring(shelf: Shelf, out: Path) -> int:
    with Tether(Mock(return_value=shelf), patience_s=0) as tether:
        return fetch(tether, "one", out, lambda *_: None)


def test_all_but_locks_and_hidden_files_comes(tmp_path: Path) -> None:
    """
    The folder is as it was, without what belongs to processes over there.
    """
    came = bring(Shelf(FILES), tmp_path / "run")

    found = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert (3, {"manifest.json", "soak-1.jsonl", "inputs/slo.toml"}) == (came, found)
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


def test_what_came_is_not_asked_for_again(tmp_path: Path) -> None:
    """
    What an interrupted fetch gathered stays, if it is whole; what is stale or cut is not kept.
    """
    part = tmp_path / ".run.part/run"
    part.mkdir(parents=True)
    (part / "soak-1.jsonl").write_bytes(b"records")
    (part / "manifest.json").write_bytes(b"{")
    (part / "stale.jsonl").write_bytes(b"")
    shelf = Shelf(FILES)

    bring(shelf, tmp_path / "run")

    assert ["manifest.json", "inputs/slo.toml"] == shelf.asked
    assert not (tmp_path / "run/stale.jsonl").exists()


def test_a_later_part_of_the_same_run_takes_its_place(tmp_path: Path) -> None:
    """
    A run that was fetched unfinished and went on replaces what was fetched; the manifest tells that it is the same.
    """
    bring(Shelf(FILES), tmp_path / "run")
    bring(Shelf({**FILES, "verdict.json": b"{}"}), tmp_path / "run")

    assert (tmp_path / "run/verdict.json").is_file()
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("lies", [{"manifest.json": b"{2}"}, {"thesis.txt": b"years"}])
def test_somebody_elses_folder_is_never_replaced(tmp_path: Path, lies: dict[str, bytes]) -> None:
    """
    Another run, or anything else, in the place of this one is exit 2; it stays as it is, and so does what came.
    """
    out = tmp_path / "run"
    out.mkdir()
    for name, content in lies.items():
        (out / name).write_bytes(content)

    with pytest.raises(InputError, match="holds no part of this run"):
        bring(Shelf(FILES), out)

    assert lies == {path.name: path.read_bytes() for path in out.iterdir()}
    assert (tmp_path / ".run.part/run/soak-1.jsonl").is_file()
    assert tmp_path / ".run.part" not in run_directory.runs_in(tmp_path)


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a/../../out.txt", ""])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """
    A far side that lists such a name is not believed, and nothing of it is written.
    """
    with pytest.raises(NoProofError, match="lists a file"):
        bring(Shelf({name: b"x"}), tmp_path / "run")

    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    """
    Refused before it began: there is nothing to call a run directory.
    """
    assert 0 == bring(Shelf({}), tmp_path / "run")
    assert [] == list(tmp_path.iterdir())
