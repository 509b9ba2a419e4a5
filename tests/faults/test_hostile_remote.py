"""A remote host that lies: nothing is written outside the run, and nothing that it says of the run decides."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.report.data.progress import Progress
from gatekeeper.report.terminal.progress_lines import plain_lines, view
from gatekeeper.run.remote import checks_before_run, download, run_list, ssh
from gatekeeper.run.remote.reconnect import ReconnectingSession
from gatekeeper.run.remote.remote_run import RemoteHost, RemoteRunner
from gatekeeper.run.remote.run_registry import Entry, RunRegistry
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import SshError
from tests.builders.hostile_host import END, HELLO, JOB, RUN_ID, hostile_ssh, items, reply
from tests.builders.project_folder import Done, ProjectFolder
from tests.e2e.conftest import scripted

GOLDEN = Path(__file__).parents[1] / "golden" / "runs"
FAILED, PROMOTED = GOLDEN / "failed", GOLDEN / "promoted"
DIGEST = "0" * 64

Lie = Callable[..., None]
__all__ = ["scripted"]


@pytest.fixture
def lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lie:
    """Let every connection lead to a host that gives the answers of a test."""

    def answer(**answers: Any) -> None:
        monkeypatch.setenv("GATEKEEPER_SSH", hostile_ssh(tmp_path, **answers))

    return answer


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    (tmp_path / "local").mkdir()
    return ProjectFolder(tmp_path / "local", {})


def written(tmp_path: Path) -> list[str]:
    """Return every file of the test but the answers of the host."""
    return sorted(
        path.relative_to(tmp_path).as_posix()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "answers.json"
    )


def fetch(project: ProjectFolder, *words: str) -> Done:
    done = project.run("remote", "fetch", "--on", "evil", "--patience", "0 s", "--quiet", *words)
    assert "bug" not in done.err
    return done


NOT_A_REPLY = {
    "not JSON": "{",
    "not an object": "[1]",
    "nested too deeply": '{"reply":' + "[" * 100_000 + "]" * 100_000 + "}",
    "5,000 digits": '{"reply": {"jobs": [' + "9" * 5000 + "]}}",
    "half a surrogate pair": '{"reply": {"jobs": ["\\ud800"]}}',
    "NaN": '{"reply": {"jobs": [NaN]}}',
    "not UTF-8": b'{"reply": "\xff"}'.decode("latin-1"),
    "neither reply nor error": {"jobs": []},
    "an error without its kind": {"error": {"message": "no"}},
    "an error that is a number": {"error": 7},
    "a reply that is a list": {"reply": []},
    "a reply without its key": {"reply": {}},
    "a job that is a text": {"reply": {"jobs": ["job"]}},
    "a start without a time zone": {"reply": {"jobs": [JOB | {"started": "2026-11-22T09:00:00"}]}},
    "a start that is a number": {"reply": {"jobs": [JOB | {"started": 7}]}},
    "an unknown state": {"reply": {"jobs": [JOB | {"state": "promoted"}]}},
    "an exit code that is a text": {"reply": {"jobs": [JOB | {"exit": {"code": "0"}}]}},
    "a label that is a list": {"reply": {"jobs": [JOB | {"label": ["certify"]}]}},
}


@pytest.mark.parametrize("header", NOT_A_REPLY.values(), ids=NOT_A_REPLY)
def test_a_malformed_reply_is_one_clear_error(lie: Lie, project: ProjectFolder, header: Any) -> None:
    """
    Whatever comes in place of a reply: exit code 3, the host, the request, and what to do; never a traceback.
    """
    lie(jobs=[[header, ""]])

    done = project.run("remote", "list", "--on", "evil")

    assert 3 == done.code
    assert all(word in done.err for word in ("evil: malformed response", "`jobs`"))
    assert "check that host" in done.err


@pytest.mark.parametrize(
    "changes",
    [
        {"free_bytes": -1},
        {"pythons": {}},
        {"pythons": {"/usr/bin/python3": "x.y"}},
        {"machine": None},
        {"agent": 1e400},
    ],
    ids=["negative space", "an unlisted Python", "no version", "no machine", "half a version"],
)
def test_a_malformed_greeting_is_one_clear_error(lie: Lie, changes: dict[str, Any]) -> None:
    """
    What the host says of itself is checked before anything is done there.
    """
    lie(hello=reply(**HELLO | changes))

    with pytest.raises(SshError, match="`hello`"):
        Connection("evil")


def test_a_frame_of_gigabytes_is_not_waited_for(lie: Lie) -> None:
    """
    A frame that announces more than any reply has is refused before it is read.
    """
    lie(jobs=[["x" * (ssh.HEADER_MOST + 1), ""]])

    with Connection("evil") as connection, pytest.raises(SshError, match="a frame is too large"):
        connection.request("jobs")


def test_a_reply_that_drips_has_a_deadline(lie: Lie, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A reply of one byte at a time does not renew its time limit.
    """
    monkeypatch.setattr(ssh, "SILENCE_S", 0.3)
    lie(drip="jobs")

    with Connection("evil") as connection, pytest.raises(SshError) as refused:
        connection.request("jobs")

    assert "silent" == refused.value.reason


