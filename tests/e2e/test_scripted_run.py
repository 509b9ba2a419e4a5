"""Whole runs on the scripted subject: ten minutes of soak in a moment of real time."""

import hashlib
import html
import json
import tomllib
from collections.abc import Callable
from filecmp import cmp
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.builders.golden_words import says
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import BOTH, EASY, SLOW

Scripted = Callable[..., ProjectFolder]


def outcomes(verdict: dict[str, Any]) -> dict[str, str]:
    return {workload["name"]: workload["outcome"] for workload in verdict["workloads"]}


def test_easy_is_promoted_and_hard_is_graded_back(scripted: Scripted) -> None:
    """Each workload gets its own verdict: the predictable one speculates, the unpredictable one decodes plainly."""
    project = scripted(SLOW, workload=BOTH, soak={"duration": "600 s"})

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    assert {"easy": "promoted", "hard": "graded_back"} == outcomes(verdict)
    assert (verdict["outcome"], verdict["exit_code"], verdict["grade"]) == ("promoted", 0, "certification")


def test_json_prints_exactly_the_verdict(scripted: Scripted, demo: ProjectFolder) -> None:
    """`certify --json` and `judge --json` print one document, the bytes of verdict.json; the same script gives the same
    records once more.
    """
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
    """policy.toml names the verdict it rests on by checksum, routes each workload, and is off by default; a soak under
    600 s is graded "demo" in both.
    """
    policy = tomllib.loads((demo.path / "run" / "policy.toml").read_text())
    digests = {
        name: hashlib.sha256((demo.path / "run" / f"{name}.json").read_bytes()).hexdigest()
        for name in ("verdict", "manifest")
    }
    assert {name: policy[f"{name}_sha256"] for name in digests} == digests
    assert {route["workload"]: route["speculation"] for route in policy["route"]} == {"easy": True, "hard": False}
    assert {"speculation": False} == policy["default"]
    assert policy["issued"] < policy["expires"]
    assert (demo.verdict()["grade"], policy["grade"]) == ("demo", "demo")


def test_every_record_file_closes_with_its_count(demo: ProjectFolder) -> None:
    """The last line of every record file counts its records, and plan.json names the sweep's files."""
    run = demo.path / "run"
    plan = json.loads((run / "plan.json").read_text())
    for path in sorted(run.glob("*.jsonl")):
        *records, closing = path.read_text().splitlines()
        assert {"end": True, "records": len(records)} == json.loads(closing)
    assert {trial["file"] for trial in plan["trials"]} <= {path.name for path in run.glob("*.jsonl")}


def test_a_required_workload_that_is_graded_back_blocks(scripted: Scripted) -> None:
    """A workload that requires speculation and ends in plain decoding is exit code 1, with a policy that says off."""
    workloads = [{"name": "hard", "canaries": "hard.jsonl"}]
    project = scripted(workload=workloads)

    project.run("certify", "slo.toml", "--out", "run", code=1)

    policy = tomllib.loads((project.path / "run" / "policy.toml").read_text())
    assert "graded_back" == project.verdict()["outcome"]
    assert [route["speculation"] for route in policy["route"]] == [False]


def test_plain_decoding_that_fails_is_failed(scripted: Scripted) -> None:
    """Where even plain decoding misses an objective there is nothing to grade back to."""
    objective = {"metric": "ttft", "at_most": "1 ms", "why": "no wait"}
    project = scripted(objective=[objective])

    project.run("certify", "slo.toml", "--out", "run", code=1)

    assert "failed" == project.verdict()["outcome"]


