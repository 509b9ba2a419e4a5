"""An objective on the time of whole answers, from the command line to the page."""

from collections.abc import Callable

import pytest

from gatekeeper.core.metrics import BY_NAME
from tests.builders.project_folder import ProjectFolder, canary_lines

Scripted = Callable[..., ProjectFolder]
SMALLER = "a smaller target"


@pytest.mark.parametrize(("bound", "outcome", "code"), [("5 s", "pass", 0), ("100 ms", "fail", 1)])
def test_it_is_judged_and_shown_as_any_other_metric(scripted: Scripted, bound: str, outcome: str, code: int) -> None:
    """A bound is met or missed, the verdict, the text and the page name it, and what to do stands where it failed."""
    project = scripted(
        workload=[{"name": "easy", "canaries": "easy.jsonl", "speculation": "required"}],
        objective=[{"metric": "answer_latency_p95", "at_most": bound, "why": "a caller waits no longer"}],
        soak={"duration": "150 s", "max_duration": "20 min"},
    )
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 96))

    project.run("certify", "slo.toml", "--out", "run", code=code)

    (workload,) = project.verdict()["workloads"]
    checks = [*workload["checks"], *(check for step in workload["steps"] for check in step["checks"])]
    outcomes = {check["outcome"] for check in checks if check["metric"] == "answer_latency_p95"}
    text, page = (project.run("report", "run", "-v", "--format", name, code=0).out for name in ("text", "html"))
    assert {outcome} == outcomes
    assert "answer_latency_p95" in text
    assert BY_NAME["answer_latency_p95"].description in page
    assert (SMALLER in page) == (outcome == "fail")


def test_it_is_explained_and_found_by_other_names(project: ProjectFolder) -> None:
    """`metrics` lists it, `explain` has its formula, and the name that vLLM's benchmark gives it leads to it."""
    project.write_slo(
        {
            "schema": 1,
            "name": "renamed",
            "subject": {"backend": "scripted", "target": "t", "drafts": ["d"], "script": "truth.json"},
            "workload": [{"name": "w", "canaries": "w.jsonl"}],
            "objective": [{"metric": "e2el", "at_most": "5 s", "why": "as another tool calls it"}],
        }
    )

    assert "answer_latency_p95" in project.run("explain", "metrics", code=0).out
    assert "end - sent" in project.run("explain", "answer latency p95", code=0).out
    assert "'answer_latency_p95'" in project.run("plan", "slo.toml", code=2).err
