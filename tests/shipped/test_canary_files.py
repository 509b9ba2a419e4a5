"""The frozen prompt sets in `canaries/`: what a run may rely on before a model has read one of them."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest

from gatekeeper.analysis.stats.intervals import samples_needed
from gatekeeper.core.canary import parse
from gatekeeper.core.errors import InputError
from gatekeeper.core.system import inputs

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
CANARIES = ROOT / "canaries"
COUNTS = {
    "chat": 96,
    "code": 96,
    "instruction": 96,
    "json": 128,
    "languages": 48,
    "list": 96,
    "long": 96,
    "math": 96,
    "mixed": 576,
    "prose": 96,
    "qa": 96,
    "random": 96,
    "reasoning": 48,
    "sessions": 72,
    "tools": 128,
}
DRAWN = "mixed"
"""It holds canaries of other sets, so a workload has one or the other."""
CHECKED_THROUGHOUT = ("json", "languages", "list", "long", "math", "qa", "reasoning", "sessions", "tools")
NO_ANSWERS = ("", " ", "I do not know.", "Sorry, I cannot help with that.")
SHARED_CHARACTERS = (
    100  # a prompt cache works in blocks of tokens; a shorter common beginning saves nothing worth having
)


def load(name: str) -> list[Json]:
    return [json.loads(line) for line in (CANARIES / f"{name}.jsonl").read_text("utf-8").splitlines()]


def prompt(canary: Json) -> str:
    return "\n".join(message["content"] for message in canary["messages"] if message["role"] != "system")


def calls(canary: Json) -> list[Json]:
    expect = canary["expect"]
    return [expect["tool_call"]] if "tool_call" in expect else expect["tool_calls"]


def test_top_level_sets_are_complete() -> None:
    """The sets for big models are these, with these many canaries; `little/` is not among them."""
    counts = {path.stem: len(load(path.stem)) for path in CANARIES.glob("*.jsonl")}

    assert counts == COUNTS


@pytest.mark.parametrize("name", COUNTS)
def test_canary_has_the_keys_of_the_contract(name: str) -> None:
    """Each canary has an id, a prompt and a length limit, and no unknown key."""
    for canary in load(name):
        assert {"id", "category", "tier", "messages", "max_tokens"} <= set(canary), canary["id"]
        keys = {"id", "category", "tier", "messages", "max_tokens", "thinking", "tools", "expect"}
        keys |= {"conversation", "turn"}
        assert set(canary) <= keys, canary["id"]
        assert name in {canary["category"], DRAWN}
        assert canary["tier"] in {"short", "medium", "long"}
        assert 48 <= canary["max_tokens"] <= (2000 if canary.get("thinking") else 512), canary["id"]
        roles = [message["role"] for message in canary["messages"]]
        turns = roles[1:] if roles[0] == "system" else roles
        assert (["user", "assistant"] * len(turns))[: len(turns)] == turns, canary["id"]
        assert turns[-1] == "user"
        assert all(message["content"].strip() == message["content"] != "" for message in canary["messages"]), canary[
            "id"
        ]


def test_ids_and_prompts_are_unique() -> None:
    """No canary is sent twice, in one set or in two: a repeat is not an independent item."""
    for names in ([name for name in COUNTS if name != DRAWN], [DRAWN]):
        every = [canary for name in names for canary in load(name)]

        assert len(every) == len({canary["id"] for canary in every})
        assert len(every) == len({" ".join(prompt(canary).lower().split()) for canary in every})


@pytest.mark.parametrize("name", COUNTS)
def test_prompts_share_no_long_beginning(name: str) -> None:
    """A prompt cache finds nothing to reuse between two canaries of a set, system prompts, tools and later turns
    apart.
    """
    first = (canary for canary in load(name) if canary.get("turn", 1) == 1)
    beginnings = [prompt(canary)[:SHARED_CHARACTERS] for canary in first]

    assert len(beginnings) == len(set(beginnings))


@pytest.mark.parametrize("name", COUNTS)
def test_expectations_can_fail(name: str) -> None:
    """Each expectation is of one known kind, its regex compiles, and an empty or evasive answer does not pass."""
    for canary in load(name):
        if "expect" not in canary:
            assert name not in CHECKED_THROUGHOUT, canary["id"]
            continue
        (kind,) = canary["expect"]
        assert kind in {"regex", "equals", "json_schema", "tool_call", "tool_calls"}, canary["id"]
        if kind == "regex":
            regex = re.compile(canary["expect"]["regex"])
            assert [answer for answer in NO_ANSWERS if regex.search(answer)] == [], canary["id"]


@pytest.mark.parametrize("name", ["math", "qa", "long"])
def test_answers_do_not_fit_elsewhere(name: str) -> None:
    """An answer copied from the question alone fails: the regex does not match the question's own last line."""
    echoed = [
        canary["id"]
        for canary in load(name)
        if name != "qa" and re.search(canary["expect"]["regex"], prompt(canary).rsplit("\n", 1)[-1])
    ]

    assert echoed == []


