"""Whole runs with the prompt cache on, as deployed: times, faults and words of conversations that grow turn by turn."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import WORDS, ProjectFolder

Scripted = Callable[..., ProjectFolder]

EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
DEPLOYED = {
    "backend": "scripted",
    "target": "t",
    "drafts": ["heavy"],
    "script": "truth.json",
    "prompt_cache": "as-deployed",
}
PREFILLED = {"caches": True, "prefill": "5 s", "reread": {"plain": 0.1, "candidate": 0.1}}
"""A prompt takes long to read, and both arms save nine tenths of it where they resume a cache."""
OBJECTIVES = [
    {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"},
    {"metric": "ttft_delta", "at_most": 0.2, "why": "a reader waits for it"},
]


def checks_of(project: ProjectFolder) -> dict[str, dict[str, Any]]:
    """Return the checks of the first setting that was soaked, by metric."""
    workload = project.verdict()["workloads"][0]
    return {check["metric"]: check for check in (*workload["steps"], workload)[0]["checks"]}


def records(path: Path) -> list[dict[str, Any]]:
    *lines, closing = (json.loads(line) for line in path.read_text().splitlines())
    assert {"end": True, "records": len(lines)} == closing
    return lines


def empty(**where: Any) -> dict[str, Any]:
    return {"faults": [{"warm": True, "fault": "empty", **where}]}


CASES: dict[str, tuple[dict[str, Any], int, str, dict[str, str]]] = {
    "a sound server": ({}, 0, "promoted", {}),
    "empty in both arms": (empty(), 1, "failed", {"warm_cache_error_rate": "empty answer: it ended without content"}),
    "empty with the draft": (
        empty(arm="candidate"), 1, "failed", {"warm_cache_error_rate": "36 of 48 with the draft and 0 of 48 plainly"}
    ),
    "empty plainly": (
        empty(arm="plain"), 1, "failed", {"warm_cache_error_rate": "0 of 48 with the draft and 36 of 48 plainly"}
    ),
    "one turn stays empty": (empty(canary="easy-003+"), 1, "failed", {"warm_cache_error_rate": "failed, first"}),
    "a first token that the draft's cache does not help": (
        {"reread": {"plain": 0.1, "candidate": 1.0}}, 0, "graded_back",
        {"warm_cache_ttft_delta": "above the allowed", "warm_cache_turn_ratio": "below the required"},
    ),
    "other words": ({"warm": 0.6}, 0, "graded_back", {"warm_cache_agreement": "repeated answers"}),
}  # fmt: skip
"""What differs from a sound server, the exit code, the outcome, and what the failed checks say."""


@pytest.mark.parametrize("name", CASES)
def test_what_a_warm_cache_does_is_judged(scripted: Scripted, name: str) -> None:
    """Speed, first token and words are sound without a cache; what differs with it on is named and decides."""
    truth, code, outcome, failed = CASES[name]
    project = scripted({**PREFILLED, **truth}, workload=EASY, subject=DEPLOYED, objective=OBJECTIVES)

    project.run("certify", "slo.toml", "--out", "run", code=code)

    checks = checks_of(project)
    warm = {name: check for name, check in checks.items() if name.startswith("warm_cache")}
    assert outcome == project.verdict()["workloads"][0]["outcome"]
    assert {"throughput_ratio": "pass", "ttft_delta": "pass"} == {
        metric: checks[metric]["outcome"] for metric in ("throughput_ratio", "ttft_delta")
    }
    assert failed.keys() == {metric for metric, check in warm.items() if check["outcome"] == "fail"}
    assert all(words in warm[metric]["because"] for metric, words in failed.items())
    assert (1.16, 0.2) == (warm["warm_cache_turn_ratio"]["threshold"], warm["warm_cache_ttft_delta"]["threshold"])
    assert project.verdict() == project.run("judge", "run", "--json", code=code).document


def test_plain_decoding_is_sent_through_its_cache_too(scripted: Scripted) -> None:
    """A workload for which the sweep chose plain decoding fails where plain decoding's own cache spoils answers."""
    slow = {**PREFILLED, **empty(), "draft_token": {"heavy": "300 ms"}}
    project = scripted(slow, workload=EASY, subject=DEPLOYED, objective=OBJECTIVES)

    project.run("certify", "slo.toml", "--out", "run", code=1)

    workload = project.verdict()["workloads"][0]
    assert ("failed", []) == (workload["outcome"], workload["steps"])
    assert "36 of 48 plainly failed" in workload["because"]