@pytest.mark.parametrize(
    ("verb", "answers"),
    [
        ("files", items({"name": "a", "size": -1, "sha256": DIGEST})),
        ("files", items({"name": "a", "size": 1, "sha256": "../x"})),
        ("follow", items({"offset": 0, "lines": ["x"]})),
        ("follow", items({"offset": 0, "lines": [7], "job": JOB})),
        ("install", items({"line": "done"})),
        ("cancel", items({})),
        ("run", items({"stream": "stdin"})),
        ("run", items({"code": 1 << 40})),
    ],
    ids=["negative size", "a digest", "no end", "lines", "no environment", "how it ended", "stream", "exit code"],
)
def test_a_malformed_part_of_a_reply_is_one_clear_error(lie: Lie, verb: str, answers: Any) -> None:
    """
    Replies that come in parts are checked part by part, and must hold what their end decides.
    """
    lie(**{verb: answers})

    with Connection("evil") as connection, pytest.raises(SshError, match=f"malformed response to `{verb}`"):
        list(connection.stream(verb))


def test_a_malformed_reply_is_not_asked_for_again(lie: Lie, project: ProjectFolder) -> None:
    """
    --patience is for connections: a host that lies is not asked again for ten minutes.
    """
    lie(jobs=[[{"reply": 7}, ""]])

    done = project.run("remote", "fetch", "--on", "evil", "--patience", "10 min")

    assert (3, False) == (done.code, "retrying" in done.err), done.err