def test_the_ladder_is_climbed_down_and_certified_again(scripted: Scripted) -> None:
    """A draft that misses an objective only in the soak steps to a shorter one, then a lighter one, each soaked
    anew.
    """
    # Acceptance decays in the first minutes; the light draft is made of better stuff.
    truth = {
        "acceptance": {"heavy": 0.55, "light": 0.95},
        "canaries": {},
        "ratio": 1.6,
    }
    objectives = [
        {"metric": "acceptance_rate", "at_least": 0.8, "why": "a draft that guesses wrong is the wrong draft"}
    ]
    project = scripted(truth, objective=objectives, fallback={})

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    steps = [step["because"].split(":")[0] for step in verdict["transitions"]]
    assert (steps[-1], verdict["workloads"][0]["setting"]["draft"]) == ("lighter draft", "light")
    assert len(steps) + 1 == len(list((project.path / "run").glob("soak-*.jsonl")))
    assert all(step["at"] for step in verdict["transitions"])


def test_another_host_is_unproven_and_said_first(scripted: Scripted) -> None:
    """An SLO for another host proves nothing here: exit code 3, no policy, reported before the first token."""
    project = scripted(host={"chip": "Apple M9 Ultra", "memory_gb": 9999})

    ran = project.run("certify", "slo.toml", "--out", "run", code=3)

    assert "unproven" == project.verdict()["outcome"]
    assert not (project.path / "run" / "policy.toml").exists()
    assert ran.err.index("Apple M9 Ultra") < ran.err.index("soak-1")


def test_faults_fail_the_implicit_objective(scripted: Scripted) -> None:
    """A draft whose answers fail now and then is not promoted, although the SLO has no objective on errors."""
    truth = {"faults": [{"every": 10, "arm": "candidate", "fault": "truncate"}]}
    project = scripted(truth, workload=[{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}])

    project.run("certify", "slo.toml", "--out", "run")

    verdict = project.verdict()
    assert outcomes(verdict)["easy"] != "promoted"
    assert any("error_rate" in step["because"] for step in verdict["transitions"])


def test_speculation_that_is_silently_off_is_never_promoted(scripted: Scripted) -> None:
    """A server that decodes plainly whatever draft is set is not promoted, and every report says why: not that it is
    1.00x
    as fast, but that its draft proposed nothing, with what this server usually lacks.
    """
    project = scripted({"engaged": False}, workload=EASY)

    certified = project.with_environment(GITHUB_ACTIONS="true").run("certify", "slo.toml", "--out", "run", code=1)

    annotations = "".join(line for line in certified.err.splitlines() if line.startswith("::"))
    reports = [project.run("report", "run", "--format", form).out for form in ("junit", "html", "markdown", "text")]
    assert {"easy": "graded_back"} == outcomes(project.verdict())
    assert 1 == [finding["kind"] for finding in project.verdict()["findings"]].count("silent_speculation")
    reason = project.verdict()["workloads"][0]["because"]
    says("sweeps", "no setting of a sweep proposes a token", reason)
    for text in (certified.out, annotations, *reports):
        words = html.unescape(" ".join(text.split()))
        assert reason.removeprefix("sweep: ") in words


def test_other_tokens_than_plain_decoding_are_found(scripted: Scripted) -> None:
    """One canary whose greedy tokens differ breaks token agreement, and the workload steps down to plain."""
    workload = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
    project = scripted({"agreement": 0.7}, workload=workload)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    assert {"easy": "graded_back"} == outcomes(verdict)
    assert any("token_agreement" in step["because"] for step in verdict["transitions"])


def test_two_processes_are_compared_in_blocks(scripted: Scripted) -> None:
    """Where the arms cannot share a process, plain blocks lie before, midway and after the soak."""
    project = scripted({"shares_process": False}, workload=BOTH)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    lines = [json.loads(line) for line in (project.path / "run" / "soak-1-1.jsonl").read_text().splitlines()[:-1]]
    roles = [line["role"] for line in lines if line["arm"] == "plain" and line["role"] != "warmup"]
    assert {"block"} == set(roles)
    assert {"easy": "promoted", "hard": "graded_back"} == outcomes(project.verdict())