def test_math_regex_tells_right_from_wrong() -> None:
    """Usual ways to write a right last line pass; the neighbouring number and the opposite sign do not."""
    regexes = {canary["id"]: canary["expect"]["regex"] for canary in load("math")}
    cents, negative = regexes["math-011"], regexes["math-055"]

    right = ["Answer: 121.5", "**Answer: 121.50**", "Answer: €121.50.", "so …\nAnswer: **$121.50**"]
    wrong = ["Answer: 121", "Answer: 1121.5", "Answer: 121.55", "Answer: -121.5", "121.5"]

    assert right == [text for text in right + wrong if re.search(cents, text)]
    assert [text for text in ["Answer: -11", "Answer: 11", "Answer: -110"] if re.search(negative, text)] == [
        "Answer: -11"
    ]


@pytest.mark.parametrize("name", ["long"])
def test_long_answers_stand_in_the_prompt(name: str) -> None:
    """A retrieval canary carries 900 to 2,000 words, and what it asks for stands in them."""
    for canary in load(name):
        text = prompt(canary)
        assert 900 <= len(text.split()) <= 2000, canary["id"]
        assert canary["tier"] == "long"
        assert re.search(canary["expect"]["regex"], text), canary["id"]


def test_reasoning_is_done_in_the_open() -> None:
    """Each puzzle thinks, has 2,000 tokens for it, and its own text does not hold what passes; the answer line does."""
    for canary in load("reasoning"):
        regex = canary["expect"]["regex"]
        assert (True, 2000) == (canary["thinking"], canary["max_tokens"])
        assert not re.search(regex, prompt(canary)), canary["id"]
        assert not re.search(regex, "Answer: 7654321 Nobody")


def test_a_mixed_language_chat_has_its_number() -> None:
    """Facts in one language, the question in another: the right count passes inside a sentence, its neighbours do
    not.
    """
    for canary in load("languages"):
        factor, each, broken = (int(text) for text in re.findall(r"\d+", prompt(canary).split(": ", 1)[1])[:3])
        right = factor * each - broken
        matching = [
            text
            for text in (f"{right}", f"Es sind {right}.", f"{right + 1}", f"1{right}", f"{right}5")
            if re.search(canary["expect"]["regex"], text)
        ]
        assert [f"{right}", f"Es sind {right}."] == matching, canary["id"]


def test_long_file_stays_small() -> None:
    """The long set stays below 1.5 MB, so that a wheel can carry it."""
    assert (CANARIES / "long.jsonl").stat().st_size < 1_500_000


def written(schema: Json) -> Any:
    """Return the one instance a pinned schema describes, with a word for each free text."""
    if "const" in schema:
        return schema["const"]
    if "properties" in schema:
        return {key: written(part) for key, part in schema["properties"].items() if key in schema["required"]}
    if "prefixItems" in schema:
        return [written(part) for part in schema["prefixItems"]]
    return [] if schema["type"] == "array" else "word"


