"""From a log of requests to a verdict: import, check, and certify with the imported sets by their names."""

import json
from collections.abc import Callable

from tests.builders.place import Place


def test_a_log_becomes_the_canaries_of_a_certificate(scripted: Callable[..., Place]) -> None:
    """
    The log of a proxy is imported and checked; the SLO names the sets and the profile, and both workloads are judged.
    """
    place = scripted()
    lines = [
        {
            "workload": kind,
            "request": {"messages": [{"role": "user", "content": f"Tell me about the {kind} {'xyz'[at % 3]}{at}."}]},
            "response": {"choices": [{"message": {"content": "word " * 20}}], "usage": {"completion_tokens": 24}},
        }
        for kind, count in (("easy", 36), ("hard", 12))
        for at in range(count)
    ]
    (place.path / "requests.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))

    done = place.run(
        "canaries", "import", "requests.jsonl", "-o", "canaries/mine", "-n", "12", "--json", code=0
    ).document
    place.run("canaries", "check", "canaries/mine", code=0)
    scripted(
        workload=[
            {"name": "easy", "canaries": "mine/easy"},
            {"name": "hard", "canaries": "mine/hard", "speculation": "optional"},
        ],
        soak={"duration": "150 s", "profile": "canaries/mine/profile.toml"},
    )
    place.run("canaries", "check", "canaries/mine", "--slo", "slo.toml", code=0)
    place.run("certify", "slo.toml", "--out", "run", code=0)

    assert [12, 12] == [one["canaries"] for one in done["workloads"]]
    assert ["promoted", "graded_back"] == [one["outcome"] for one in place.verdict()["workloads"]]
    soaked = [json.loads(line).get("workload") for line in (place.path / "run" / "soak-1.jsonl").open()]
    assert soaked.count("easy") > 2 * soaked.count("hard")
