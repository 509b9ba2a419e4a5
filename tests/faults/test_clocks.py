"""A wall clock that jumps in the middle of a run: figures rest on the monotonic clock, dates fail closed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gatekeeper import host
from gatekeeper.core.clock import VirtualClock
from tests.builders.disk import at_line
from tests.builders.project_folder import ProjectFolder
from tests.builders.small_run import gist, small, stored

HOUR, YEAR = timedelta(hours=1), timedelta(days=365)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFolder:
    """A run whose dates are about now."""
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 10.0)
    return small(tmp_path)


def certified(project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, out: str, jump: timedelta) -> None:
    """Make a run during whose soak the wall clock jumps."""
    started, wall = datetime.now(UTC), VirtualClock.wall
    offset = [started - wall(VirtualClock())]
    with monkeypatch.context() as patch:
        patch.setattr(VirtualClock, "wall", lambda clock: wall(clock) + offset[0])
        at_line(patch, "soak-1.jsonl", 5, lambda: offset.append(offset.pop() + jump))
        project.run("certify", "slo.toml", "--out", out, code=0)


@pytest.mark.parametrize(
    ("jump", "code", "reason"),
    [
        pytest.param(HOUR, 3, "not_yet_valid", id="an hour ahead"),
        pytest.param(-HOUR, 0, "admitted", id="an hour back"),
        pytest.param(8 * YEAR, 3, "not_yet_valid", id="eight years ahead"),
        pytest.param(-8 * YEAR, 3, "expired", id="eight years back"),
    ],
)
def test_a_jump_in_mid_soak_changes_no_figure(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, jump: timedelta, code: int, reason: str
) -> None:
    """The verdict is that of a run without a jump; a certificate of the future, or of long ago, is not admitted."""
    certified(project, monkeypatch, "steady", timedelta())
    certified(project, monkeypatch, "run", jump)

    steady, jumped = (stored(project.path / name)["verdict.json"] for name in ("steady", "run"))
    judged = project.run("judge", "run", "--json", code=0)
    admitted = project.run("admit", "slo.toml", "--run", "run", "--grade", "demo", "--json")

    assert gist(steady) == gist(jumped) == gist(judged.out.encode())
    assert (code, reason) == (admitted.code, admitted.document["reason"])
