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
    """A headroom that this machine does not have now is refused by the plan with the programs that hold most, by name,
    also before the models were downloaded.
    """
    demand_memory(project, target)

    planned = project.run("plan", "slo.toml", "--json", code=3).document

    (free,) = [complaint for complaint in planned["complaints"] if complaint["about"] == "free memory"]
    assert "not-here" == free["weight"]
    assert "MB" in free["hint"] or "GB" in free["hint"]


@pytest.mark.mlx
def test_a_floor_that_cannot_be_kept_ends_the_run_before_the_first_token(project: ProjectFolder) -> None:
    """Exit code 3 in seconds: who holds the memory, and how to go on all the same; no run directory is made."""
    demand_memory(project)

    refused = project.run("certify", "slo.toml", "--out", "run", code=3)

    assert "most is held by" in refused.err
    assert "to go on all the same: write at_least =" in " ".join(refused.err.split())
    assert not (project.path / "run").exists()


def test_an_slo_with_floors_of_a_machine_in_use_is_the_way_on(project: ProjectFolder) -> None:
    """Where NAME-used.toml lies beside the SLO, and this machine keeps its floor, its command is printed, and runs."""
    demand_memory(project)
    text = (project.path / "slo.toml").read_text()
    (project.path / "smoke-used.toml").write_text(text.replace("90 TB", "1 MB"))

    hints = [complaint["hint"] for complaint in project.run("plan", "slo.toml", "--json").document["complaints"]]

    ((_, _, command),) = [
        hint.partition("to go on all the same: gatekeeper certify ") for hint in hints if "held" in hint
    ]
    assert [] == [
        complaint
        for complaint in project.run("plan", command, "--json").document["complaints"]
        if complaint["weight"] != "weak"
    ]
