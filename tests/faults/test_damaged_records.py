"""Damaged record files: judge says what is wrong, and --resume leaves out what is damaged and nothing else."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gatekeeper import host
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.record_files import EVENTS, RecordWriter, read_records
from tests.builders.project_folder import ProjectFolder
from tests.builders.small_run import Files, gist, lines, restored, small, stored, unfinished

RESUME = ("certify", "slo.toml", "--out", "run", "--resume")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProjectFolder, Files]]:
    """Make a whole run once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "SAMPLE_INTERVAL_S", 10.0)
        project = small(tmp_path_factory.mktemp("damage"))
        project.run("certify", "slo.toml", "--out", "run", code=0)
        yield project, stored(project.path / "run")


def garble(content: list[bytes]) -> list[bytes]:
    return [*content[:2], b'{"at": \xff' + content[2][8:], *content[3:]]


def carriage_return(content: list[bytes]) -> list[bytes]:
    return [*content[:2], content[2][:20] + b"\r" + content[2][21:], *content[3:]]


def zeros(content: list[bytes]) -> list[bytes]:
    return [*content[:2], b"\0" * len(content[2][:-1]) + b"\n", *content[3:]]


def missing(content: list[bytes]) -> list[bytes]:
    return [*content[:2], *content[3:]]


