"""Whole runs on the scripted subject: ten minutes of soak in a moment of real time."""

import hashlib
import html
import json
import tomllib
from collections.abc import Callable
from filecmp import cmp
from typing import Any

import pytest

from tests.builders.golden_words import says
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import BOTH, EASY, SLOW

Scripted = Callable[..., ProjectFolder]
OPTIONAL = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
SPLIT = {"easy": "promoted", "hard": "graded_back"}
ENDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str], str]] = {
    "one drafts well": (SLOW, {"workload": BOTH, "soak": {"duration": "600 s"}}, SPLIT, ""),
    "two processes": ({"shares_process": False}, {"workload": BOTH}, SPLIT, ""),
    "answers that fail": (
        {"faults": [{"every": 10, "arm": "candidate", "fault": "truncate"}]},
        {"workload": OPTIONAL}, {"easy": "graded_back"}, "error_rate",
    ),
    "other tokens": ({"agreement": 0.7}, {"workload": OPTIONAL}, {"easy": "graded_back"}, "token_agreement"),
}  # fmt: skip
"""The truth, the changes of the SLO, how each workload ends, and a word of why it stepped down."""


def outcomes(verdict: dict[str, Any]) -> dict[str, str]:
    return {workload["name"]: workload["outcome"] for workload in verdict["workloads"]}


@pytest.mark.parametrize("name", ENDS)
def test_each_workload_gets_its_own_verdict(scripted: Scripted, name: str) -> None:
    """What is predictable speculates, the rest decodes plainly, also for what the SLO does not name."""
    truth, changes, expected, because = ENDS[name]
    project = scripted(truth, **changes)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    assert expected == outcomes(verdict)
    assert any(because in step["because"] for step in verdict["transitions"])
    assert ("certification" if truth is SLOW else "demo") == verdict["grade"]


def test_json_prints_exactly_the_verdict(scripted: Scripted, demo: ProjectFolder) -> None:
    """`certify --json` and `judge --json` print verdict.json; the same script gives the same records again."""
    project = scripted(workload=BOTH)

    certified = project.run("certify", "slo.toml", "--out", "run", "--json", code=0)
    judged = project.run("judge", "run", "--json", code=0)

    stored = (project.path / "run" / "verdict.json").read_text()
    assert (stored, stored) == (certified.out, judged.out)
    once, again = (folder.path / "run" for folder in (demo, project))
    names = {path.name for path in (*once.glob("*.jsonl"), *again.glob("*.jsonl"))}
    assert [] == [name for name in names - {"events.jsonl", "host.jsonl"} if not cmp(once / name, again / name, False)]
    assert {"baseline.jsonl", "soak-1.jsonl"} < names


def test_policy_routes_each_workload(demo: ProjectFolder) -> None:
    """policy.toml names its verdict by checksum, routes each workload, and is off by default."""
    policy = tomllib.loads((demo.path / "run" / "policy.toml").read_text())

    for name in ("verdict", "manifest"):
        content = (demo.path / "run" / f"{name}.json").read_bytes()
        assert hashlib.sha256(content).hexdigest() == policy[f"{name}_sha256"]
    assert {"easy": True, "hard": False} == {route["workload"]: route["speculation"] for route in policy["route"]}
    assert {"speculation": False} == policy["default"]
    assert (demo.verdict()["grade"], True) == (policy["grade"], policy["issued"] < policy["expires"])


def test_the_ladder_is_climbed_down_and_certified_again(scripted: Scripted) -> None:
    """An objective missed in the soak alone steps to a shorter draft, then to a lighter one."""
    truth = {"acceptance": {"heavy": 0.55, "light": 0.95}, "canaries": {}, "ratio": 1.6}
    accepts = {"metric": "acceptance_rate", "at_least": 0.8, "why": "a draft that guesses wrong is the wrong draft"}
    project = scripted(truth, objective=[accepts], fallback={})

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    steps = [step["because"].split(":")[0] for step in verdict["transitions"]]
    assert ("lighter draft", "light") == (steps[-1], verdict["workloads"][0]["setting"]["draft"])
    assert len(steps) + 1 == len(list((project.path / "run").glob("soak-*.jsonl")))


