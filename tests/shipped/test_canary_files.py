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


def load(name: str) -> list[Json]:
    return [json.loads(line) for line in (CANARIES / f"{name}.jsonl").read_text("utf-8").splitlines()]


def prompt(canary: Json) -> str:
    return "\n".join(message["content"] for message in canary["messages"] if message["role"] != "system")


def calls(canary: Json) -> list[Json]:
    expect = canary["expect"]
    return [expect["tool_call"]] if "tool_call" in expect else expect["tool_calls"]


def test_top_level_sets_are_complete() -> None:
    """The sets for big models are these, with so many canaries as the README says of each."""
    counts = {path.stem: len(load(path.stem)) for path in CANARIES.glob("*.jsonl")}
    rows = re.findall(r"^- `(\w+)\.jsonl`: (\d+)", (CANARIES / "README.md").read_text("utf-8"), re.MULTILINE)

    assert counts == COUNTS == {name: int(count) for name, count in rows}


def test_ids_and_prompts_are_unique() -> None:
    """No canary is sent twice, in one set or in two: a repeat is not an independent item."""
    for names in ([name for name in COUNTS if name != DRAWN], [DRAWN]):
        every = [canary for name in names for canary in load(name)]

        assert len(every) == len({canary["id"] for canary in every})
        assert len(every) == len({" ".join(prompt(canary).lower().split()) for canary in every})


@pytest.mark.parametrize("name", COUNTS)
def test_expectations_can_fail(name: str) -> None:
    """Each is of one known kind, its regex compiles, and an empty, evasive or echoed answer does not pass."""
    for canary in load(name):
        if "expect" not in canary:
            assert name not in CHECKED_THROUGHOUT, canary["id"]
            continue
        (kind,) = canary["expect"]
        assert kind in {"regex", "equals", "json_schema", "tool_call", "tool_calls"}, canary["id"]
        if kind == "regex":
            echo = prompt(canary).rsplit("\n", 1)[-1] if name in {"math", "long", "reasoning"} else ""
            regex = re.compile(canary["expect"]["regex"])
            assert [] == [answer for answer in (*NO_ANSWERS, echo) if regex.search(answer)], canary["id"]


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
    """Each schema accepts the answer it was made from, and neither a missing key nor one too many."""
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
    """Each expected call names an offered tool, gives what it requires, and fits the parameters' schemas."""
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
    """There are enough canaries for `itl_p99` where four soaked settings share the error."""
    assert samples_needed(0.99, 1 - 0.05 / 4 / 3) <= COUNTS[DRAWN]