@pytest.mark.nightly
def test_concurrency_is_judged_by_the_system(scripted: Scripted) -> None:
    """With eight clients, plain decoding that batches beats a draft that queues, although each answer looks faster."""
    truth = {"batching": {"plain": 0.02, "candidate": 1.0}, "ratio": 1.6, "canaries": {}}
    project = scripted(
        truth,
        workload=[{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}],
        soak={"duration": "600 s", "concurrency": 8},
        objective=[{"metric": "system_throughput_ratio", "at_least": 1.05, "why": "eight people share it"}],
    )

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert {"easy": "graded_back"} == outcomes(project.verdict())


def test_grid_sweeps_every_combination(scripted: Scripted) -> None:
    """Design = "grid" runs all combinations, and says how many before it begins; too many are refused."""
    sweep = {"design": "grid", "repeats": 1, "num_draft_tokens": [2, 4], "draft": ["heavy", "light"], "max_runs": 4}
    project = scripted(sweep=sweep)

    foreseen = project.run("plan", "slo.toml", "--json", code=0).document
    project.run("certify", "slo.toml", "--out", "run", code=0)
    project.write_slo({**tomllib.loads((project.path / "slo.toml").read_text()), "sweep": {**sweep, "max_runs": 3}})
    refused = project.run("certify", "slo.toml", "--out", "other", code=2)

    assert len(foreseen["trials"]) == 2 + 4
    assert "max_runs" in refused.err


def test_conditions_are_swept_in_both_arms(scripted: Scripted) -> None:
    """A condition moves plain decoding too: every candidate is compared with plain decoding under the same
    condition.
    """
    project = scripted(sweep={"repeats": 1, "num_draft_tokens": [2], "temperature": [0.0, 0.7]})

    project.run("certify", "slo.toml", "--out", "run", code=0)

    plan = json.loads((project.path / "run" / "plan.json").read_text())
    warm = next(trial for trial in plan["trials"] if trial["name"] == "temperature-0.7")
    twin = next(trial for trial in plan["trials"] if trial["name"] == warm["twin"])
    assert (twin["arm"], twin["setting"]["temperature"]) == ("plain", 0.7)


@pytest.mark.parametrize("form", ["json", "junit", "text"])
def test_reports_are_rendered_from_the_records(demo: ProjectFolder, form: str) -> None:
    """`report` renders a finished run in every format."""
    rendered = demo.run("report", "run", "--format", form, code=0).out

    assert "easy" in rendered
    if form == "junit":
        root = ET.fromstring(rendered)  # noqa: S314 (our own output)
        assert (root.get("failures"), root.get("errors")) == ("0", "0")
        assert rendered == (demo.path / "run" / "junit.xml").read_text()


def test_sweep_alone_says_what_it_would_choose(scripted: Scripted) -> None:
    """`--only sweep` stops after the sweep, writes no verdict, and names a setting per workload."""
    project = scripted(workload=BOTH)

    document = project.run("certify", "slo.toml", "--only", "sweep", "--out", "run", "--json", code=0).document

    assert {"draft": None} == document["workloads"]["hard"]["setting"]
    assert "heavy" == document["workloads"]["easy"]["setting"]["draft"]
    assert not (project.path / "run" / "verdict.json").exists()


def test_soak_alone_judges_the_setting_it_was_given(scripted: Scripted) -> None:
    """`--only soak --set` soaks one setting without a sweep, exits 0 whatever it saw, and can be judged again."""
    project = scripted(workload=BOTH)

    ran = project.run(
        "certify", "slo.toml", "--only", "soak", "--set", "num_draft_tokens=2", "--out", "run", "--json", code=0
    )

    settings = {workload["name"]: workload["setting"] for workload in ran.document["workloads"]}
    expected = {"draft": "heavy", "num_draft_tokens": 2}
    assert {"easy": expected, "hard": expected} == settings
    assert ran.out == project.run("judge", "run", "--json").out