def test_speculation_that_is_silently_off_is_never_promoted(scripted: Scripted) -> None:
    """A server that ignores the draft is not promoted, and every report says that it proposed nothing."""
    project = scripted({"engaged": False}, workload=EASY)

    certified = project.with_environment(GITHUB_ACTIONS="true").run("certify", "slo.toml", "--out", "run", code=1)

    annotations = "".join(line for line in certified.err.splitlines() if line.startswith("::"))
    reports = [project.run("report", "run", "--format", form).out for form in ("junit", "html", "markdown", "text")]
    assert {"easy": "graded_back"} == outcomes(project.verdict())
    assert 1 == [finding["kind"] for finding in project.verdict()["findings"]].count("silent_speculation")
    reason = project.verdict()["workloads"][0]["because"]
    says("sweeps", "no setting of a sweep proposes a token", reason)
    for text in (certified.out, annotations, *reports):
        assert reason.removeprefix("sweep: ") in html.unescape(" ".join(text.split()))


def test_a_sweep_has_the_trials_that_the_slo_asks_for(scripted: Scripted) -> None:
    """A grid is every combination, too large a one is refused, and a condition is compared with its own plain arm."""
    grid = {"design": "grid", "repeats": 1, "num_draft_tokens": [2, 4], "draft": ["heavy", "light"], "max_runs": 4}
    project = scripted(sweep=grid)
    planned = project.run("plan", "slo.toml", "--json", code=0).document["trials"]
    scripted(sweep={**grid, "max_runs": 3})
    refused = project.run("certify", "slo.toml", "--out", "run", code=2)
    scripted(sweep={"repeats": 1, "num_draft_tokens": [2], "temperature": [0.0, 0.7]})
    trials = project.run("plan", "slo.toml", "--json").document["trials"]

    assert (2 + 4, True) == (len(planned), "max_runs" in refused.err)
    warm = [trial["arm"] for trial in trials if trial["setting"].get("temperature") == 0.7]
    assert ["candidate", "plain"] == sorted(warm)


def test_the_soak_keeps_the_conditions_of_the_sweep(scripted: Scripted) -> None:
    """A condition set as the sweep's default holds in the soak too, in both arms."""
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4, "temperature": 0.3}}
    objective = {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}
    project = scripted(sweep=sweep, objective=[objective], visible_harm=0.9)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    lines = (project.path / "run" / "soak-1.jsonl").read_text().splitlines()[:-1]
    assert {0.3} == {dict(json.loads(line)["setting"])["temperature"] for line in lines}


def test_a_stage_alone_says_what_it_found(scripted: Scripted) -> None:
    """`--only sweep` names a setting for each workload; `--only soak --set` judges its one setting, and exits 0."""
    project, only = scripted(workload=BOTH), ("certify", "slo.toml", "--json", "--only")

    swept = project.run(*only, "sweep", "--out", "swept", code=0).document["workloads"]
    soaked = project.run(*only, "soak", "--set", "num_draft_tokens=2", "--out", "soaked", code=0)

    assert ({"draft": None}, "heavy") == (swept["hard"]["setting"], swept["easy"]["setting"]["draft"])
    assert not (project.path / "swept" / "verdict.json").exists()
    setting = {"draft": "heavy", "num_draft_tokens": 2}
    assert [setting, setting] == [workload["setting"] for workload in soaked.document["workloads"]]
    assert soaked.out == project.run("judge", "soaked", "--json").out