JUNK: list[Any] = [None, [[]], {}, {"run_id": 7}]
RUNNING = JOB | {"state": "running", "exit": None}
ON = ("--on", "evil", "--hosts", "hosts.toml")
REQUESTS: dict[str, list[tuple[str, ...]]] = {
    "hello": [("list",)],
    "clock": [("list",)],
    "jobs": [("list",), ("fetch",), ("attach",), ("cancel",), ("prune", "--keep", "1"), ("certify", "slo.toml")],
    "digest": [("list",), ("fetch",)],
    "follow": [("fetch",), ("attach", RUN_ID)],
    "files": [("fetch",)],
    "get": [("fetch",)],
    "verify": [("doctor",), ("certify", "slo.toml")],
    "run": [("doctor",), ("certify", "slo.toml")],
    "cancel": [("cancel", RUN_ID)],
    "put": [("certify", "slo.toml")],
    "start": [("certify", "slo.toml")],
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_junk_in_the_place_of_any_reply_is_one_clear_error(
    lie: Lie, scripted: Callable[..., ProjectFolder], request_: str
) -> None:
    """
    Every command of `gatekeeper remote` ends with 3 and what to do, whichever reply is junk; nothing is left running.
    """
    project = scripted()
    (project.path / "hosts.toml").write_text('[host.evil]\nenvironment = "/e"\n')
    honest = json.dumps(checks_before_run.inventory(project.path / "slo.toml"))
    replies = {
        "run": items(({"stream": "stdout"}, honest), {"code": 0}),
        "start": reply(**JOB),
        "remove": reply(removed=True),
    }
    job = RUNNING if request_ == "cancel" else JOB
    for number, words in enumerate(REQUESTS[request_]):
        for junk in JUNK if number == 0 else JUNK[-1:]:  # commands differ little in how they read a reply
            lie(job=job, holds=FAILED, **{**replies, request_: [[{"reply": junk, "item": junk}, ""], END]})

            done = project.run("remote", *words, *ON)

            assert done.code == 3, (junk, words, done)
            assert "malformed response to `" in done.err or "arrived damaged" in done.err, (junk, words, done)


@pytest.mark.parametrize("answer", [*JUNK, {"models": 7}, {"host": {}, "models": {"t": []}}, {"host": {"chip": 7}}])
def test_a_made_up_inventory_is_one_clear_error(lie: Lie, scripted: Callable[..., ProjectFolder], answer: Any) -> None:
    """
    What the remote gatekeeper prints of its host is checked as well: exit code 3, and nothing is started.
    """
    project = scripted()
    (project.path / "hosts.toml").write_text('[host.evil]\nenvironment = "/e"\n')
    lie(
        jobs=reply(jobs=[]),
        run=items(({"stream": "stdout"}, json.dumps(answer)), {"code": 0}),
        remove=reply(removed=True),
    )

    done = project.run("remote", "certify", "slo.toml", *ON)

    assert 3 == done.code, done.err
    assert "its answer is malformed" in done.err


IDS = ["/../../evil/autostart", "../evil", "..", ".", "", "/etc", "a/b", "a b", "a\nb", "-rf", "ü", "x" * 300]


@pytest.mark.parametrize("run_id", IDS)
def test_a_run_id_is_never_a_path(lie: Lie, project: ProjectFolder, tmp_path: Path, run_id: str) -> None:
    """
    A run id that could lead out of the runs folder is refused; not one file is written.
    """
    lie(job=JOB | {"run_id": run_id}, holds=FAILED)

    done = fetch(project)

    assert 3 == done.code
    assert "jobs.0.run_id" in done.err
    assert [] == written(tmp_path)


NAMES = [
    "../out", "/etc/passwd", "a/../../out", "..", ".", "", "a//b", "a b", "a\nb", "a\0b", "ü", "x" * 300, "a/b/c/d/e",
    "~/.ssh/authorized_keys", "$(touch x)",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_never_leads_out(lie: Lie, project: ProjectFolder, tmp_path: Path, name: str) -> None:
    """
    A file whose name is no path of plain names is refused with the whole list; nothing of it is written.
    """
    lie(
        files=items({"name": "manifest.json", "size": 1, "sha256": DIGEST}, {"name": name, "size": 1, "sha256": DIGEST})
    )

    done = fetch(project)

    assert 3 == done.code
    assert "outside the run" in done.err
    assert [] == [path for path in written(tmp_path) if not path.endswith(".remote.json")]


@pytest.mark.parametrize("names", [("a", "a"), ("A", "a"), ("a", "a/b")], ids=["twice", "on a Mac", "file and folder"])
def test_two_files_never_share_a_name(lie: Lie, project: ProjectFolder, names: tuple[str, str]) -> None:
    """
    Two files of one name, on a disk that ignores case or in the place of a folder, are refused.
    """
    lie(files=items(*({"name": name, "size": 1, "sha256": DIGEST} for name in names)))

    done = fetch(project)

    assert (3, True) == (done.code, "two files under one name" in done.err)


def test_a_file_ends_where_it_was_announced(lie: Lie, project: ProjectFolder, tmp_path: Path) -> None:
    """
    A file of 10 bytes that never ends is cut off at its announced size: neither memory nor disk fills.
    """
    lie(
        files=items({"name": "manifest.json", "size": 10, "sha256": DIGEST}),
        get=items(({}, "x" * (1 << 17)), end=False),
        endless="get",
    )

    done = fetch(project)

    assert 3 == done.code
    assert "announced 10 B" in done.err
    assert 10 >= sum(path.stat().st_size for path in tmp_path.rglob("manifest.json"))


def test_a_list_of_files_ends(lie: Lie, project: ProjectFolder) -> None:
    """
    A list of files without end is refused after as many as no run has.
    """
    lie(files=items({"name": ".hidden", "size": 0, "sha256": DIGEST}, end=False), endless="files")

    done = fetch(project)

    assert (3, True) == (done.code, f"more than {download.FILES_MOST} files" in done.err)


def test_a_run_of_terabytes_is_refused(lie: Lie, project: ProjectFolder) -> None:
    """
    A list that announces more bytes than any run has is refused before the first of them.
    """
    lie(files=items({"name": "soak-1.jsonl", "size": 1 << 44, "sha256": DIGEST}))

    done = fetch(project)

    assert (3, True) == (done.code, "lists more than" in done.err)


@pytest.mark.parametrize(("link", "code"), [("", 4), ("run", 4), ("run/inputs", 3)])
def test_a_link_in_the_place_of_a_download_is_not_followed(
    lie: Lie, project: ProjectFolder, tmp_path: Path, link: str, code: int
) -> None:
    """
    Where the download would go through a link, it ends with that name, or replaces it; the target is untouched.
    """
    target, at = tmp_path / "elsewhere", project.path / f"runs/.{RUN_ID}.part" / link
    target.mkdir()
    at.parent.mkdir(parents=True)
    at.symlink_to(target)
    lie(holds=FAILED)

    done = fetch(project)

    assert code == done.code
    assert [] == list(target.iterdir())


def test_a_file_that_is_a_link_is_not_written_through(lie: Lie, project: ProjectFolder, tmp_path: Path) -> None:
    """
    A link under the name of a record file is refused, and the file that it leads to keeps its content.
    """
    (tmp_path / "mine").write_text("mine")
    part = project.path / "runs" / f".{RUN_ID}.part" / "run"
    part.mkdir(parents=True)
    (part / "manifest.json").symlink_to(tmp_path / "mine")
    lie(holds=FAILED)

    done = fetch(project)

    assert (4, "mine") == (done.code, (tmp_path / "mine").read_text())


MADE_UP: list[Any] = [
    *({}, {"seconds": "x"}, {"seconds": [], "soak": 1}, {"settings": [1], "stage": 7}),
    *({"stage": "soak", "settings": {"a": 1}}, {"generation": 7, "answered": "x"}, {"block": 1, "answers": "x"}),
    *({"slo": 1, "expected": {"sweep": "x"}, "workloads": 5}, {"soak": {}, "seconds": 1, "most": "x"}),
    {"values": {"memory_headroom": 7}},
]
KINDS = ("begin", "stage", "soaking", "block", "closing", "answer", "reading", "sample", "verdict", "stopped", "doubt")


def test_made_up_events_are_left_out_of_the_display(lie: Lie) -> None:
    """
    Events without the details of their kind, or with others, end neither the display nor the command.
    """
    events = [{"at": "2026-11-22T09:00:00Z", "kind": kind, "detail": detail} for kind in KINDS for detail in MADE_UP]
    lines = ["{", "[]", "{}", '{"at": 7}', *map(json.dumps, events)]
    lie(follow=items({"offset": 1, "lines": lines}, {"offset": 1, "lines": [], "job": JOB}))
    progress, display = Progress(), io.StringIO()
    host = RemoteHost("evil", "evil")

    with ReconnectingSession(host.connect, patience_s=0) as session:
        job = RemoteRunner(host, session, [plain_lines(progress, display)]).follow(RUN_ID, "run")

    assert "finished" == job["state"]
    assert "run run" in display.getvalue()
    assert view(progress.snapshot(), 80, 24)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"slo": "x", "workloads": 7}', '{"slo": "x", "workloads": {"a": {}}}']
)
def test_a_made_up_probe_is_no_result(lie: Lie, project: ProjectFolder, tmp_path: Path, content: str) -> None:
    """
    A probe whose document is damaged is exit code 3 and shows nothing.
    """
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "probe.json").write_text(content)
    lie(job=JOB | {"label": {"command": ["try"], "slo": "x"}}, holds=tmp_path / "probe")

    done = fetch(project)

    assert (3, "") == (done.code, done.out)
    assert "probe.json is damaged" in done.err


