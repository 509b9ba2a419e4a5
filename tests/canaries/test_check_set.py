"""What `canaries check` finds in a set."""

import json
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.canaries.check_set import check
from gatekeeper.core.errors import InputError
from tests.builders.project_folder import ROOT

TOPICS = [
    "river",
    "mountain",
    "harbour",
    "engine",
    "bakery",
    "orchard",
    "library",
    "market",
    "island",
    "garden",
    "castle",
    "tunnel",
]


def one(name: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "messages": [{"role": "user", "content": text}], "max_tokens": 64, **fields}


def write(folder: Path, lines: list[dict[str, Any]], name: str = "mine") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def good(count: int = 12) -> list[dict[str, Any]]:
    return [one(f"g{at}", f"Explain the {topic} of our town, {at}.") for at, topic in enumerate(TOPICS[:count])]


def kinds(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(problem["weight"], problem["kind"]) for problem in document["problems"]]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (one("x", "Explain the river of our town, 0."), ("error", "repeats")),
        (one("x", "Repeat this: the blue lantern", expect={"equals": "the blue lantern"}), ("error", "contaminated")),
        (one("x", "word " * 9000), ("error", "too long")),
        (one("x", "Say yes.", max_tokens=4), ("note", "too short")),
        (
            {
                **one("x", ""),
                "messages": [
                    {"role": "user", "content": "An object with a."},
                    {"role": "assistant", "content": '{"a": 1}'},
                    {"role": "user", "content": "Another one, please."},
                ],
                "expect": {"json_schema": {"type": "object", "required": ["a"]}},
            },
            ("error", "contaminated"),
        ),
    ],
    ids=["repeat", "equals", "long", "short", "earlier answer"],
)
def test_each_problem_is_found(tmp_path: Path, line: dict[str, Any], kind: tuple[str, str]) -> None:
    """One bad canary among good ones is named with what is wrong."""
    result = check([write(tmp_path, [*good(), line])], limit=8192)

    assert [kind] == kinds(result)
    assert "mine.jsonl x" == result["problems"][0]["where"]


def test_too_few_for_an_objective(tmp_path: Path) -> None:
    """With an SLO file, what its objectives cannot prove with this set is said as `plan` says it."""
    write(tmp_path, good())
    slo = tmp_path / "slo.toml"
    slo.write_text(
        'schema = 1\nname = "s"\n[subject]\nbackend = "openai"\ntarget = "t"\ndrafts = ["d"]\nurl = "http://127.0.0.1:9"\n'
        '[[workload]]\nname = "w"\ncanaries = "mine"\n'
        '[[objective]]\nmetric = "tpot_p95"\nat_most = "200 ms"\nwhy = "fast"\n'
    )

    result = check([tmp_path], limit=8192, slo=slo)

    assert [("error", "too few")] == kinds(result)
    assert "the workload has 12" in result["problems"][0]["message"]
    with pytest.raises(InputError, match="no workload of"):
        check([write(tmp_path, good(), "other")], limit=8192, slo=slo)


@pytest.mark.mlx
def test_a_tokenizer_counts_what_the_model_reads(tmp_path: Path) -> None:
    """The chat template, the tools and the calls count; without a tokenizer the length is a guess, and says so."""
    call = {"id": "1", "type": "function", "function": {"name": "locate", "arguments": "{}"}}
    talk = [{"role": "user", "content": "where?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    line = one("x", "list the planets of the sun from earth.")
    line["messages"] = [
        *line["messages"],
        *talk,
        {"role": "tool", "content": "here"},
        {"role": "user", "content": "ok."},
    ]
    path = write(tmp_path, [*good(), line])

    (counted,) = check([path], limit=100, tokenizer=ROOT / "models" / "little-target")["problems"]
    guessed = check([path], limit=80)["problems"]

    assert ("too long", "mine.jsonl x") == (counted["kind"], counted["where"])
    assert "take 1" in counted["message"]
    assert all("take about" in problem["message"] for problem in guessed)
    with pytest.raises(InputError, match="no tokenizer_config"):
        check([path], limit=100, tokenizer=tmp_path)
