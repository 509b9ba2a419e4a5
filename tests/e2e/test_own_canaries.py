"""From a log of requests to a verdict: import, check, and certify with the imported sets by their names."""

import json
from collections.abc import Callable

from tests.builders.project_folder import ProjectFolder


def test_a_log_becomes_the_canaries_of_a_certificate(scripted: Callable[..., ProjectFolder]) -> None:
    """A proxy's log is imported and checked, the SLO names the sets, and both workloads are judged."""
    project = scripted()
    lines = [
        {
            "workload": kind,
            "request": {"messages": [{"role": "user", "content": f"Tell me about the {kind} {'xyz'[at % 3]}{at}."}]},
            "response": {"choices": [{"message": {"content": "word " * 20}}], "usage": {"completion_tokens": 24}},
        }
        for kind, count in (("easy", 36), ("hard", 12))
        for at in range(count)
    ]
    (project.path / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    done = project.run(
        "canaries", "import", "requests.jsonl", "-o", "canaries/mine", "-n", "12", "--json", code=0
    ).document
    project.run("canaries", "check", "canaries/mine", code=0)
    scripted(
        workload=[
            {"name": "easy", "canaries": "mine/easy"},
            {"name": "hard", "canaries": "mine/hard", "speculation": "optional"},
        ],
        soak={"duration": "150 s", "profile": "canaries/mine/profile.toml"},
    )
    project.run("canaries", "check", "canaries/mine", "--slo", "slo.toml", code=0)
    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert [12, 12] == [workload["canaries"] for workload in done["workloads"]]
    assert ["promoted", "graded_back"] == [workload["outcome"] for workload in project.verdict()["workloads"]]
    soaked = [json.loads(line).get("workload") for line in (project.path / "run" / "soak-1.jsonl").open()]
    assert soaked.count("easy") > 2 * soaked.count("hard")