@pytest.mark.parametrize("name", ["manifest.json", "inputs/slo.toml", "plan.json"])
@pytest.mark.parametrize("content", [None, b"[" * 100_000, b'{"schema": 1}'], ids=["missing", "deep", "no keys"])
@pytest.mark.parametrize("verb", ["certify", "sweep"])
def test_a_run_with_damaged_files_proves_nothing(
    lie: Lie, project: ProjectFolder, tmp_path: Path, name: str, content: bytes | None, verb: str
) -> None:
    """
    A file that is missing or garbage in a run of the far side is exit code 3, and never the user's bad input.
    """
    shutil.copytree(PROMOTED, tmp_path / "run")
    file = tmp_path / "run" / name
    file.write_bytes(content or b"")
    if content is None:
        file.unlink()
    lie(job=JOB | {"label": {"command": [verb], "slo": "x"}}, holds=tmp_path / "run")

    assert 3 == fetch(project).code


def test_a_record_that_was_changed_there_is_no_verdict(lie: Lie, project: ProjectFolder, tmp_path: Path) -> None:
    """
    One word of a record, changed before the run was fetched: exit 3 that names its file.
    """
    shutil.copytree(PROMOTED, tmp_path / "run")
    record = tmp_path / "run" / "soak-1.jsonl"
    record.write_text(record.read_text().replace('"fault":null', '"fault":"gone"', 1))
    lie(holds=tmp_path / "run")

    done = fetch(project)

    assert (3, True) == (done.code, all(word in done.err for word in ("SHA256SUMS", "soak-1.jsonl"))), done.err