def turn_lines() -> str:
    """Return eight conversations of six turns whose prompts grow by 160 words with each turn."""
    lines = []
    for number in range(8):
        messages: list[dict[str, Any]] = []
        for turn in range(1, 7):
            pasted = " ".join(WORDS[(number + turn + at) % len(WORDS)] for at in range(160))
            messages = [*messages, {"role": "user", "content": f"{number} {turn}: {pasted}"}]
            canary = {"id": f"talk-{number}-{turn}", "conversation": f"c{number}", "turn": turn, "messages": messages}
            expected = " ".join(WORDS[(number + at) % len(WORDS)] for at in range(12))
            lines.append(json.dumps(canary | {"max_tokens": 64, "expect": {"equals": expected}}))
            messages = [*messages, {"role": "assistant", "content": "Noted."}]
    return "\n".join(lines)


def test_too_few_conversations_prove_nothing(scripted: Scripted) -> None:
    """With four conversations the time of a turn has no interval, however many turns each has: the check is
    unproven.
    """
    talk = [{"name": "talk", "canaries": "easy.jsonl"}]
    project = scripted(PREFILLED, workload=talk, subject=DEPLOYED, objective=OBJECTIVES[:1])
    (project.path / "easy.jsonl").write_text("\n".join(turn_lines().splitlines()[: 4 * 6]))

    project.run("certify", "slo.toml", "--out", "run", code=3)

    check = checks_of(project)["warm_cache_turn_ratio"]
    assert ("unproven", "too few") == (check["outcome"], check["because"][:7])


