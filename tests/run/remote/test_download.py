"""Downloading a run: damage, full disks and names that lead out; and the errors of runs that did not finish."""

import hashlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import Mock

import pytest

from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.system import run_directory
from gatekeeper.run.remote.download import download, failure_of
from gatekeeper.run.remote.reconnect import ReconnectingSession
from tests.builders.project_folder import ProjectFolder
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, REAL_TIME, Ended, Make, Pair

FILES = {"manifest.json": b"{1}", "soak-1.jsonl": b"records", "inputs/slo.toml": b"schema = 1", "lock": b"7", ".x": b""}


class Files:
    """A connection that only has files to download."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.requested: list[str] = []

    def stream(self, verb: str, _limit_s: float, **_: Any) -> Iterator[dict[str, Any]]:
        assert "files" == verb
        for name, content in self.files.items():
            digest = hashlib.sha256(content).hexdigest()
            yield {"name": name, "size": len(content), "sha256": digest}

    def download(self, path: str, into: BinaryIO, size: int) -> str:
        name = path.removeprefix("jobs/one/run/")
        self.requested.append(name)
        assert size == into.write(self.files[name])
        return hashlib.sha256(self.files[name]).hexdigest()

    def close(self) -> None:
        pass


def downloaded(remote: Files, out: Path) -> int:
    with ReconnectingSession(Mock(return_value=remote), patience_s=0) as session:
        return download(session, "one", out, lambda *_: None)


def test_all_but_locks_and_hidden_files_comes(tmp_path: Path) -> None:
    """
    The folder is a copy, without the files that belong to remote processes.
    """
    count = downloaded(Files(FILES), tmp_path / "run")

    files = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert (3, {"manifest.json", "soak-1.jsonl", "inputs/slo.toml"}) == (count, files)
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


def test_whole_files_are_not_downloaded_again(tmp_path: Path) -> None:
    """
    Whole files of an interrupted download stay; stale and cut ones do not.
    """
    part = tmp_path / ".run.part/run"
    part.mkdir(parents=True)
    (part / "soak-1.jsonl").write_bytes(b"records")
    (part / "manifest.json").write_bytes(b"{")
    (part / "stale.jsonl").write_bytes(b"")
    remote = Files(FILES)

    downloaded(remote, tmp_path / "run")

    assert ["manifest.json", "inputs/slo.toml"] == remote.requested
    assert not (tmp_path / "run/stale.jsonl").exists()


def test_a_later_part_of_the_same_run_takes_its_place(tmp_path: Path) -> None:
    """
    A run that was fetched unfinished and continued replaces the first download; the manifest shows that it is the same.
    """
    downloaded(Files(FILES), tmp_path / "run")
    downloaded(Files({**FILES, "verdict.json": b"{}"}), tmp_path / "run")

    assert (tmp_path / "run/verdict.json").is_file()
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("lies", [{"manifest.json": b"{2}"}, {"thesis.txt": b"years"}])
def test_another_folder_is_never_replaced(tmp_path: Path, lies: dict[str, bytes]) -> None:
    """
    Another run, or anything else, in the place of this one is exit 2; it stays as it is, and so does the download.
    """
    out = tmp_path / "run"
    out.mkdir()
    for name, content in lies.items():
        (out / name).write_bytes(content)

    with pytest.raises(InputError, match="is not empty"):
        downloaded(Files(FILES), out)

    assert lies == {path.name: path.read_bytes() for path in out.iterdir()}
    assert (tmp_path / ".run.part/run/soak-1.jsonl").is_file()
    assert tmp_path / ".run.part" not in run_directory.runs_in(tmp_path)


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a/../../out.txt", ""])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """
    A list with such a name is refused, and nothing of it is written.
    """
    with pytest.raises(NoProofError, match="lists a file"):
        downloaded(Files({name: b"x"}), tmp_path / "run")

    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    """
    Refused before it began: there is nothing to call a run directory.
    """
    assert 0 == downloaded(Files({}), tmp_path / "run")
    assert [] == list(tmp_path.iterdir())


CERTIFY_RUN = (*CERTIFY, "--out", "run")


def over_a_bad_line(pair: Pair, mark: Path, times: int) -> ProjectFolder:
    words = shlex.join([sys.executable, str(Path(__file__).with_name("damaging_ssh.py")), str(mark), str(times)])
    return pair.with_environment(GATEKEEPER_SSH=f"{words} {pair.server.words}").project


def test_a_damaged_file_is_downloaded_again(pair: Make, tmp_path: Path) -> None:
    """
    One byte of a record file is changed on its way: the file is downloaded again with a remark, and the verdict holds.
    """
    remote = pair()

    done = over_a_bad_line(remote, tmp_path / "mark", 1).run(*CERTIFY_RUN, code=0)

    assert b"." == (tmp_path / "mark").read_bytes()
    assert 1 == done.err.count("arrived damaged")
    assert "promoted" == remote.project.verdict()["outcome"]


@pytest.mark.nightly
def test_a_network_that_always_damages_downloads_nothing(pair: Make, tmp_path: Path) -> None:
    """
    A file that never arrives whole is exit 3 and there is no run; a better network downloads it all.
    """
    remote = pair()

    bad = over_a_bad_line(remote, tmp_path / "mark", 1000).run(*CERTIFY_RUN, code=3)
    copy_exists = (remote.project.path / "run").exists()
    good = remote.project.run(*CERTIFY_RUN, code=0)

    assert "arrived damaged 4 times" in bad.err
    assert not copy_exists
    assert "attached to " in good.err
    assert 1 == len(list(remote.jobs.iterdir()))


def finished_there(remote: Pair, ended: Ended) -> Path:
    """Let a run end without a client; return its remote directory."""
    process = remote.project.start(*CERTIFY_RUN)
    until(remote.measuring)
    process.kill()
    ended(process)
    until((remote.job() / "exit.json").exists)
    return remote.job() / "run"


def _improve_the_verdict(run: Path) -> None:
    verdict = run / "verdict.json"
    verdict.write_text(verdict.read_text().replace('"n": ', '"n": 1'))
    sums = (run / "SHA256SUMS").read_text().splitlines()
    other_sums = [line for line in sums if not line.endswith("  verdict.json")]
    (run / "SHA256SUMS").write_text("\n".join([*other_sums, f"{sha256(verdict.read_bytes())}  verdict.json"]) + "\n")


def test_a_run_that_was_changed_there_has_no_verdict(pair: Make, ended: Ended) -> None:
    """
    A verdict changed with its checksum before it was fetched: exit 3 that names it, and no 0.
    """
    remote = pair(REAL_TIME, soak={"duration": "2 s", "sentinel_drift": 0.9})
    _improve_the_verdict(finished_there(remote, ended))

    done = remote.project.run(*CERTIFY_RUN, "--json")

    (entry,) = remote.registry(".")
    assert 3 == done.code
    assert not done.out or 3 == done.document["exit_code"]
    assert all(word in done.err for word in ("verdict.json", "records"))
    assert ("closed", "tampered") == (entry["state"], entry["outcome"])


def job(state: str = "finished", code: int | None = 0, **more: Any) -> dict[str, Any]:
    ended = {"code": code, "signal": more.pop("signal", None)}
    facts = {"run_id": "one", "started": "2026-11-21T00:00:00Z", "progress_bytes": 1, "log": "", "cancelled": None}
    return facts | {"state": state, "exit": ended if state == "finished" else None} | more


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_run_that_ended_with_a_verdict_is_no_error(code: int) -> None:
    """
    Promoted, failed and unproven are verdicts; they are judged again locally.
    """
    assert failure_of(job(code=code)) is None


@pytest.mark.parametrize(
    ("ended", "code", "sentence"),
    [
        (job(code=2, log="gatekeeper: slo.toml: unknown key"), 2, "slo.toml: unknown key"),
        (job(code=3, progress_bytes=0, log="gatekeeper: no sensor"), 3, "no sensor"),
        (job(code=4, log="gatekeeper: cannot write x"), 4, "cannot write x"),
        (job(code=130), 3, "was interrupted on the remote host"),
        (job(code=None, signal=9), 3, "killed by signal 9"),
        (job(code=130, cancelled={"who": "anna@laptop", "at": "T"}), 3, "cancelled by anna@laptop"),
        (job(state="died", cancelled={"who": "anna@laptop", "at": "T"}), 3, "cancelled by anna@laptop"),
        (job(state="rebooted", cancelled={"who": "anna@laptop", "at": "T"}), 3, "was restarted during the run"),
        (job(state="died"), 3, "ended without an error message"),
        (job(state="rebooted"), 3, "was restarted during the run"),
        (job(state="finished", code=77), 4, "ended with exit code 77"),
        ({"run_id": "one", "state": "finished"}, 4, "ended with exit code None"),
    ],
)
def test_every_other_end_is_an_error(ended: dict[str, Any], code: int, sentence: str) -> None:
    """
    Killed, cancelled, restarted, refused or unknown: an error with its own message, and what to do next.
    """
    error = failure_of(ended)

    assert error is not None
    assert (code, True) == (error.exit_code, sentence in error.message)
    assert error.hint
