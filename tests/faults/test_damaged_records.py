"""Damaged record files: judge says what is wrong, and --resume leaves out what is damaged and nothing else."""

import os
import shutil
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


Damage = Callable[[list[bytes]], list[bytes]]


def third(change: Callable[[bytes], bytes]) -> Damage:
    """Return what changes the third line."""
    return lambda content: [*content[:2], change(content[2]), *content[3:]]


garble = third(lambda line: b'{"at": \xff' + line[8:])
DAMAGES: dict[str, tuple[str, Damage, str]] = {
    "a line of the sweep": ("baseline.jsonl", garble, "line 3 is damaged"),
    "a line of the soak": ("soak-1.jsonl", garble, "line 3 is damaged"),
    "a host sample": ("host.jsonl", garble, "line 3 is damaged"),
    "a byte became a carriage return": (
        "soak-1.jsonl", third(lambda line: line[:20] + b"\r" + line[21:]), "line 3 is damaged"
    ),
    "a block of zeros": ("soak-1.jsonl", third(lambda line: b"\0" * len(line[:-1]) + b"\n"), "line 3 is damaged"),
    "a record is missing": ("soak-1.jsonl", third(lambda _: b""), "but the closing line counts"),
    "records after the closing line": (
        "soak-1.jsonl", lambda content: [*content[:2], content[-1], *content[2:]], "lines after the closing line"
    ),
}  # fmt: skip


def damaged(files: Files, name: str, damage: Damage = garble) -> Files:
    """Return *files* with one of them damaged."""
    return {**files, name: b"".join(damage((files[name] or b"").splitlines(keepends=True)))}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_costs_no_other_record(finished_run: tuple[ProjectFolder, Files], case: str) -> None:
    """Judge names file and damage, code 3; --resume sets a copy aside, keeps what is intact and measures the rest."""
    project, files_before = finished_run
    name, damage, says = DAMAGES[case]
    run, files = project.path / "run", damaged(unfinished(files_before), name, damage)
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
    files = damaged(unfinished(files_before), "events.jsonl")
    restored(project.path / "run", files)

    done = project.run(*RESUME, "--json", code=3)

    assert "events.jsonl.damaged: " in done.document["incomplete"]
    assert files["events.jsonl"] == (project.path / "run" / "events.jsonl.damaged").read_bytes()
    assert not (project.path / "run" / "policy.toml").exists()


def test_what_was_published_of_a_run_that_is_now_unproven_goes(finished_run: tuple[ProjectFolder, Files]) -> None:
    """Killed before SHA256SUMS and damaged since: no policy of the earlier verdict stays for somebody to deploy."""
    project, files_before = finished_run
    files = {name: content for name, content in files_before.items() if name != "SHA256SUMS"}
    restored(project.path / "run", damaged(files, "events.jsonl"))

    project.run(*RESUME, code=3)

    assert not {"policy.toml", "certificate.intoto.json"} & {*os.listdir(project.path / "run")}  # noqa: PTH208


def test_damage_after_the_records_were_closed_is_measured_again(finished_run: tuple[ProjectFolder, Files]) -> None:
    """Killed while it published and damaged since: the records are opened again and completed."""
    project, files_before = finished_run
    files = {name: content for name, content in files_before.items() if name not in {"SHA256SUMS", "verdict.json"}}
    restored(project.path / "run", damaged(files, "null.jsonl"))

    project.run(*RESUME, code=0)

    assert len(lines(files_before["null.jsonl"])) <= len(lines(stored(project.path / "run")["null.jsonl"]))


def test_a_deleted_damaged_file_is_noticed(finished_run: tuple[ProjectFolder, Files]) -> None:
    """The damaged file is part of the evidence: SHA256SUMS lists it, and admit refuses the run without it."""
    project, files_before = finished_run
    restored(project.path / "run", damaged(unfinished(files_before), "soak-1.jsonl"))
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
    """Half a line, or the zeros of a power failure, at the end of a file is cut off, and nothing is set aside."""
    file = events(tmp_path / "a.jsonl", LINE % 1, tail)
    file(Event("now", EventKind.WARNING, {"number": 2}))
    file.finish()

    assert file.damage is None
    assert [1, 2] == [record.detail["number"] for record in read_records(tmp_path / "a.jsonl", EVENTS).records]
    assert [tmp_path / "a.jsonl"] == list(tmp_path.iterdir())


def renamed(folder: Path) -> None:
    folder.rename(folder.with_name("archive"))


def replaced(folder: Path) -> None:
    renamed(folder)
    folder.mkdir()
    (folder / "a.jsonl").touch()


@pytest.mark.parametrize("way", [shutil.rmtree, renamed, replaced])
def test_a_folder_that_disappears_is_noticed_at_the_next_record(tmp_path: Path, way: Callable[[Path], object]) -> None:
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


CHANGED: dict[str, tuple[str, bytes, bytes]] = {
    "an event without a date": ("events.jsonl", b'{"at":"2026', b'{"at":"yesterday'),
    "an event without a time zone": ("events.jsonl", b'Z","kind"', b'","kind"'),
    "conditions that are a number": ("events.jsonl", b'"facts":{', b'"facts":7,"x":{'),
    "a deep closing line": ("events.jsonl", b'{"end": true', b'{"end": true, ' + DEEP + b'"x": 1'),
    "a deep manifest": ("manifest.json", b"{", b"{" + DEEP),
    "a deep plan": ("plan.json", b"{", b"{" + DEEP),
    "a deep verdict": ("verdict.json", b"{", b"{" + DEEP),
    "a policy of the year 99999": ("policy.toml", b'issued = "2026', b'issued = "99999'),
    "a deep certificate": ("certificate.intoto.json", b"{", b"{" + DEEP),
}


@pytest.mark.parametrize("case", CHANGED)
def test_changed_evidence_with_new_checksums_is_no_traceback(
    finished_run: tuple[ProjectFolder, Files], case: str
) -> None:
    """Values that no gatekeeper writes, with checksums that match: admit refuses the run with code 3 and a reason."""
    project, files = finished_run
    name, before, after = CHANGED[case]
    content = files[name] or b""
    assert before in content
    restored(project.path / "run", {**files, name: content.replace(before, after, 1)})
    run_directory.RunDirectory(project.path / "run").write_checksums()

    done = project.run("admit", "slo.toml", "--run", "run", "--grade", "demo", "--json", code=3)

    assert done.document["reason"] in {"unreadable", "tampered", "unproven"}