@pytest.mark.parametrize("load", ['idle = "40 s"', 'idle = "52 s"', 'arrival = "open"\nrate = "0.02 /s"'])
def test_a_soak_with_pauses_lasts_its_whole_duration(scripted: Scripted, load: str) -> None:
    """However long the pause after an answer, requests are sent until one ends after the whole duration."""
    project = scripted(
        soak={"duration": "600 s", "profile": "slow.toml", "baseline_share": 0.5},
        workload=[{"name": "easy", "canaries": "easy.jsonl", "first": 5}],
    )
    (project.path / "slow.toml").write_text(f'schema = 1\nname = "slow"\n{load}\n')

    project.run("certify", "slo.toml", "--out", "run")

    assert "incomplete" not in project.verdict()


def test_judge_lays_another_slo_against_the_records(demo: ProjectFolder) -> None:
    """`judge --slo` judges the same measurements by a stricter objective; nothing is measured again."""
    slo = tomllib.loads((demo.path / "slo.toml").read_text())
    slo["objective"][0]["at_least"] = 50.0
    demo.write_slo(slo, "strict.toml")

    strict = demo.run("judge", "run", "--slo", "strict.toml", "--json")
    text = demo.run("judge", "run", "--slo", "strict.toml", code=3).out

    assert 3 == strict.code
    assert "report.html" not in text  # it says what the run's own SLO gave
    assert text.split()[-2:] == ["certify", "strict.toml"]
    assert "promoted" not in outcomes(strict.document).values()


def test_a_dozen_canaries_do_not_speak_for_all_prompts(scripted: Scripted) -> None:
    """At most one error in a thousand, of all prompts: refused before the run with the number it takes, and unproven
    where
    it is asked of records that are as good as they can be.
    """
    project = scripted(fallback={})
    project.run("certify", "slo.toml", "--out", "run", code=0)
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["objective"].append(
        {"metric": "error_rate", "at_most": 0.001, "scope": "population", "why": "for everybody's prompts"}
    )
    project.write_slo(slo, "beyond.toml")

    refused = project.run("certify", "beyond.toml", "--out", "other", code=2)
    judged = project.run("judge", "run", "--slo", "beyond.toml", "--json", code=3).document

    # 3 steps: ln(0.05 / 3) / ln(0.999)
    assert "add canaries, to 4093" in refused.err
    (check,) = (check for check in judged["workloads"][0]["checks"] if check["metric"] == "error_rate")
    assert ("unproven", 12, 0.0, 0.0) == tuple(check[key] for key in ("outcome", "n", "lo", "center"))
    assert 0.25 < check["hi"] < 0.35


def test_the_soak_keeps_the_conditions_of_the_sweep(scripted: Scripted) -> None:
    """A condition set as the sweep's default holds in the soak too, in both arms."""
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4, "temperature": 0.3}}
    objective = {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}
    project = scripted(sweep=sweep, objective=[objective], visible_harm=0.9)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    lines = (project.path / "run" / "soak-1.jsonl").read_text().splitlines()[:-1]
    assert {0.3} == {dict(json.loads(line)["setting"])["temperature"] for line in lines}


@pytest.mark.nightly
def test_a_soak_that_goes_on_keeps_its_process(scripted: Scripted) -> None:
    """A process that warms up over 1000 s would begin again with every part of a soak, and never settle."""
    warms_up = {"of": "time", "by": 0.65 - 1, "over": "1000 s", "arm": "candidate", "since": "start"}
    project = scripted(
        {"drift": [warms_up], "noise": {"answer": 0.05}},
        workload=EASY,
        soak={"duration": "600 s", "max_duration": "3600 s", "baseline_drift": 0.05},
    )

    project.run("certify", "slo.toml", "--out", "run", code=0)

    parts = sorted(path.name for path in (project.path / "run").glob("soak-1*.jsonl"))
    assert len(parts) > 1, parts