@pytest.mark.parametrize("load", ['idle = "52 s"', 'arrival = "open"\nrate = "0.02 /s"'])
def test_a_soak_with_pauses_lasts_its_whole_duration(scripted: Scripted, load: str) -> None:
    """However long the pause after an answer, requests are sent until one ends after the whole duration."""
    soak = {"duration": "600 s", "profile": "slow.toml", "baseline_share": 0.5}
    project = scripted(soak=soak, workload=[{"name": "easy", "canaries": "easy.jsonl", "first": 5}])
    (project.path / "slow.toml").write_text(f'schema = 1\nname = "slow"\n{load}\n')

    project.run("certify", "slo.toml", "--out", "run")

    assert "incomplete" not in project.verdict()


def test_judge_lays_another_slo_against_the_records(demo: ProjectFolder) -> None:
    """`judge --slo` judges the same measurements by a stricter objective; nothing is measured again."""
    slo = tomllib.loads((demo.path / "slo.toml").read_text())
    slo["objective"][0]["at_least"] = 50.0
    demo.write_slo(slo, "strict.toml")

    strict = demo.run("judge", "run", "--slo", "strict.toml", "--json", code=3)
    text = demo.run("judge", "run", "--slo", "strict.toml", code=3).out

    assert "report.html" not in text  # it says what the run's own SLO gave
    assert text.split()[-2:] == ["certify", "strict.toml"]
    assert "promoted" not in outcomes(strict.document).values()


def test_a_dozen_canaries_do_not_speak_for_all_prompts(scripted: Scripted) -> None:
    """One error in a thousand of all prompts is refused before a run, and unproven of good records."""
    project = scripted(fallback={})
    project.run("certify", "slo.toml", "--out", "run", code=0)
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    rare = {"metric": "error_rate", "at_most": 0.001, "scope": "population", "why": "for everybody's prompts"}
    project.write_slo({**slo, "objective": [*slo["objective"], rare]}, "beyond.toml")

    refused = project.run("certify", "beyond.toml", "--out", "other", code=2)
    judged = project.run("judge", "run", "--slo", "beyond.toml", "--json", code=3).document

    # 3 steps: ln(0.05 / 3) / ln(0.999)
    assert "add canaries, to 4093" in refused.err
    (check,) = (check for check in judged["workloads"][0]["checks"] if check["metric"] == "error_rate")
    assert ("unproven", 12, 0.0, 0.0) == tuple(check[key] for key in ("outcome", "n", "lo", "center"))
    assert 0.25 < check["hi"] < 0.35


def test_a_route_that_was_never_swept_has_no_gain(scripted: Scripted) -> None:
    """The best values of two knobs, combined, were not swept: no figure says what routing wins, and the reason does."""
    sweep = {"repeats": 1, "num_draft_tokens": [2, 6], "draft": ["heavy", "light"], "default": {"draft": "heavy"}}
    project = scripted(sweep=sweep, workload=BOTH)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    routing = project.verdict()["routing"]
    assert {"draft": "light", "num_draft_tokens": 6} == project.verdict()["workloads"][0]["setting"]
    assert "gain" not in routing
    says("sweeps", "a route that was never swept has no gain", routing["because"])


def test_a_swept_concurrency_has_the_speed_of_all_streams(scripted: Scripted) -> None:
    """Plain decoding that batches overtakes a draft that queues: the policy drafts for one stream alone."""
    truth = {"batching": {"plain": 0.02, "candidate": 1.0}, "canaries": {}, "acceptance": 0.9}
    project = scripted(truth, sweep={"repeats": 1, "num_draft_tokens": [4], "concurrency": [1, 8]}, workload=EASY)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    at_one, at_eight = project.verdict()["workloads"][0]["choice"]["by_concurrency"]
    policy = tomllib.loads((project.path / "run" / "policy.toml").read_text())
    assert (1, 8, 1) == (at_one["concurrency"], at_eight["concurrency"], policy["route"][0]["max_concurrency"])
    assert at_one["lo"] > 1 > at_eight["hi"]
