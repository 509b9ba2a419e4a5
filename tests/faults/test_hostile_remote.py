"""A remote host that lies: nothing is written outside the run, and nothing that it says of the run decides."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.core.system import run_directory
from gatekeeper.report.data.progress import Progress
from gatekeeper.report.terminal.progress_lines import plain_lines, view
from gatekeeper.run.remote import download
from gatekeeper.run.remote.remote_run import RemoteRunner
from gatekeeper.run.remote.ssh import RemoteHost
from gatekeeper.run.remote.ssh_errors import SshError
from tests.builders.hostile_host import RUN_ID, archive, hostile_ssh, job_line, packed
from tests.builders.project_folder import Done, ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.e2e.conftest import certified_folders, finished, scripted
from tests.e2e.conftest import project as empty_project

Lie = Callable[..., None]
__all__ = ["certified_folders", "empty_project", "finished", "scripted"]


@pytest.fixture
def lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lie:
    """Let every connection lead to a host that gives the answers of a test."""

    def answer(**answers: str | bytes) -> None:
        monkeypatch.setenv("GATEKEEPER_SSH", hostile_ssh(tmp_path, **answers))  # type: ignore[arg-type]

    return answer


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    (tmp_path / "local").mkdir()
    return ProjectFolder(tmp_path / "local", {})


@pytest.fixture
def promoted(finished: Callable[..., ProjectFolder]) -> Path:
    return finished(workload=EASY).path / "run"


@pytest.fixture
def failed(finished: Callable[..., ProjectFolder]) -> Path:
    never = [{"metric": "ttft", "at_most": "1 ms", "when": "always", "why": "never"}]
    return finished(workload=EASY, objective=never, code=1).path / "run"


def written(project: ProjectFolder) -> list[str]:
    """Return every file in and beside the project but the answers of the host."""
    around = project.path.parent
    files = (path.relative_to(around).as_posix() for path in around.rglob("*") if path.is_file())
    return sorted(name for name in files if name.startswith("local/") or "evil" in name)


def fetch(project: ProjectFolder, *words: str) -> Done:
    """Attach to the newest run of the host that lies."""
    done = project.run("remote", "attach", *(words or ("--output", "run")), "--on", "evil", "--patience", "0")
    assert "bug" not in done.err
    assert "\x1b" not in done.err + done.out
    return done


JUNK = [
    b"\n",
    b"{",
    b"\xff\xfe\n",
    b"\x1b]0;title\x07\n",
    b"run\tended\t0\n",
    b'0\n{"complaints": 7}\n\n',
    b"[" * 100_000,
    b'{"reply": ' + b"9" * 5000 + b"}",
    b'0\n{"items": [{"kind": "\\u001b[2J"}], "ready": ["x"], "missing": 7}\n\n',
]
COMMANDS = [
    ("list", ("remote", "attach")),
    ("versions", ("remote", "certify", "slo.toml")),
    ("versions", ("doctor",)),
    ("check", ("remote", "certify", "slo.toml")),
    ("check", ("doctor", "slo.toml")),
    ("start", ("remote", "certify", "slo.toml")),
    ("follow", ("remote", "attach", "--output", "run")),
    ("fetch", ("remote", "attach", "--output", "run")),
    ("cancel", ("remote", "cancel", RUN_ID)),
]


@pytest.mark.parametrize(("kind", "words"), COMMANDS)
def test_junk_in_the_place_of_any_answer_is_one_clear_error(
    lie: Lie, scripted: Callable[..., ProjectFolder], kind: str, words: tuple[str, ...]
) -> None:
    """Every command ends with an error and what to do, never with a traceback, a verdict or codes of a terminal."""
    project = scripted()
    for junk in JUNK:
        listed = {"list": b""} if "certify" in words else {"list": job_line(state="running", code="")}
        lie(**{**listed, kind: junk})

        done = project.run(*words, "--on", "evil")

        assert done.code in {2, 3, 4}, (junk, done)
        assert "hint" in done.err, (junk, done)
        assert "bug" not in done.err, (junk, done)
        assert "\x1b" not in done.err + done.out, (junk, done)
        assert not (project.path / "run").exists()


def test_a_malformed_answer_is_not_asked_for_again(lie: Lie, project: ProjectFolder) -> None:
    """--patience is for connections: a host that lies is not asked again for ten minutes."""
    lie(follow=b"promoted\n")

    done = project.run("remote", "attach", "--on", "evil", "--patience", "10 min")

    assert (3, False) == (done.code, "retrying" in done.err), done.err
    assert "malformed" in done.err


IDS = ["/../../evil/autostart", "../evil", "..", ".", "", "/etc", "a/b", "a b", "$(touch evil)", "-rf", "ü", "x" * 300]


@pytest.mark.parametrize("run_id", IDS)
def test_a_run_id_is_never_a_path(lie: Lie, project: ProjectFolder, run_id: str) -> None:
    """A run id that could lead out of the runs folder is refused; not one file is written."""
    lie(list=job_line(run_id), fetch=archive(("manifest.json", b"{}")))

    done = fetch(project, "--json")

    assert (3, True) == (done.code, "whose name is a path" in done.err), done.err
    assert [] == written(project)


NAMES = [
    "../evil", "/etc/evil", "a/../../evil", "..", "a//b", "a b", "a\nb", "ü", "a/b/c/d/e", "~/.ssh/evil",
    "$(touch evil)",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_never_leads_out(lie: Lie, project: ProjectFolder, name: str) -> None:
    """A file whose name is no path of plain names is refused with the whole archive; nothing of it is written."""
    lie(fetch=archive(("manifest.json", b"{}"), (name, b"x")))

    done = fetch(project)

    assert (3, True) == (done.code, "outside the run" in done.err), done.err
    assert [] == written(project)


@pytest.mark.parametrize("names", [("a", "a"), ("A", "a"), ("a", "a/b"), ("a/b", "a")])
def test_two_files_never_share_a_name(lie: Lie, project: ProjectFolder, names: tuple[str, str]) -> None:
    """Two files of one name, on a disk that ignores case or in the place of a folder, are refused."""
    lie(fetch=archive(*((name, b"x") for name in names)))

    done = fetch(project)

    assert (3, True) == (done.code, "under one name" in done.err), done.err
    assert [] == written(project)


def member(kind: bytes, name: str = "manifest.json", *, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, "/etc/passwd", size
    return info


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.GNUTYPE_SPARSE,
        tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME,
    ],
)  # fmt: skip
def test_what_is_no_file_is_refused(lie: Lie, project: ProjectFolder, kind: bytes) -> None:
    """A link, a device, a pipe and headers that change the next file's name: refused, and nothing is written."""
    lie(fetch=archive(("plan.json", b"{}"), member(kind)))

    done = fetch(project)

    assert (3, True) == (done.code, "that is no file" in done.err), done.err
    assert [] == written(project)


