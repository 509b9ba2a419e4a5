"""What is damaged on its way is asked for again; what is damaged at the other end is never a verdict."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.core.manifest import sha256
from tests.builders.place import Done, Place
from tests.run.remote.conftest import Pair

Make = Callable[..., Pair]
Until = Callable[[Callable[[], bool]], None]
Ended = Callable[[subprocess.Popen[str]], Done]

CERTIFY = ("remote", "certify", "slo.toml", "--on", "far", "--out", "run")


def over_a_bad_line(pair: Pair, mark: Path, times: int) -> Place:
    words = shlex.join([sys.executable, str(Path(__file__).with_name("flip.py")), str(mark), str(times)])
    ssh = f"{words} {pair.server.words}"
    return Place(pair.place.path, {**pair.place.environment, "GATEKEEPER_SSH": ssh})


def test_a_file_that_came_damaged_is_asked_for_again(pair: Make, tmp_path: Path) -> None:
    """
    One byte of a record file is changed on its way: it is noticed, said, fetched again, and the verdict stands.
    """
    made = pair()

    done = over_a_bad_line(made, tmp_path / "mark", 1).run(*CERTIFY, code=0)

    assert b"." == (tmp_path / "mark").read_bytes()
    assert 1 == done.err.count("came damaged and is asked for again")
    assert "promoted" == made.place.verdict()["outcome"]


def test_a_line_that_always_damages_brings_nothing_home(pair: Make, tmp_path: Path) -> None:
    """
    A file that never comes whole is exit 3, nothing is called a run, and a better line brings it all.
    """
    made = pair()

    bad = over_a_bad_line(made, tmp_path / "mark", 1000).run(*CERTIFY, code=3)
    came = (made.place.path / "run").exists()
    good = made.place.run(*CERTIFY, code=0)

    assert "came damaged 4 times" in bad.err
    assert not came
    assert "attached to " in good.err
    assert 1 == len(list(made.jobs.iterdir()))


def finished_there(made: Pair, until: Until, ended: Ended) -> Path:
    """Let a run end over there while nobody here looks; return its directory there."""
    process = made.place.start(*CERTIFY)
    until(lambda: any(made.jobs.glob("*/run/baseline.jsonl")))
    process.kill()
    ended(process)
    until((made.job() / "exit.json").exists)
    return made.job() / "run"


def _spoil_a_record(run: Path) -> None:
    text = (run / "soak-1.jsonl").read_text()
    (run / "soak-1.jsonl").write_text(text.replace('"fault":null', '"fault":"gone"', 1))


def _improve_the_verdict(run: Path) -> None:
    verdict = run / "verdict.json"
    verdict.write_text(verdict.read_text().replace('"n": ', '"n": 1'))
    sums = (run / "SHA256SUMS").read_text().splitlines()
    kept = [line for line in sums if not line.endswith("  verdict.json")]
    (run / "SHA256SUMS").write_text("\n".join([*kept, f"{sha256(verdict.read_bytes())}  verdict.json"]) + "\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_spoil_a_record, "not what SHA256SUMS says: soak-1.jsonl"),
        (_improve_the_verdict, "verdict.json is not what the records give"),
    ],
)
def test_what_was_changed_over_there_is_never_a_verdict(
    pair: Make, until: Until, ended: Ended, damage: Callable[[Path], None], said: str
) -> None:
    """
    A record changed before it was fetched, or a verdict changed and sealed again: exit 3 that names it, and no 0.
    """
    real_time = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
    made = pair(real_time, soak={"duration": "2 s", "sentinel_drift": 0.9})
    damage(finished_there(made, until, ended))

    done = made.place.run(*CERTIFY, "--json")

    (entry,) = [json.loads(path.read_text()) for path in made.place.path.glob("*.remote.json")]
    assert 3 == done.code
    assert not done.out or 3 == done.document["exit_code"]
    assert said in done.err
    assert ("closed", "tampered") == (entry["state"], entry["outcome"])
