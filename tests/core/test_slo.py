"""SLO files: what is wrong is said with file, line, key, what is allowed, and the nearest word."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core import slo
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.slo import Profile
from gatekeeper.core.toml_file import line_of
from tests.builders.golden_words import says

GOOD = """\
schema = 1
name = "made"

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy", "light"]
script = "truth.json"

[[workload]]
name = "tools"
canaries = "tools.jsonl"

[[workload]]
name = "prose"
canaries = "prose.jsonl"

[sweep]
num_draft_tokens = [2, 4]

[soak]
duration = "600 s"

[[objective]]
metric = "throughput_ratio"
at_least = 1.16
why = "it must pay"

[[objective]]
metric = "itl_p95"
at_most = "45 ms"
workloads = ["tools"]
why = "people wait"
"""


def refused(old: str, new: str) -> InputError:
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        slo.parse(GOOD.replace(old, new, 1), "m4.toml")
    return caught.value


def line(text: str) -> int:
    return GOOD[: GOOD.index(text)].count("\n") + 1


def test_a_good_file() -> None:
    """Units are read, tables keep their order, and what is left out has the contract's default."""
    parsed = slo.parse(GOOD, "m4.toml")

    assert (600.0, 120.0, 0.95, 0.045) == (
        parsed.soak.duration,
        parsed.soak.window_s,
        parsed.confidence,
        parsed.objective[1].threshold,
    )
    assert ["required", "required"] == [workload.speculation for workload in parsed.workload]
    assert ("shrink-draft", "lighter-draft", "autoregressive") == parsed.fallback.ladder
    assert (30 * 86400.0, 3600.0, 0.2) == (
        parsed.promote.valid_for,
        parsed.soak.max_duration,
        parsed.soak.baseline_share,
    )


WRONG = {
    "unknown key": ('why = "it must pay"', 'wy = "x"\nwhy = "it must pay"', "objective[1].wy: unknown key", "'why'"),
    "unknown table": ("[soak]", "[soaks]", "soaks: unknown key", "'soak'"),
    "unknown metric": ('"itl_p95"', '"itl_p955"', "unknown metric 'itl_p955'", "'itl_p95'"),
    "unknown workload": ('["tools"]', '["tool"]', "unknown workload 'tool'", "'tools'"),
    "unknown backend": ('"scripted"', '"scriptd"', "unknown backend 'scriptd'", "'scripted'"),
    "unknown draft": ("num_draft_tokens = [2, 4]", 'draft = ["heavi"]', "'heavi' is not one", "'heavy'"),
    "missing key": ('why = "it must pay"\n', "", "objective[1].why: missing", "why"),
    "missing table": ('[[objective]]\nmetric = "throughput_ratio"', "[[workload]]", "", ""),
    "wrong type": ("[2, 4]", '["two"]', "sweep.num_draft_tokens", ""),
    "duplicate value": ("[2, 4]", "[2, 2]", "listed twice", ""),
    "negative value": ("[2, 4]", "[-2, 4]", "-2 is negative", ""),
    "zero length": ("[2, 4]", "[0, 4]", "must be greater than 0", ""),
    "negative bound": ("at_least = 1.16", "at_least = -1.16", "never below 0", ""),
    "impossible bound": ("at_least = 1.16", "at_least = nan", "finite", ""),
    "two bounds": ("at_least = 1.16", "at_least = 1.16\nat_most = 2", "exactly one of at_least, at_most", ""),
    "no bound": ("at_least = 1.16\n", "", "exactly one of at_least, at_most", ""),
    "wrong unit": ('"45 ms"', '"45 GB"', "cannot read '45 GB'", ""),
    "unknown unit": ('"45 ms"', '"45 msec"', "cannot read '45 msec'", "did you mean '45 ms'?"),
    "a unit near none": ('"45 ms"', '"45 furlong"', "cannot read '45 furlong'", "one of these units"),
    "empty why": ('why = "it must pay"', 'why = ""', "objective[1].why", ""),
    "duplicate workload": ('"prose"', '"tools"', "two workloads have the same name", ""),
    "bad duration": ('"600 s"', '"ten minutes"', "cannot read 'ten minutes'", ""),
    "zero duration": ('"600 s"', "0", "soak.duration", ""),
    "short maximum": ('"600 s"', '"600 s"\nmax_duration = "60 s"', "max_duration is shorter", ""),
    "another schema": ("schema = 1", "schema = 2", "schema", ""),
    "a step twice": (
        "[soak]",
        '[fallback]\nladder = ["shrink-draft", "shrink-draft"]\n[soak]',
        "a step is listed twice",
        "",
    ),
    "plain not last": (
        "[soak]",
        '[fallback]\nladder = ["autoregressive", "shrink-draft"]\n[soak]',
        "autoregressive must be the last step",
        "",
    ),
    "certain": ('name = "made"', 'name = "made"\nconfidence = 1.0', "confidence", ""),
    "meaningless when": ("at_least = 1.16", 'at_least = 1.16\nwhen = "always"', "not defined for plain", "remove"),
    "no way to set it": ('target = "t"', 'target = "t"\nkv_bits = 8', "kv_bits cannot be set for this backend", "mlx"),
    "host with workloads": (
        'metric = "itl_p95"\nat_most = "45 ms"',
        'metric = "memory_headroom"\nat_least = "1 GB"',
        "for the whole run",
        "",
    ),
    "a path as name": ('name = "made"', 'name = "../made"', "name", ""),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said(wrong: str) -> None:
    """An input error, code 2, that names the file and the trouble, and hints at the nearest word where there is one."""
    old, new, says, hint = WRONG[wrong]

    error = refused(old, new)

    assert error.message.startswith("m4.toml")
    assert says in error.message
    assert hint in error.hint
    assert 2 == error.exit_code


@pytest.mark.parametrize(
    "metric", [metric for metric in ALL if metric.population is False], ids=lambda metric: metric.name
)
def test_a_fact_of_the_run_has_no_population(metric: Metric) -> None:
    """What no canary carries (the host, the soak's windows, a p-value) is refused for a population, with what to do."""
    promise = f'metric = "{metric.name}"\nat_least = 0.0\nscope = "population"'

    error = refused('metric = "throughput_ratio"\nat_least = 1.16', promise)

    assert 2 == error.exit_code
    says("core", "a fact of the run has no population", error.message, name=metric.name)
    assert "remove `scope`" == error.hint
    assert slo.parse(
        GOOD.replace('metric = "throughput_ratio"\nat_least = 1.16', promise.replace("population", "frozen"), 1),
        "m4.toml",
    )


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ('why = "it must pay"', 'wy = "it must pay"', 'why = "it must pay"'),
        ('"itl_p95"', '"itl_p955"', 'metric = "itl_p95"'),
        ("[2, 4]", "[2, 2]", "num_draft_tokens"),
        ('why = "it must pay"\n', "", "[[objective]]"),  # what is not there has no line; its table has
        ("schema = 1", "schema = = 1", "schema"),
    ],
)
def test_the_line_is_the_one_that_is_wrong(old: str, new: str, at: str) -> None:
    """The editor can jump there: the line of the key, in the table it stands in."""
    assert f"line {line(at)}" in refused(old, new).message


