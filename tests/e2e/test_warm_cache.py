"""Whole runs with the prompt cache on, as deployed: times, faults and words of conversations that grow turn by turn."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import WORDS, ProjectFolder

Scripted = Callable[..., ProjectFolder]

EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
TALK = [{"name": "talk", "canaries": "easy.jsonl"}]
DEPLOYED = {
    "backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json", "prompt_cache": "as-deployed"
}  # fmt: skip
PREFILLED = {"caches": True, "prefill": "5 s", "reread": {"plain": 0.1, "candidate": 0.1}}
"""A prompt takes long to read, and both arms save nine tenths of it where they resume a cache."""
PAYS = {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}
OBJECTIVES = [PAYS, {"metric": "ttft_delta", "at_most": 0.2, "why": "a reader waits for it"}]
ANY_WORDS = {"metric": "warm_cache_agreement", "at_least": 0.0, "why": "informational"}


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

    checks, verdict = checks_of(project), project.verdict()
    warm = {name: check for name, check in checks.items() if name.startswith("warm_cache")}
    assert outcome == verdict["workloads"][0]["outcome"]
    assert ["pass", "pass"] == [checks[metric]["outcome"] for metric in ("throughput_ratio", "ttft_delta")]
    assert failed.keys() == {metric for metric, check in warm.items() if check["outcome"] == "fail"}
    assert all(words in warm[metric]["because"] for metric, words in failed.items())
    assert (1.16, 0.2) == (warm["warm_cache_turn_ratio"]["threshold"], warm["warm_cache_ttft_delta"]["threshold"])
    kinds = {finding["kind"] for finding in verdict["findings"]}
    assert (name == "other words") == ("warm_cache_changes_answers" in kinds)
    assert verdict == project.run("judge", "run", "--json", code=code).document


def test_plain_decoding_is_sent_through_its_cache_too(scripted: Scripted) -> None:
    """A workload for which the sweep chose plain decoding fails where plain decoding's own cache spoils answers."""
    slow = {**PREFILLED, **empty(), "draft_token": {"heavy": "300 ms"}}
    project = scripted(slow, workload=EASY, subject=DEPLOYED, objective=OBJECTIVES)

    project.run("certify", "slo.toml", "--out", "run", code=1)

    workload = project.verdict()["workloads"][0]
    assert ("failed", []) == (workload["outcome"], workload["steps"])
    assert "36 of 48 plainly failed" in workload["because"]


def turn_lines(conversations: int = 8) -> str:
    """Return conversations of six turns whose prompts grow by 160 words with each turn."""
    lines = []
    for number in range(conversations):
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
    """With four conversations the time of a turn has no interval: unproven."""
    project = scripted(PREFILLED, workload=TALK, subject=DEPLOYED, objective=OBJECTIVES[:1])
    (project.path / "easy.jsonl").write_text(turn_lines(4))

    project.run("certify", "slo.toml", "--out", "run", code=3)

    check = checks_of(project)["warm_cache_turn_ratio"]
    assert ("unproven", "too few") == (check["outcome"], check["because"][:7])


def test_turns_are_shown_by_the_length_of_their_context(scripted: Scripted) -> None:
    """A draft that loses in long contexts is promoted up to where it is proven slower."""
    truth = {
        "caches": True,
        "canaries": {"talk-": {"acceptance": 0.75}},
        "slower": [{"axis": "context", "above": 720, "by": 2.5, "arm": "candidate"}],
    }
    project = scripted(
        truth, workload=TALK, objective=[PAYS | {"at_least": 1.0}], subject=DEPLOYED,
        sweep={"num_draft_tokens": [4], "repeats": 1}, soak={"duration": "600 s"},
    )  # fmt: skip
    (project.path / "easy.jsonl").write_text(turn_lines())

    project.run("certify", "slo.toml", "--out", "run", code=0)

    contexts = project.verdict()["workloads"][0]["measured"]["contexts"]
    (route,) = tomllib.loads((project.path / "run" / "policy.toml").read_text())["route"]
    assert ["pass", "fail"] == [context["outcome"] for context in contexts]
    assert contexts[-1]["least"] - 1 == route["longest_prompt"]
    assert all(context["acceptance_rate"]["lo"] > 0 for context in contexts)
    assert 2 == project.run("report", "run", "-v").out.count("warm cache, prompts of")
    assert "#warm-cache" in (project.path / "run" / "report.html").read_text()


def test_a_warm_cache_that_changes_nothing_is_promoted(scripted: Scripted) -> None:
    """Every canary is sent cold, repeated and continued in both arms; without these records nothing is proven."""
    project = scripted({"caches": True}, workload=EASY, subject=DEPLOYED)
    project.run("certify", "slo.toml", "--out", "run", code=0)
    foreseen = project.run("plan", "slo.toml", "--json", code=0).document
    file = project.path / "run" / "warm_cache-1.jsonl"

    answers = records(file)
    outcome = project.verdict()["workloads"][0]["outcome"]
    file.unlink()
    RunDirectory(file.parent).write_checksums()
    without = project.run("judge", "run", "--json", code=3).document

    for arm in ("candidate", "plain"):
        turns = [answer["repeat"] for answer in answers if (answer["role"], answer["arm"]) == ("warm", arm)]
        assert [0, 1, 2, 3] * 12 == turns
    assert ("promoted", 2 * 12) == (outcome, sum(answer["role"] == "cold" for answer in answers))
    assert foreseen["expected_answers"]["warm_cache"] == len(answers)
    assert "unproven" == without["workloads"][0]["outcome"]
    assert "warm_cache-1.jsonl: missing" in without["incomplete"]


def test_an_objective_on_the_warm_cache_replaces_the_implicit_one(scripted: Scripted) -> None:
    """An SLO with a lower bound relaxes the implicit objective of full agreement."""
    project = scripted({"caches": True, "warm": 0.6}, workload=EASY, subject=DEPLOYED, objective=[ANY_WORDS])

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "promoted" == project.verdict()["workloads"][0]["outcome"]


@pytest.mark.parametrize(
    ("caches", "cache", "reason"),
    [
        (True, "off", 'set prompt_cache = "as-deployed"'),
        (False, "as-deployed", "no prompt cache that gatekeeper can switch on"),
    ],
)
def test_a_cache_that_is_not_on_is_refused(scripted: Scripted, cache: str, reason: str, *, caches: bool) -> None:
    """An objective on a cache that is off, or that the backend does not have, is exit code 2 before the first token."""
    subject = DEPLOYED | {"prompt_cache": cache}
    project = scripted({"caches": caches}, workload=EASY, subject=subject, objective=[ANY_WORDS | {"at_least": 1}])

    assert reason in project.run("certify", "slo.toml", "--out", "run", code=2).err
