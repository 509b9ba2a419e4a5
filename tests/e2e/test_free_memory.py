"""Memory that others hold before a run begins."""

import pytest

from tests.builders.project_folder import ProjectFolder
from tests.builders.real_pair import smoke


@pytest.mark.parametrize("target", ["little-target", "Qwen3-4B-4bit"])
def test_plan_says_at_once_what_holds_the_memory(project: ProjectFolder, target: str) -> None:
    """
    A headroom that this machine does not have now is a note of the plan with the programs that hold most, by name, also
    before the models were downloaded.
    """
    smoke(project, only="json")
    text = (project.path / "slo.toml").read_text().replace("little-target", target)
    (project.path / "slo.toml").write_text(
        f'{text}\n[[objective]]\nmetric = "memory_headroom"\nat_least = "1 TB"\nwhy = "to see it"\n'
    )

    planned = project.run("plan", "slo.toml", "--json").document

    (free,) = [complaint for complaint in planned["complaints"] if complaint["about"] == "free memory"]
    assert "weak" == free["weight"]
    assert "MB" in free["hint"] or "GB" in free["hint"]