@pytest.mark.parametrize("verb", ["soak", "sweep", "try", "certify", "nonsense"])
def test_the_command_that_a_host_names_decides_no_exit_code(lie: Lie, project: ProjectFolder, verb: str) -> None:
    """
    A failing run, called another command by its host, is never 0: the records decide, or nothing is proven.
    """
    job = JOB | {"label": {"command": [verb], "slo": "little"}, "exit": {"code": 1, "signal": None}}
    lie(job=job, holds=FAILED)

    first, again = fetch(project), fetch(project, RUN_ID)

    expected = 3 if verb in {"sweep", "try"} else 1
    assert [expected, expected] == [first.code, again.code], first.err


def test_the_exit_code_that_a_host_names_decides_nothing(lie: Lie, project: ProjectFolder) -> None:
    """
    A failing run whose host says that it ended with 0 is a disagreement, exit code 3.
    """
    lie(holds=FAILED)

    done = fetch(project)

    assert (3, True) == (done.code, "its records give 1" in done.err)


def test_a_run_registered_for_another_host_is_not_taken_from_this_one(lie: Lie, project: ProjectFolder) -> None:
    """
    A host that lists the run of another host gets nothing into that run's folder.
    """
    entry = Entry.of_job(JOB, "honest", project.path / "runs" / RUN_ID, "slo.toml")
    shutil.copytree(PROMOTED, project.path / "runs" / RUN_ID)
    RunRegistry(project.path / "runs").write(entry)
    lie(holds=PROMOTED)

    done = fetch(project)

    assert (2, True) == (done.code, "which is a run on honest" in done.err)


def test_a_cancellation_has_a_deadline(lie: Lie, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A host that only sends signs of life while it should end a run is given up after --grace.
    """
    monkeypatch.setattr(run_list, "MARGIN_S", 0.0)
    monkeypatch.setattr(run_list, "KILL_WAIT_S", 0.0)
    lie(job=JOB | {"state": "running"}, cancel=items({}, end=False), endless="cancel")

    with pytest.raises(SshError, match="`cancel`"):
        run_list.cancel(RemoteHost("evil", "evil"), RUN_ID, 0.2)


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (1, 1), (3, 3), (255, 4), (-9, 4)])
def test_an_unknown_exit_code_is_never_success(lie: Lie, project: ProjectFolder, code: int, exit_code: int) -> None:
    """
    `remote doctor` ends with the remote gatekeeper's code where that is one of ours; any other is exit code 4.
    """
    (project.path / "hosts.toml").write_text('[host.evil]\nenvironment = "/e"\n')
    first, second = (({"stream": "stdout"}, part) for part in ("\x1b]0;title\x07\xc3", "\xbc\n"))
    lie(run=items(first, second, {"code": code}))

    done = project.run("remote", "doctor", "--on", "evil", "--hosts", "hosts.toml")

    assert exit_code == done.code
    assert "\ufffd]0;title\ufffdü\n" == done.out