def test_json_schemas_accept_the_right_answer_alone() -> None:
    """Each schema is valid, accepts the answer it was made from, and refuses nothing, a missing key and one key too
    many.
    """
    shapes = set()
    for canary in load("json"):
        schema = canary["expect"]["json_schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        right = written(schema)
        shapes.add(tuple(sorted(schema["properties"])))

        assert validator.is_valid(right), canary["id"]
        assert not validator.is_valid({}), canary["id"]
        assert not validator.is_valid(right | {"comment": "one key too many"}), canary["id"]
        assert not any(validator.is_valid({key: right[key] for key in right if key != missing}) for missing in right), (
            canary["id"]
        )

    assert len(shapes) >= 24


def test_expected_calls_fit_the_offered_tools() -> None:
    """Each expected call names an offered tool, gives what it requires, and every choice fits the parameter's
    schema.
    """
    names = set()
    for canary in load("tools"):
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in canary["tools"]}
        names |= set(offered)
        for parameters in offered.values():
            jsonschema.Draft202012Validator.check_schema(parameters)
        for call in calls(canary):
            parameters, arguments = offered[call["name"]], call["arguments"]
            assert set(parameters["required"]) <= set(arguments) <= set(parameters["properties"]), canary["id"]
            for key, choices in arguments.items():
                values = [choice for choice in choices if choice != ""]
                assert values, canary["id"]
                assert "" not in choices or key not in parameters["required"], canary["id"]
                for choice in values:
                    jsonschema.validate(choice, parameters["properties"][key])

    assert len(names) >= 12


def test_some_items_ask_for_parallel_calls() -> None:
    """Parallel calls are asked for often enough to matter, and each of them differs from its neighbours."""
    parallel = [calls(canary) for canary in load("tools") if "tool_calls" in canary["expect"]]

    assert len(parallel) >= 20
    assert all(len(group) == len({json.dumps(call) for call in group}) > 1 for group in parallel)


@pytest.mark.parametrize("name", COUNTS)
def test_readme_states_the_true_count(name: str) -> None:
    """The list in the README gives each file's count and what it checks."""
    row = re.search(rf"^- `{name}\.jsonl`: (\d+)", (CANARIES / "README.md").read_text("utf-8"), re.MULTILINE)

    assert row is not None
    assert str(COUNTS[name]) == row[1]


def test_the_sums_are_true() -> None:
    """`SHA256SUMS` names each set with its digest: schemas of these bytes are not checked again at each start."""
    sets = sorted(CANARIES.rglob("*.jsonl"), key=lambda path: (path.parent != CANARIES, path))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(CANARIES)}\n" for path in sets]

    assert "".join(sums) == (CANARIES / "SHA256SUMS").read_text("utf-8"), (
        "cd canaries && sha256sum *.jsonl little/*.jsonl > SHA256SUMS"
    )
    assert all(parse(path.read_text("utf-8"), path.name) for path in sets)


def test_a_changed_set_is_checked(tmp_path: Path) -> None:
    """A copy of a shipped set with a schema that is none is refused, by file and line."""
    slo = tmp_path / "slo.toml"
    slo.write_text((ROOT / "slos" / "smoke.toml").read_text("utf-8"), encoding="utf-8")
    (tmp_path / "little").mkdir()
    for path in (CANARIES / "little").iterdir():
        (tmp_path / "little" / path.name).write_bytes(
            path.read_bytes().replace(b'"type": "object"', b'"type": "thing"')
        )

    with pytest.raises(InputError, match="line 1:"):
        inputs.read(slo)


def test_the_mixed_set_can_bound_a_99_percent_quantile() -> None:
    """There are enough canaries for `itl_p99` at 95 % where four soaked settings and the looks at each share the
    error.
    """
    assert samples_needed(0.99, 1 - 0.05 / 4 / 3) <= COUNTS[DRAWN]
