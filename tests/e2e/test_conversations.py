"""Conversations that grow, from the command line: a route ends where its gain does, whatever happens on the way."""

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import WORDS, ProjectFolder

TALK = [{"name": "talk", "canaries": "easy.jsonl"}]
TURNS, CONVERSATIONS, WORDS_A_TURN = 6, 8, 160
GAIN_ENDS = 550
"""Words of a prompt above which the planted draft is slower than plain decoding."""


def turn_lines() -> str:
    """Return conversations whose prompts grow by WORDS_A_TURN words with each turn."""
    lines = []
    for number in range(CONVERSATIONS):
        messages: list[dict[str, Any]] = []
        for turn in range(1, TURNS + 1):
            pasted = " ".join(WORDS[(number + turn + at) % len(WORDS)] for at in range(WORDS_A_TURN))
            messages = [*messages, {"role": "user", "content": f"{number} {turn}: {pasted}"}]
            canary = {"id": f"talk-{number}-{turn}", "conversation": f"c{number}", "turn": turn, "messages": messages}
            expected = " ".join(WORDS[(number + at) % len(WORDS)] for at in range(12))
            lines.append(json.dumps(canary | {"max_tokens": 64, "expect": {"equals": expected}}))
            messages = [*messages, {"role": "assistant", "content": "Noted."}]
    return "\n".join(lines)


@pytest.fixture
def folder(finished: Callable[..., ProjectFolder]) -> ProjectFolder:
    """The run of a draft that gains in short prompts, and loses in long ones."""
    truth = {
        "canaries": {"talk-": {"acceptance": 0.75}},
        "slower": [{"axis": "context", "above": GAIN_ENDS, "by": 2.4, "arm": "candidate"}],
    }
    objective = [{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must pay"}]
    sweep = {"num_draft_tokens": [4], "repeats": 1}
    soak = {"duration": "600 s"}
    return finished(truth, canaries=turn_lines(), workload=TALK, objective=objective, sweep=sweep, soak=soak)


def test_a_route_ends_where_its_gain_does(folder: ProjectFolder) -> None:
    """
    Short prompts gain and long ones lose: the policy speculates up to the longest turn of the last bin with a proven
    gain, the truth lies between that and the bin in which it ended, and the records give the same again. Each bin says
    how many turns were answered as expected.
    """
    talk = folder.verdict("run")["workloads"][0]
    policy = tomllib.loads((folder.path / "run" / "policy.toml").read_text())

    grown = talk["conversations"]
    assert grown["reach"] < GAIN_ENDS < grown["ends_by"], grown
    for context in grown["bins"]:
        assert {"candidate": context["turns"], "plain": context["turns"], "of": context["turns"]} == context["passed"]
    (route,) = policy["route"]
    assert grown["reach"] == route["longest_prompt"]
    assert talk == folder.run("judge", "run", "--json").document["workloads"][0]


def test_a_run_killed_in_a_conversation_goes_on(folder: ProjectFolder) -> None:
    """
    The answers so far are kept, the rest is asked, and the route is the same.
    """
    path = folder.path / "run" / "conversations.jsonl"
    turns = path.read_text().splitlines()
    talk = folder.verdict("run")["workloads"][0]["conversations"]
    shutil.copytree(folder.path / "run", folder.path / "cut")
    for name in ("verdict.json", "policy.toml", "SHA256SUMS"):
        (folder.path / "cut" / name).unlink()
    (folder.path / "cut" / "conversations.jsonl").write_text("\n".join([*turns[:40], turns[40][:30]]))
    events = (folder.path / "cut" / "events.jsonl").read_text().splitlines()
    (folder.path / "cut" / "events.jsonl").write_text("\n".join([*events[:-1], ""]))

    folder.run("certify", "slo.toml", "--resume", "--out", "cut", code=0)

    assert talk["reach"] == folder.verdict("cut")["workloads"][0]["conversations"]["reach"]
    assert len((folder.path / "cut" / "conversations.jsonl").read_text().splitlines()) >= len(turns)


def test_conversations_are_shown(folder: ProjectFolder) -> None:
    """
    The page has a section with a line of its own for each length, the report in text says where the gain ends, and
    `plan` says how long it takes.
    """
    plan = folder.run("plan", "slo.toml").out
    page = (folder.path / "run" / "report.html").read_text()

    says("reports", "the plan has conversations", re.sub("[0-9.]+ (s|min)", "#", lines_with("conversations", plan)))
    says(
        "reports", "a report says where a gain ends", lines_with("The gain ends", folder.run("report", "run", "-v").out)
    )
    bins = re.findall(r'data-head="Prompt, tokens"', page)
    assert "#conversations" in page
    assert 2 == len(bins)