def test_turns_are_shown_by_the_length_of_their_context(finished: Scripted) -> None:
    """A draft that gains on the whole and loses in long contexts is promoted up to where it is proven slower: the page
    and the report have a line for each length.
    """
    truth = {
        "caches": True,
        "canaries": {"talk-": {"acceptance": 0.75}},
        "slower": [{"axis": "context", "above": 720, "by": 2.5, "arm": "candidate"}],
    }
    talk = [{"name": "talk", "canaries": "easy.jsonl"}]
    objective = [{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must pay"}]
    project = finished(
        truth, canaries=turn_lines(), workload=talk, objective=objective, subject=DEPLOYED,
        sweep={"num_draft_tokens": [4], "repeats": 1}, soak={"duration": "600 s"},
    )  # fmt: skip

    (workload,) = project.verdict()["workloads"]
    (route,) = tomllib.loads((project.path / "run" / "policy.toml").read_text())["route"]
    contexts = workload["measured"]["contexts"]
    text, page = project.run("report", "run", "-v").out, (project.path / "run" / "report.html").read_text()
    assert ["pass", "fail"] == [context["outcome"] for context in contexts]
    assert contexts[-1]["least"] - 1 == route["longest_prompt"]
    assert all(context["acceptance_rate"]["lo"] > 0 for context in contexts)
    assert 2 == text.count("warm cache, prompts of")
    assert "#warm-cache" in page


def test_a_warm_cache_that_changes_nothing_is_promoted(finished: Scripted) -> None:
    """As deployed, every canary is sent without a cache, repeated and continued in both arms, and an exact cache keeps
    the promotion.
    """
    project = finished({"caches": True}, workload=EASY, subject=DEPLOYED)

    foreseen = project.run("plan", "slo.toml", "--json", code=0).document

    answers = records(project.path / "run" / "warm_cache-1.jsonl")
    turns = {
        arm: [answer["repeat"] for answer in answers if (answer["role"], answer["arm"]) == ("warm", arm)]
        for arm in ("candidate", "plain")
    }
    assert "promoted" == project.verdict()["workloads"][0]["outcome"]
    assert {"candidate": [0, 1, 2, 3] * 12, "plain": [0, 1, 2, 3] * 12} == turns
    assert 2 * 12 == sum(answer["role"] == "cold" for answer in answers)
    assert foreseen["expected_answers"]["warm_cache"] == len(answers)
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_a_warm_cache_that_changes_answers_is_graded_back(scripted: Scripted) -> None:
    """Exact with the cache off, not with it on: the draft is graded back for that reason alone, and a finding
    explains it.
    """
    project = scripted({"caches": True, "warm": 0.6}, workload=EASY, subject=DEPLOYED)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    (*_, last) = verdict["transitions"]
    assert "graded_back" == project.verdict()["workloads"][0]["outcome"]
    assert ["drafting off", "warm_cache_agreement"] == last["because"].split(": ")[:2]
    assert last["because"] == verdict["workloads"][0]["because"]
    assert "warm_cache_changes_answers" in {finding["kind"] for finding in verdict["findings"]}
    assert "token_agreement" not in json.dumps(verdict["transitions"])


def test_an_objective_on_the_warm_cache_replaces_the_implicit_one(scripted: Scripted) -> None:
    """An SLO with a lower bound relaxes the implicit objective of full agreement."""
    objectives = [{"metric": "warm_cache_agreement", "at_least": 0.0, "why": "informational"}]
    project = scripted({"caches": True, "warm": 0.6}, workload=EASY, subject=DEPLOYED, objective=objectives)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "promoted" == project.verdict()["workloads"][0]["outcome"]
    assert "repeated answers" in checks_of(project)["warm_cache_agreement"]["because"]


@pytest.mark.nightly
def test_the_warm_cache_is_compared_greedily_above_temperature_zero(scripted: Scripted) -> None:
    """Where the SLO samples, the warm answers are still asked for greedily: a cache that changes them is found."""
    objectives = [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}]
    hot = {"temperature": 0.8, "max_tokens": 64}
    project = scripted(
        {"caches": True, "warm": 0.5}, workload=EASY, subject=DEPLOYED, objective=objectives, sampling=hot
    )

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "graded_back" == project.verdict()["workloads"][0]["outcome"]
    assert "fail" == checks_of(project)["warm_cache_agreement"]["outcome"]


@pytest.mark.parametrize(
    ("truth", "cache", "reason"),
    [
        ({"caches": True}, "off", 'set prompt_cache = "as-deployed"'),
        ({"caches": False}, "as-deployed", "no prompt cache that gatekeeper can switch on"),
    ],
)
def test_a_cache_that_is_not_on_is_refused(scripted: Scripted, truth: dict[str, Any], cache: str, reason: str) -> None:
    """An objective on a cache that is off, or that the backend does not have, is exit code 2 before the first token."""
    objectives = [{"metric": "warm_cache_agreement", "at_least": 1, "why": "as deployed"}]
    subject = DEPLOYED | {"prompt_cache": cache}
    project = scripted(truth, workload=EASY, subject=subject, objective=objectives)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert reason in refused.err
    assert not (project.path / "run" / "soak-1.jsonl").exists()


def test_a_missing_warm_file_never_helps(finished: Scripted) -> None:
    """With its warm answers deleted, and new checksums, a promoted run is unproven and says which file is missing."""
    project = finished({"caches": True}, workload=EASY, subject=DEPLOYED)

    shutil.copytree(project.path / "run", project.path / "copy")
    (project.path / "copy" / "warm_cache-1.jsonl").unlink()
    RunDirectory(project.path / "copy").write_checksums()
    judged = project.run("judge", "copy", "--json").document

    assert (3, "unproven") == (judged["exit_code"], judged["workloads"][0]["outcome"])
    assert "warm_cache-1.jsonl: missing" in judged["incomplete"]


@pytest.mark.nightly
def test_a_resumed_run_asks_only_what_is_missing(scripted: Scripted) -> None:
    """Stopped in the middle of a conversation, a run resumes there: the soak is not repeated and no request is sent
    twice, but the turn before, which fills the cache of the new process and is not judged.
    """
    project = scripted({"caches": True}, workload=EASY, subject=DEPLOYED)
    project.run("certify", "slo.toml", "--out", "run", code=0)
    run = project.path / "run"
    soaked, warm_lines = (
        (run / "soak-1.jsonl").read_bytes(),
        (run / "warm_cache-1.jsonl").read_text().splitlines(keepends=True),
    )
    for name in ("SHA256SUMS", "verdict.json", "policy.toml", "junit.xml"):
        (run / name).unlink()
    for name in ("events.jsonl", "host.jsonl"):
        (run / name).write_text("".join((run / name).read_text().splitlines(keepends=True)[:-1]))
    (run / "warm_cache-1.jsonl").write_text("".join(warm_lines[:42]))

    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    again = records(run / "warm_cache-1.jsonl")
    assert soaked == (run / "soak-1.jsonl").read_bytes()
    assert warm_lines[:42] == (run / "warm_cache-1.jsonl").read_text().splitlines(keepends=True)[:42]
    warmed = [record["key"] for record in again if record["role"] == "warmup"]
    assert len(warm_lines) - 1 + len(warmed) == len(again) == len({record["key"] for record in again})
    assert [f"warmup-1-plain-1:easy/{again[41]['canary']}"] == warmed
    assert "promoted" == project.verdict()["workloads"][0]["outcome"]
