"""A stored run for people who compute: what `import gatekeeper` gives, and its rows."""

import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import gatekeeper
from gatekeeper.core.document import text_of
from gatekeeper.core.errors import NoProofError
from tests.builders.project_folder import ROOT
from tests.builders.small_run import small

RUNS = ROOT / "tests" / "golden" / "runs"
PROMOTED = RUNS / "promoted"


def lines_of(path: Path) -> list[dict[str, object]]:
    """Return the records of a file, without the line that counts them."""
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A stored run that may be changed."""
    return Path(shutil.copytree(PROMOTED, tmp_path / "run"))


def test_every_answer_of_a_run_is_one_row() -> None:
    """Sweep, soaks and passes: each record of each file is there once, under the name of its phase."""
    run = gatekeeper.load(PROMOTED)

    files = {row.file: row.phase for row in run.answers}
    records = [(name, line["key"]) for name in files for line in lines_of(PROMOTED / name)]
    assert records == [(row.file, row.key) for row in run.answers]
    assert {"sweep", "soak", "warm_cache"} == set(files.values())
    assert {*PROMOTED.glob("*.jsonl")} - {PROMOTED / "host.jsonl", PROMOTED / "events.jsonl"} == {
        PROMOTED / name for name in files
    }
    assert () == run.troubles


def test_the_rows_give_the_figures_of_the_verdict() -> None:
    """The median over canaries of the rows' decode speed is the one that the verdict shows."""
    run = gatekeeper.load(RUNS / "against_certified")

    for workload in run.verdict.workloads:
        speeds: dict[str, list[float]] = {}
        for row in run.answers:
            if (row.file, row.workload, row.arm) == (
                "soak-1.jsonl",
                workload.name,
                "candidate",
            ) and row.role != "warmup":
                assert row.decode_tok_per_s is not None
                speeds.setdefault(row.canary, []).append(row.decode_tok_per_s)
        center = workload.measured.center("decode_throughput")
        assert center == pytest.approx(statistics.median(map(statistics.median, speeds.values())), rel=1e-5)


def test_a_sample_has_its_units_in_its_names_and_says_what_it_lacks(copied: Path) -> None:
    """A reading that was denied is None and named with its status; its number, had it one, is not shown."""
    lines = (copied / "host.jsonl").read_text().splitlines(keepends=True)
    sample = json.loads(lines[0])
    sample["values"]["gpu_power"] = {"value": None, "unit": "W", "source": "macmon", "status": "denied", "age": None}
    sample["values"]["fan_speed"] = {"value": 0, "unit": "rpm", "source": "macmon", "status": "stale", "age": 9.0}
    (copied / "host.jsonl").write_text(json.dumps(sample) + "\n" + "".join(lines[1:]))

    first, second, *_ = gatekeeper.load(copied).samples

    assert (None, None) == (first.values["gpu_power_w"], first.values["fan_speed_rpm"])
    assert ["gpu_power denied", "fan_speed stale"] == (first.missing or "").split(", ")
    assert isinstance(first.values["memory_headroom_bytes"], float)
    assert (None, "soak-1") == (second.missing, second.phase)


def test_damage_is_told_and_costs_its_record_alone(copied: Path) -> None:
    """A line that is cut off in the middle of a file ends it, a file that is gone is named, and the rest is there."""
    (copied / "null.jsonl").unlink()
    content = (copied / "soak-1.jsonl").read_bytes()
    (copied / "soak-1.jsonl").write_bytes(content[: len(content) // 2])

    run = gatekeeper.load(copied)

    assert ["null.jsonl", "soak-1.jsonl"] == sorted(trouble.partition(":")[0] for trouble in run.troubles)
    assert run.damaged
    assert 0 < sum(row.file == "soak-1.jsonl" for row in run.answers) < len(lines_of(PROMOTED / "soak-1.jsonl"))
    assert "unproven" == run.verdict.outcome


def test_an_interrupted_run_is_not_damaged(copied: Path) -> None:
    """Without checksums and with a file that ends early, what was recorded is exported, and the trouble is named."""
    (copied / "SHA256SUMS").unlink()
    (copied / "soak-1.jsonl").write_text("".join((copied / "soak-1.jsonl").read_text().splitlines(keepends=True)[:9]))

    run = gatekeeper.load(copied)

    assert not run.damaged
    assert ["soak-1.jsonl"] == [trouble.partition(":")[0] for trouble in run.troubles]
    assert 9 == sum(row.file == "soak-1.jsonl" for row in run.answers)


def test_a_plan_names_no_file_outside_of_its_run(copied: Path) -> None:
    """A trial whose file lies elsewhere is not read, and a plan that is none proves nothing."""
    plan = json.loads((copied / "plan.json").read_text())
    plan["trials"][0]["file"] = "../run/baseline.jsonl"
    (copied / "plan.json").write_text(json.dumps(plan))
    assert "baseline.jsonl" not in {row.file for row in gatekeeper.load(copied).answers}

    del plan["trials"][0]["file"]
    (copied / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(NoProofError):
        _ = gatekeeper.load(copied).answers


def test_judging_again_gives_the_verdict_of_the_run(tmp_path: Path) -> None:
    """`verdict` is what certify wrote, and `judge` takes the objectives of another SLO file."""
    project = small(tmp_path)
    project.run("certify", "slo.toml", "--output", "run", "--quiet", code=0)
    text = (tmp_path / "slo.toml").read_text()
    (tmp_path / "strict.toml").write_text(text.replace("at_least = 1.16", "at_least = 100"))

    run = gatekeeper.load(tmp_path / "run")

    assert (tmp_path / "run" / "verdict.json").read_text() == text_of(run.verdict)
    assert "promoted" == run.verdict.outcome
    assert "promoted" != run.judge(tmp_path / "strict.toml").outcome
    assert isinstance(run.verdict.workloads[0].checks[0], gatekeeper.Check)


def test_what_can_be_imported_is_listed_and_imported_late() -> None:
    """Each name of `__all__` exists, and importing the package imports none of what stands behind them."""
    probe = "import sys, gatekeeper; print([name for name in sys.modules if name.startswith('gatekeeper.')])"
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)

    assert "[]" == ran.stdout.strip()
    assert all(hasattr(gatekeeper, name) for name in gatekeeper.__all__)
    assert {*gatekeeper._MODULES, "load"} == {*gatekeeper.__all__}
    assert dataclasses.is_dataclass(gatekeeper.AnswerRow)
    with pytest.raises(AttributeError):
        _ = gatekeeper.nothing