def closed_early(content: list[bytes]) -> list[bytes]:
    return [*content[:2], content[-1], *content[2:]]


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        pytest.param("baseline.jsonl", garble, "line 3 is damaged", id="a line of the sweep"),
        pytest.param("soak-1.jsonl", garble, "line 3 is damaged", id="a line of the soak"),
        pytest.param("host.jsonl", garble, "line 3 is damaged", id="a host sample"),
        pytest.param("soak-1.jsonl", carriage_return, "line 3 is damaged", id="a byte became a carriage return"),
        pytest.param("soak-1.jsonl", zeros, "line 3 is damaged", id="a block of zeros"),
        pytest.param("soak-1.jsonl", missing, "but the closing line counts", id="a record is missing"),
        pytest.param("soak-1.jsonl", closed_early, "lines after the closing line", id="records after the closing line"),
    ],
)
def test_damage_costs_no_other_record(
    finished_run: tuple[ProjectFolder, Files], name: str, damage: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    """Judge names the file and what is wrong with it, code 3. --resume warns, keeps the whole file as NAME.damaged
    and all
    intact records in place, measures what is missing, and the verdict has a finding.
    """
    project, files_before = finished_run
    run, files = project.path / "run", unfinished(files_before)
    files[name] = b"".join(damage((files[name] or b"").splitlines(keepends=True)))
    intact = [line for line in lines(files[name]) if line in lines(files_before[name])]
    restored(run, files)

    judged = project.run("judge", "run", "--json", code=3)
    resumed = project.run(*RESUME, code=0)

    after = stored(run)
    assert f"{name}: " in judged.document["incomplete"]
    assert says in judged.document["incomplete"]
    assert f"{name}.damaged" in resumed.err
    assert files[name] == after[f"{name}.damaged"]
    assert intact == lines(after[name])[: len(intact)]
    assert gist(files_before["verdict.json"]) == gist(after["verdict.json"])
    assert [name] == [
        finding["about"] for finding in project.verdict()["findings"] if finding["kind"] == "damaged_records"
    ]
    assert project.run("judge", "run", "--json").out.encode() == after["verdict.json"]


def test_lost_events_are_never_better_than_unproven(finished_run: tuple[ProjectFolder, Files]) -> None:
    """A lost event may have been a reason not to promote: the other records are kept, and the run is unproven."""
    project, files_before = finished_run
    files = unfinished(files_before)
    files["events.jsonl"] = b"".join(garble((files["events.jsonl"] or b"").splitlines(keepends=True)))
    restored(project.path / "run", files)

    done = project.run(*RESUME, "--json", code=3)

    assert "events.jsonl.damaged: " in done.document["incomplete"]
    assert files["events.jsonl"] == (project.path / "run" / "events.jsonl.damaged").read_bytes()
    assert not (project.path / "run" / "policy.toml").exists()


def test_what_was_published_of_a_run_that_is_now_unproven_goes(finished_run: tuple[ProjectFolder, Files]) -> None:
    """Killed before SHA256SUMS and damaged since: no policy of the earlier verdict stays for somebody to deploy."""
    project, files_before = finished_run
    files = {name: content for name, content in files_before.items() if name != "SHA256SUMS"}
    files["events.jsonl"] = b"".join(garble((files["events.jsonl"] or b"").splitlines(keepends=True)))
    restored(project.path / "run", files)

    project.run(*RESUME, code=3)

    assert not {"policy.toml", "certificate.intoto.json"} & {*os.listdir(project.path / "run")}  # noqa: PTH208


def test_damage_after_the_records_were_closed_is_measured_again(finished_run: tuple[ProjectFolder, Files]) -> None:
    """A run that was killed while it published, with a damaged line since: its records are opened again and
    completed.
    """
    project, files_before = finished_run
    files = {name: content for name, content in files_before.items() if name not in {"SHA256SUMS", "verdict.json"}}
    files["null.jsonl"] = b"".join(garble((files["null.jsonl"] or b"").splitlines(keepends=True)))
    restored(project.path / "run", files)

    project.run(*RESUME, code=0)

    assert len(lines(files_before["null.jsonl"])) <= len(lines(stored(project.path / "run")["null.jsonl"]))


def test_a_deleted_damaged_file_is_noticed(finished_run: tuple[ProjectFolder, Files]) -> None:
    """The damaged file is part of the evidence: SHA256SUMS lists it, and admit refuses the run without it."""
    project, files_before = finished_run
    files = unfinished(files_before)
    files["soak-1.jsonl"] = b"".join(garble((files["soak-1.jsonl"] or b"").splitlines(keepends=True)))
    restored(project.path / "run", files)
    project.run(*RESUME, code=0)

    (project.path / "run" / "soak-1.jsonl.damaged").unlink()

    assert ["soak-1.jsonl.damaged"] == run_directory.RunDirectory(project.path / "run").changed_files()


def events(path: Path, *content: bytes) -> RecordWriter[Event]:
    path.write_bytes(b"".join(content))
    return RecordWriter(path, EVENTS)


LINE = b'{"at":"now","kind":"warning","detail":{"number":%d}}\n'


def test_setting_aside_can_be_repeated(tmp_path: Path) -> None:
    """Killed after the copy was made, the next start uses that copy; other damage later gets a copy of its own."""
    path = tmp_path / "a.jsonl"
    damaged = (LINE % 1, b"{]\n", LINE % 2)
    path.with_name("a.jsonl.damaged").write_bytes(b"".join(damaged))

    events(path, *damaged).close()
    events(path, b"\n", *damaged).close()

    assert b"".join((LINE % 1, LINE % 2)) == path.read_bytes()
    assert b"".join(damaged) == (tmp_path / "a.jsonl.damaged").read_bytes()
    assert b"".join((b"\n", *damaged)) == (tmp_path / "a.jsonl.damaged-2").read_bytes()
    assert 3 == len(list(tmp_path.iterdir()))


@pytest.mark.parametrize("tail", [b'{"at":"now"', b"\0" * 4096, b'{"end": true, "rec'])
def test_a_torn_last_line_is_no_damage(tmp_path: Path, tail: bytes) -> None:
    """Half a line, or the zeros that a power failure leaves, at the end of a file: cut off, and nothing is set
    aside.
    """
    file = events(tmp_path / "a.jsonl", LINE % 1, tail)
    file(Event("now", EventKind.WARNING, {"number": 2}))
    file.finish()

    assert file.damage is None
    assert [1, 2] == [record.detail["number"] for record in read_records(tmp_path / "a.jsonl", EVENTS).records]
    assert [tmp_path / "a.jsonl"] == list(tmp_path.iterdir())


def deleted(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def renamed(folder: Path) -> None:
    folder.rename(folder.with_name("archive"))


def replaced(folder: Path) -> None:
    renamed(folder)
    folder.mkdir()
    (folder / "a.jsonl").touch()


@pytest.mark.parametrize("way", [deleted, renamed, replaced])
def test_a_folder_that_disappears_is_noticed_at_the_next_record(tmp_path: Path, way: Callable[[Path], None]) -> None:
    """Deleted, renamed or replaced under the writer: code 4 with the file, what happened and what to do."""
    folder = tmp_path / "run"
    folder.mkdir()
    file = events(folder / "a.jsonl")
    file(Event("now", EventKind.WARNING, {"number": 1}))
    way(folder)

    with pytest.raises(GatekeeperError, match=r"a\.jsonl: ") as error:
        file(Event("now", EventKind.WARNING, {"number": 2}))

    file.close()
    assert 4 == error.value.exit_code
    assert "rename it back" in error.value.hint


def resealed(project: ProjectFolder, files: Files, name: str, before: bytes, after: bytes) -> None:
    """Change a file of the finished run, and write checksums that match."""
    content = files[name] or b""
    assert before in content
    restored(project.path / "run", {**files, name: content.replace(before, after, 1)})
    run_directory.RunDirectory(project.path / "run").write_checksums()


@pytest.mark.parametrize(
    "content", [b'{"schema": 1, "slo"', b"\xff\xfe{}", b"[1]\n", None], ids=["cut", "not UTF-8", "a list", "lost"]
)
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
def test_a_damaged_manifest_is_evidence_that_is_missing(
    finished_run: tuple[ProjectFolder, Files], content: bytes | None, *, finished: bool
) -> None:
    """judge, report, report --to and certify --resume end in 3 and name the manifest, whatever is wrong with it."""
    project, files_before = finished_run
    restored(
        project.path / "run",
        {**(files_before if finished else unfinished(files_before)), "manifest.json": content or b""},
    )
    if content is None:
        (project.path / "run" / "manifest.json").unlink()

    for words in (("judge", "run"), ("report", "run"), ("report", "run", "--to", "otlp"), RESUME):
        assert "manifest.json" in project.run(*words, code=3).err


DEEP = b'"a":' + b"[" * 100_000 + b"]" * 100_000 + b","


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        pytest.param("events.jsonl", b'{"at":"2026', b'{"at":"yesterday', id="an event without a date"),
        pytest.param("events.jsonl", b'Z","kind"', b'","kind"', id="an event without a time zone"),
        pytest.param("events.jsonl", b'"facts":{', b'"facts":7,"x":{', id="conditions that are a number"),
        pytest.param("events.jsonl", b'{"end": true', b'{"end": true, ' + DEEP + b'"x": 1', id="a deep closing line"),
        pytest.param("manifest.json", b"{", b"{" + DEEP, id="a deep manifest"),
        pytest.param("plan.json", b"{", b"{" + DEEP, id="a deep plan"),
        pytest.param("verdict.json", b"{", b"{" + DEEP, id="a deep verdict"),
        pytest.param("policy.toml", b'issued = "2026', b'issued = "99999', id="a policy of the year 99999"),
        pytest.param("certificate.intoto.json", b"{", b"{" + DEEP, id="a deep certificate"),
    ],
)
def test_changed_evidence_with_new_checksums_is_no_traceback(
    finished_run: tuple[ProjectFolder, Files], name: str, before: bytes, after: bytes
) -> None:
    """Values that no gatekeeper writes, with checksums that match: admit refuses the run with code 3 and a reason."""
    project, files_before = finished_run
    resealed(project, files_before, name, before, after)

    done = project.run("admit", "slo.toml", "--run", "run", "--grade", "demo", "--json", code=3)

    assert done.document["reason"] in {"unreadable", "tampered", "unproven"}
