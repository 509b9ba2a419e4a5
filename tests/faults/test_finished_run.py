"""`certify --resume` on a finished run: its result counts only for what is given now, and as it was published."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.core.system.run_directory import CHECKSUMS, RunDirectory
from gatekeeper.run import finished_run
from tests.builders.project_folder import Done, ProjectFolder, canary_lines, project_folder
from tests.builders.scripted_slo import EASY, write_scripted

RESUME = ("certify", "slo.toml", "--out", "run", "--resume", "--quiet")


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """One finished run, made once; tests work on copies of it."""
    project = project_folder(tmp_path_factory.mktemp("finished"))
    write_scripted(project, workload=EASY)
    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)
    return project


@pytest.fixture
def finished(finished_once: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return finished_once.copied_to(tmp_path / "a project")


def resume(project: ProjectFolder) -> Done:
    return project.run(*RESUME)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def other_profile(folder: Path) -> None:
    (folder / "profiles").mkdir()
    (folder / "profiles" / "steady.toml").write_text('schema = 1\nname = "steady"\nmix = { "*" = 2 }\n')


GIVEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "stricter SLO": (lambda folder: edit(folder / "slo.toml", "1.16", "1.17"), "differs in: objective"),
    "SLO of another name": (lambda folder: edit(folder / "slo.toml", "scripted", "other"), "of the SLO 'scripted'"),
    "missing SLO": (lambda folder: (folder / "slo.toml").unlink(), "slo.toml does not exist"),
    "other canaries": (
        lambda folder: (folder / "easy.jsonl").write_text(canary_lines("new", 12)), "canaries of workload easy"
    ),
    "missing canaries": (lambda folder: (folder / "easy.jsonl").unlink(), "easy.jsonl does not exist"),
    "other system": (lambda folder: edit(folder / "truth.json", '"seed": ', '"seed": 1'), "the script has changed"),
    "missing system": (lambda folder: (folder / "truth.json").unlink(), "truth.json"),
    "other soak profile": (other_profile, "soak profile"),
}  # fmt: skip


@pytest.mark.parametrize("way", GIVEN)
def test_a_finished_run_of_something_else_is_bad_input(finished: ProjectFolder, way: str) -> None:
    """Inputs that the run was not made of are code 2 with the difference, and no verdict is printed.

    A run that was killed before its verdict is not continued with them either, and nothing in it is written.
    """
    change, difference = GIVEN[way]
    change(finished.path)

    done = resume(finished)
    assert (2, "", True) == (done.code, done.out, difference in done.err), done
    run = finished.path / "run"
    for name in (CHECKSUMS, "verdict.json", "policy.toml"):
        (run / name).unlink()
    events = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(events[:-2]))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    unfinished = resume(finished)

    assert (2, "") == (unfinished.code, unfinished.out), unfinished
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def rewritten(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return *change*, with checksums written again as an attacker would."""

    def changed(run: Path) -> None:
        change(run)
        RunDirectory(run).write_checksums()

    return changed


def more_speculation(run: Path) -> None:
    edit(run / "policy.toml", "at_least = 1.16", "at_least = 0.16")


def as_a_soak_alone(run: Path) -> None:
    more_speculation(run)
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "fixed": {"draft": "heavy", "num_draft_tokens": 4}}))


