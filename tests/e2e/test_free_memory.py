"""Memory that others hold before a run begins."""

import pytest

from tests.builders.project_folder import ProjectFolder
from tests.builders.real_pair import smoke


@pytest.fixture
def demanding(project: ProjectFolder) -> ProjectFolder:
    """A project whose SLO has a floor that no machine keeps."""
    smoke(project, only="json")
    text = (project.path / "slo.toml").read_text()
    floor = '[[objective]]\nmetric = "memory_headroom"\nat_least = "90 TB"\nwhy = "to see it"\n'
    (project.path / "slo.toml").write_text(f"{text}\n{floor}")
    return project


@pytest.mark.parametrize("target", ["little-target", "Qwen3-4B-4bit"])
def test_plan_says_at_once_what_holds_the_memory(demanding: ProjectFolder, target: str) -> None:
    """A headroom that is not there now is refused with the programs that hold most, also without models.

    Where NAME-used.toml lies beside the SLO, and this machine keeps its floor, its command is printed, and runs.
    """
    text = (demanding.path / "slo.toml").read_text().replace("little-target", target)
    (demanding.path / "slo.toml").write_text(text)
    (demanding.path / "smoke-used.toml").write_text(text.replace("90 TB", "1 MB"))

    planned = demanding.run("plan", "slo.toml", "--json", code=3).document["complaints"]

    (free,) = [complaint for complaint in planned if complaint["about"] == "free memory"]
    command = free["hint"].partition("to go on all the same: gatekeeper certify ")[2]
    assert ("not-here", True) == (free["weight"], "MB" in free["hint"] or "GB" in free["hint"])
    if target == "little-target":
        others = demanding.run("plan", command, "--json").document["complaints"]
        assert [] == [complaint for complaint in others if complaint["weight"] != "weak"]


@pytest.mark.mlx
def test_a_floor_that_cannot_be_kept_ends_the_run_before_the_first_token(demanding: ProjectFolder) -> None:
    """Exit code 3 in seconds: who holds the memory, and how to go on all the same; no run directory is made."""
    refused = demanding.run("certify", "slo.toml", "--out", "run", code=3)

    assert "most is held by" in refused.err
    assert "to go on all the same: write at_least =" in " ".join(refused.err.split())
    assert not (demanding.path / "run").exists()