def test_a_run_of_terabytes_is_refused(lie: Lie, project: ProjectFolder) -> None:
    """A file that announces more bytes than any run has is refused before the first of them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(member(tarfile.REGTYPE, size=1 << 44))
    lie(fetch=content.getvalue())

    done = fetch(project)

    assert (3, True) == (done.code, "sends more than" in done.err), done.err


def test_an_archive_of_files_without_end_is_refused(
    lie: Lie, project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More files, or more bytes in all, than any run has end the download."""
    monkeypatch.setattr(download, "FILES_MOST", 20)
    monkeypatch.setattr(download, "BYTES_MOST", 1 << 20)
    lie(fetch=archive(*((f"a{number}", b"") for number in range(30))))
    files = fetch(project)
    lie(fetch=archive(*((f"a{number}", bytes(1 << 19)) for number in range(3))))
    size = fetch(project)

    assert (3, 3) == (files.code, size.code)
    assert all("more than 20 files or" in done.err for done in (files, size))
    assert [] == written(project)


def test_an_archive_that_drips_has_a_deadline(
    lie: Lie, project: ProjectFolder, promoted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive of one byte at a time does not renew its time limit."""
    monkeypatch.setattr(download, "SILENCE_S", 0.5)
    lie(fetch=packed(promoted), drip="fetch")

    done = fetch(project)

    assert (3, True) == (done.code, "a second" in done.err), done.err


@pytest.mark.parametrize("answer", [b'{"at": "', b"{}\n", b"\n"])
def test_events_without_end_do_not_fill_the_memory(lie: Lie, answer: bytes) -> None:
    """A line without an end is refused; events may come for as long as a run takes, and are not kept."""
    lie(follow=answer * 10_000, endless="follow")
    lines = RemoteHost("evil").lines("follow_run", {}, silence_s=5, most=1 << 20)
    if answer.endswith(b"\n"):
        assert all(len(next(lines)) < 3 for _ in range(100_000))
    else:
        with pytest.raises(SshError, match="a line of more than"):
            next(lines)


def test_a_link_in_the_place_of_the_run_is_not_followed(
    lie: Lie, project: ProjectFolder, tmp_path: Path, promoted: Path
) -> None:
    """Where a link to an empty folder lies in the run's place, the run takes its place, and the folder stays empty."""
    target, place = tmp_path / "elsewhere", project.path / "run"
    target.mkdir()
    place.symlink_to(target)
    lie(fetch=packed(promoted))

    done = fetch(project)

    assert 0 == done.code, done.err
    assert [] == list(target.iterdir())
    assert not place.is_symlink()


def test_a_folder_with_other_files_is_not_replaced(lie: Lie, project: ProjectFolder, promoted: Path) -> None:
    """Exit 2 with another place to name; what was there stays."""
    (project.path / "run").mkdir()
    (project.path / "run/mine").write_text("mine")
    lie(fetch=packed(promoted))

    done = fetch(project)

    assert (2, True) == (done.code, "--output FOLDER" in done.err), done.err
    assert ["local/run/mine"] == written(project)


MADE_UP = [
    *({}, {"seconds": "x"}, {"seconds": [], "soak": 1}, {"settings": [1], "stage": 7}),
    *({"stage": "soak", "settings": {"a": 1}}, {"generation": 7, "answered": "x"}, {"block": 1, "answers": "x"}),
    *({"slo": 1, "expected": {"sweep": "x"}, "workloads": 5}, {"soak": {}, "seconds": 1, "most": "x"}),
    {"values": {"memory_headroom": 7}},
]
KINDS = ("begin", "stage", "soaking", "block", "closing", "answer", "reading", "sample", "verdict", "stopped", "doubt")


def test_made_up_events_are_left_out_of_the_display(lie: Lie) -> None:
    """Events without the details of their kind, or with others, end neither the display nor the command."""
    events = [{"at": "2026-11-22T09:00:00Z", "kind": kind, "detail": detail} for kind in KINDS for detail in MADE_UP]
    lines = ["{", "{}", '{"at": 7}', *map(json.dumps, events), "", "log\tdone \x1b[2J"]
    lie(follow="\n".join(lines).encode() + b"\n" + job_line())
    progress, display = Progress(), io.StringIO()

    job, log = RemoteRunner(RemoteHost("evil"), 0, [plain_lines(progress, display)]).follow(RUN_ID, "run")

    assert ("ended", "  done \ufffd[2J") == (job.state, log)
    assert "run run" in display.getvalue()
    assert view(progress.snapshot(), 80, 24)


@pytest.mark.parametrize("name", ["manifest.json", "inputs/slo.toml", "plan.json"])
@pytest.mark.parametrize("content", [None, b"[" * 100_000, b'{"schema": 1}'], ids=["missing", "deep", "no keys"])
def test_a_run_with_damaged_files_proves_nothing(
    lie: Lie, project: ProjectFolder, promoted: Path, name: str, content: bytes | None
) -> None:
    """A file that is missing or garbage in a run of the remote host is exit code 3, and never the user's bad input."""
    (promoted / name).write_bytes(content or b"")
    if content is None:
        (promoted / name).unlink()
    lie(fetch=packed(promoted))

    assert 3 == fetch(project).code


@pytest.mark.parametrize("name", ["manifest.json", "SHA256SUMS", "verdict.json"])
def test_a_file_that_a_few_bytes_unpack_to_is_not_read_whole(
    lie: Lie, project: ProjectFolder, promoted: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read whole has a most: what is beyond costs disk, never memory."""
    monkeypatch.setattr(run_directory, "MOST_BYTES", 1 << 20)
    (promoted / name).write_bytes(bytes((1 << 20) + 1))
    if name != "SHA256SUMS":
        run_directory.RunDirectory(promoted).write_checksums()
    lie(fetch=packed(promoted))

    done = fetch(project)

    assert (3, True) == (done.code, f"longer than {1 << 20} bytes" in done.err), done.err


def test_a_record_that_was_changed_there_is_no_verdict(lie: Lie, project: ProjectFolder, promoted: Path) -> None:
    """One word of a record, changed before the run was fetched: exit 3 that names its file."""
    record = promoted / "soak-1.jsonl"
    record.write_text(record.read_text().replace('"fault":null', '"fault":"gone"', 1))
    lie(fetch=packed(promoted))

    done = fetch(project)

    assert (3, True) == (done.code, all(word in done.err for word in ("SHA256SUMS", "soak-1.jsonl"))), done.err


@pytest.mark.parametrize(("code", "state"), [(0, "ended"), (3, "ended"), ("", "died")])
def test_the_exit_code_that_a_host_names_decides_nothing(
    lie: Lie, project: ProjectFolder, failed: Path, code: object, state: str
) -> None:
    """Another exit code than that of the records is a disagreement, 3; without one the records decide."""
    lie(follow=job_line(code=code, state=state), fetch=packed(failed))

    done = fetch(project)

    assert (1 if state == "died" else 3) == done.code, done.err
    assert ("its records give 1" in done.err) == (state == "ended")


@pytest.mark.parametrize(("code", "exit_code"), [(2, 2), (4, 4), (77, 4), (130, 3), (137, 3), (255, 3), (-9, 4)])
def test_a_run_that_did_not_finish_is_never_success(
    lie: Lie, project: ProjectFolder, promoted: Path, code: int, exit_code: int
) -> None:
    """Whatever else a host says of the end of a run is an error, though the files of a promotion come with it."""
    shutil.copytree(promoted, project.path.parent / "cut")
    (project.path.parent / "cut/SHA256SUMS").unlink()
    lie(follow=job_line(code=code), fetch=packed(project.path.parent / "cut"))

    assert exit_code == fetch(project).code


def test_a_cancellation_has_a_deadline(lie: Lie, monkeypatch: pytest.MonkeyPatch, project: ProjectFolder) -> None:
    """A host that only sends signs of life while it should end a run is given up after --grace."""
    monkeypatch.setattr("gatekeeper.run.remote.run_list.MARGIN_S", 0.0)
    lie(list=job_line(state="running", code=""), cancel=b"\n", drip="cancel", endless="cancel")

    done = project.run("remote", "cancel", RUN_ID, "--on", "evil", "--grace", "1 s", code=3)

    assert "hint" in done.err
