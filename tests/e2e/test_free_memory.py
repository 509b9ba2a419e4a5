"""Memory that others hold before a run begins."""

import pytest

from tests.builders.project_folder import ProjectFolder
from tests.builders.real_pair import smoke


def demand_memory(project: ProjectFolder, target: str = "little-target") -> None:
    """Write an SLO with a floor that no machine keeps."""
    smoke(project, only="json")
    text = (project.path / "slo.toml").read_text().replace("little-target", target)
    (project.path / "slo.toml").write_text(
        f'{text}\n[[objective]]\nmetric = "memory_headroom"\nat_least = "90 TB"\nwhy = "to see it"\n'
    )


@pytest.mark.parametrize("target", ["little-target", "Qwen3-4B-4bit"])
def test_plan_says_at_once_what_holds_the_memory(project: ProjectFolder, target: str) -> None:
    """
    A headroom that this machine does not have now is refused by the plan with the programs that hold most, by name,
    also before the models were downloaded.
    """
    demand_memory(project, target)

    planned = project.run("plan", "slo.toml", "--json", code=3).document

    (free,) = [complaint for complaint in planned["complaints"] if complaint["about"] == "free memory"]
    assert "not-here" == free["weight"]
    assert "MB" in free["hint"] or "GB" in free["hint"]


@pytest.mark.mlx
def test_a_floor_that_cannot_be_kept_ends_the_run_before_the_first_token(project: ProjectFolder) -> None:
    """
    Exit code 3 in seconds: who holds the memory, and how to go on all the same; no run directory is made.
    """
    demand_memory(project)

    refused = project.run("certify", "slo.toml", "--out", "run", code=3)

    assert "most is held by" in refused.err
    assert "to go on all the same, lower memory_headroom to" in " ".join(refused.err.split())
    assert not (project.path / "run").exists()
