"""A system under test that cannot be started again in the middle of a run."""

import pytest

from tests.builders.place import Place
from tests.builders.small_run import RECORDS, lines, stored
from tests.e2e.conftest import place
from tests.e2e.test_worker_run import echoing

__all__ = ["place"]

SWITCH = """
from pathlib import Path
starts = Path("starts")
starts.touch()
starts.write_text(starts.read_text() + "x")
if len(starts.read_text()) > int(Path("allowed").read_text()):
    print("CUDA error: out of memory", file=sys.stderr)
    raise SystemExit(7)
"""


@pytest.mark.whole
def test_a_worker_that_dies_at_each_start_is_unproven_and_continued(place: Place) -> None:
    """
    It started for the sweep and dies at the start of the soak: an event, code 3 with its last words, not bad input.
    Once it starts again, --resume goes on, and no record is lost.
    """
    echoing(place)
    worker = place.path / "my_worker.py"
    worker.write_text(worker.read_text().replace("def send(", f"{SWITCH}\n\ndef send(", 1))
    (place.path / "allowed").write_text("3")  # for its greeting, the first two requests, and the sweep
    run = place.path / "run"

    done = place.run("certify", "slo.toml", "--out", "run", code=3)
    before = stored(run)
    judged = place.run("judge", "run", "--json", code=3)
    (place.path / "allowed").write_text("99")
    place.run("certify", "slo.toml", "--out", "run", "--resume")

    assert "the system under test cannot be started" in done.err
    assert "CUDA error: out of memory" in done.err
    assert "--resume" in done.err
    assert b'"kind":"subject_lost"' in (before["events.jsonl"] or b"")
    assert "events.jsonl" in judged.document["incomplete"]
    after = stored(run)
    assert "SHA256SUMS" in after
    for name in {*RECORDS} & {*before}:
        kept = lines(before[name])
        assert kept == lines(after[name])[: len(kept)]
    assert len(lines(before["baseline.jsonl"])) > 3


def test_a_worker_that_never_starts_is_bad_input(place: Place) -> None:
    """
    Before anything is measured the same is code 2: the command of the SLO file does not work.
    """
    echoing(place, command=["false"])

    place.run("certify", "slo.toml", "--out", "run", code=2)

    assert not (place.path / "run" / "manifest.json").exists()


def test_a_log_is_not_written_through_a_link(place: Place) -> None:
    """
    logs/ that leads elsewhere: code 4 with the path, before anything is started.
    """
    echoing(place)
    (place.path / "elsewhere").mkdir()
    (place.path / "run").mkdir()
    (place.path / "run" / "logs").symlink_to(place.path / "elsewhere")

    done = place.run("certify", "slo.toml", "--out", "run", code=4)

    assert "it is a link, which is not followed" in done.err
    assert [] == list((place.path / "elsewhere").iterdir())