def test_several_mistakes_are_said_at_once() -> None:
    """All errors are listed, not only the first."""
    text = GOOD.replace("at_least = 1.16\n", "atleast = 1.16\n").replace('"600 s"', '"600 parsecs"')

    with pytest.raises(InputError) as caught:
        slo.parse(text, "m4.toml")

    assert 2 <= len(caught.value.message.splitlines())


@given(st.text(max_size=120))
def test_any_text_is_refused_as_input(text: str) -> None:
    """Whatever the file holds, it is an InputError, never another error."""
    with pytest.raises(InputError):
        slo.parse(text, "m4.toml")


LINED = """\
# a comment
top = 1
[table]
key = 1
[table.inner]
key = 2
[[many]]
key = 3
[[many]]
key = 4
[many.sub]
key = 5
inline = { deep = 1 }
list = [
  1,
]
"""


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (("top",), 2),
        (("table",), 3),
        (("table", "key"), 4),
        (("table", "inner", "key"), 6),
        (("many",), 7),
        (("many", 0), 7),
        (("many", 0, "key"), 8),
        (("many", 1, "key"), 10),
        (("many", 1, "sub", "key"), 12),
        (("many", 1, "sub", "inline", "deep"), 13),
        (("many", 1, "sub", "list", 0), 14),
        (("many", 1, "gone"), 9),
        (("nowhere",), 1),
    ],
)
def test_line_of_finds_keys_in_their_tables(path: tuple[str | int, ...], number: int) -> None:
    """The same key in many tables has many lines; what is not written has that of its nearest parent."""
    assert tomllib.loads(LINED)
    assert number == line_of(LINED, path)


@pytest.mark.parametrize(
    "change",
    [
        {"arrival": "open"},
        {"rate": "1 /s"},
        {"mix": {}},
        {"mix": {"a": -1.0}},
        {"mix": {"a": 0.0}},
        {"idle": "-1 s"},
        {"background": {"memory": "-1 GB"}},
        {"rat": 1},
    ],
)
def test_an_impossible_profile_is_refused(change: dict[str, Any]) -> None:
    """A rate without open arrival, an empty mix, negative loads and unknown keys are mistakes."""
    with pytest.raises(ValueError, match="validation error"):
        Profile.model_validate({"schema": 1, "name": "p", **change})


def test_a_mix_has_weights_of_workloads_of_tiers_and_of_the_rest() -> None:
    """A workload's own weight comes before its tier's, and that before `*`; without it, the others have no weight."""
    mixed = Profile.model_validate({"schema": 1, "name": "p", "mix": {"a": 5.0, "tier:long": 3.0, "*": 1.0}})
    bare = Profile.model_validate({"schema": 1, "name": "p", "mix": {"a": 3.0}})

    assert [5.0, 3.0, 1.0] == [mixed.weight(*where) for where in (("a", "long"), ("b", "long"), ("b", "short"))]
    assert (("long",), 0.0) == (mixed.tiers, bare.weight("b", "medium"))