def half(run: Path) -> None:
    lines = (run / "soak-1.jsonl").read_text().splitlines(keepends=True)
    (run / "soak-1.jsonl").write_text("".join(lines[: len(lines) // 2]))


def event_times(at: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        lines = [{**line, "at": at} if "at" in line else line for line in lines]
        (run / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    return rewritten(change)


def append(content: bytes) -> Callable[[Path], None]:
    """Return what puts *content* behind the policy."""
    return rewritten(lambda run: (run / "policy.toml").write_bytes((run / "policy.toml").read_bytes() + content))


DAMAGED = "policy.toml or certificate.intoto.json is damaged"
DEEP = '{"a":' * 5000 + "1" + "}" * 5000
EVIDENCE: dict[str, tuple[Callable[[Path], object], str]] = {
    "policy edited": (more_speculation, f"differs from {CHECKSUMS}: policy.toml"),
    "policy edited, new checksums": (rewritten(more_speculation), "policy.toml does not match the verdict"),
    "policy edited, run made a soak alone": (rewritten(as_a_soak_alone), "verdict.json"),
    "policy deleted, new checksums": (rewritten(lambda run: (run / "policy.toml").unlink()), "has no policy.toml"),
    "certificate deleted, new checksums": (
        rewritten(lambda run: (run / "certificate.intoto.json").unlink()), "has no certificate.intoto.json"
    ),
    "verdict edited, new checksums": (
        rewritten(lambda run: edit(run / "verdict.json", '"center": 2.', '"center": 9.')),
        "verdict.json does not match the records",
    ),
    "half the soak cut off": (half, f"differs from {CHECKSUMS}: soak-1.jsonl"),
    "half the soak cut off, new checksums": (rewritten(half), "verdict.json"),
    "frozen SLO edited, new checksums": (
        rewritten(lambda run: edit(run / "inputs" / "slo.toml", "1.16", "1.17")), "is not the SLO that was frozen"
    ),
    "times of events garbage, new checksums": (event_times("zzz"), "is not a date and time"),
    "times of events without a zone, new checksums": (event_times("2026-01-01T00:00:00"), "time zone"),
    "policy is no text, new checksums": (append(b"\xff"), "not UTF-8"),
    "policy nested too deeply, new checksums": (append(b"\n[x]\ny = " + b"[" * 5000), DAMAGED),
    "certificate nested too deeply, new checksums": (
        rewritten(lambda run: (run / "certificate.intoto.json").write_text(DEEP)), DAMAGED
    ),
    "manifest lost": (lambda run: (run / "manifest.json").unlink(), "manifest.json"),
}  # fmt: skip


@pytest.mark.parametrize("way", EVIDENCE)
def test_a_finished_run_that_was_changed_is_no_proof(finished: ProjectFolder, way: str) -> None:
    """A run that was changed after it ended is code 3 with the file, and no verdict; `admit` agrees."""
    change, file_name = EVIDENCE[way]
    change(finished.path / "run")

    done = resume(finished)
    admitted = finished.run("admit", "slo.toml", "--run", "run", "--grade", "demo", "--json", code=3)

    assert (3, "", True) == (done.code, done.out, file_name in done.err), done
    assert file_name in admitted.document["because"]


def test_an_unchanged_finished_run_gives_its_verdict_again(finished: ProjectFolder) -> None:
    """With a comment added to the SLO, which changes nothing, the finished run ends as it did."""
    edit(finished.path / "slo.toml", "schema", "# a remark\nschema")
    before = (finished.path / "run" / "verdict.json").read_text()

    done = finished.run(*RESUME, "--json", code=0)

    assert before == done.out


def test_an_expired_finished_run_is_no_proof(finished: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose policy has expired is no proof; a simulated one expires in its own time."""
    monkeypatch.setattr(finished_run, "measures_real_time", lambda _: True)

    done = resume(finished)

    assert (3, True) == (done.code, "expired at 2026-01-31" in done.err), done


def test_a_run_without_checksums_is_unproven(finished: ProjectFolder) -> None:
    """Without SHA256SUMS nothing shows what was changed: `judge` and `admit` both answer 3."""
    (finished.path / "run" / CHECKSUMS).unlink()

    judged = finished.run("judge", "run", "--json", code=3)
    admitted = finished.run("admit", "slo.toml", "--run", "run", "--json", code=3)

    assert "SHA256SUMS: missing" in judged.document["incomplete"]
    assert {"unproven"} == {workload["outcome"] for workload in judged.document["workloads"]}
    assert "unfinished" == admitted.document["reason"]
