"""Policy files: read as a person left them, and what is wrong is said with file, line, key and the nearest word."""

from datetime import UTC, datetime

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.core.policy import parse

GOOD = """\
schema = 1
slo = "made"
grade = "certification"
manifest_sha256 = "abc"
verdict_sha256 = "def"
issued = "2026-01-01T00:00:00.000000Z"
expires = "2026-01-31T00:00:00.000000Z"

[default]
speculation = false

[conditions]
backend = "llama-server"
target = "t"
prompt_cache = "off"
concurrency = 1
max_tokens = 256

[watch]
interval = "30 s"

[[route]]
workload = "tools"
speculation = true
because = "it pays"
[route.setting]
draft = "heavy"
num_draft_tokens = 4
[[route.ladder]]
step = "shrink-draft"
draft = "heavy"
num_draft_tokens = 2
[route.measured]
throughput_ratio = { center = 1.4, lo = 1.3, hi = 1.5, n = 24 }

[[route]]
workload = "prose"
speculation = false
because = "it does not"
[route.setting]

[[guard]]
metric = "memory_headroom"
at_least = "8 GB"
for = "2 min"

[[guard]]
metric = "acceptance_rate"
at_least = "40 %"
for = 90
over = "10 min"
missing_for = "5 min"
workloads = ["tools"]
why = "below it the draft costs more than it brings"
"""


def test_units_are_read_at_the_door() -> None:
    """Units: "2 min", "8 GB" and "40 %" are 120 s, 8e9 B and 0.4; a bare number is in base units already."""
    headroom, acceptance = parse(GOOD, "policy.toml").guard

    assert (120.0, 8e9) == (headroom.for_, headroom.threshold)
    assert (90.0, 0.4, 600.0, 300.0) == (
        acceptance.for_,
        acceptance.threshold,
        acceptance.over,
        acceptance.missing_for,
    )


def test_the_steps_go_down_to_plain_decoding() -> None:
    """The certified setting, what the ladder names, and plain decoding."""
    policy = parse(GOOD, "policy.toml")

    assert [4, 2, None] == [dict(step).get("num_draft_tokens") for step in policy.route_of("tools").steps]
    assert ((("draft", None),),) == policy.route_of("prose").steps
    assert not policy.route_of("poems").speculation, "what has no route decodes plainly"
    assert [False, True] == [policy.has_expired(datetime(2026, 1, day, 23, tzinfo=UTC)) for day in (30, 31)]


def test_a_guard_of_the_host_guards_every_route() -> None:
    """Memory does not ask which workload it is; acceptance guards the workloads that it names."""
    policy = parse(GOOD, "policy.toml")

    assert ["memory_headroom", "acceptance_rate"] == [guard.metric for guard in policy.guards_of("tools")]
    assert ["memory_headroom"] == [guard.metric for guard in policy.guards_of("prose")]


@pytest.mark.parametrize(
    ("before", "after", "sentence", "hint"),
    [
        ('metric = "acceptance_rate"', 'metric = "acceptance_rat"', "line 48: guard[2].metric", "'acceptance_rate'?"),
        ('metric = "acceptance_rate"', 'metric = "itl_p95"', "guards cannot watch the metric 'itl_p95'", "allowed: "),
        ('at_least = "8 GB"', 'at_lest = "8 GB"', "line 44: guard[1].at_lest: unknown key", "'at_least'?"),
        ('at_least = "8 GB"', 'at_least = "8 s"', "cannot read '8 s'", ""),
        ('at_least = "8 GB"', 'at_most = "8 GB"', "at_most is no guard", "write at_least"),
        ('at_least = "8 GB"', "", "exactly one of at_least, at_most", ""),
        ('at_least = "40 %"', "at_least = 1.4", "never above 1", ""),
        ('at_least = "40 %"', "at_least = nan", "line 49: guard[2].at_least", ""),
        ('for = "2 min"\n', "", "guard[1].for: missing", "add for"),
        ('for = "2 min"', 'for = "2 GB"', "cannot read '2 GB'", ""),
        ('workloads = ["tools"]', 'workloads = ["tool"]', "guard[2].workloads: no route 'tool'", "'tools'?"),
        ('for = "2 min"', 'for = "2 min"\nworkloads = ["tools"]', "for the whole host", "remove `workloads`"),
        (
            '[route.setting]\ndraft = "heavy"\n',
            "[route.setting]\n",
            "speculation = true and no draft",
            "set setting.draft",
        ),
        ('step = "shrink-draft"\ndraft = "heavy"\n', 'step = "shrink-draft"\n', "ends every ladder", "remove it"),
        ('workload = "prose"', 'workload = "tools"', "two routes have the same workload", ""),
        ("[default]\nspeculation = false", "[default]\nspeculation = true", "default.speculation", ""),
        ('interval = "30 s"', 'intervall = "30 s"', "line 20: watch.intervall: unknown key", "'interval'?"),
        ('interval = "30 s"', "duty = 0", "line 20: watch.duty", ""),
        ('interval = "30 s"', 'missing_for = "10 s"', "missing_for is shorter than interval", ""),
        ('interval = "30 s"', 'quiet_most = "10 s"', "quiet_most is shorter than quiet_for", ""),
        ('interval = "30 s"', "on_change = [[]]", "starts with a program", "/path/to/program"),
        ('expires = "2026-01-31T00:00:00.000000Z"', 'expires = "soon"', "line 7: expires", ""),
        ('expires = "2026-01-31T00:00:00.000000Z"', 'expires = "2026-01-31T00:00:00"', "line 7: expires", ""),
        ("schema = 1", "schema = 2", "line 1: schema", ""),
        ("num_draft_tokens = 2\n", "num_draft_tokens = 2\ntemperature = 1.0\n", "temperature: unknown key", ""),
        ("[watch]", "[watch", "not TOML", "correct that line"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(before: str, after: str, sentence: str, hint: str) -> None:
    """File, line and key of the mistake, and what to write instead; exit code 2."""
    assert before in GOOD

    with pytest.raises(InputError) as caught:
        parse(GOOD.replace(before, after, 1), "mine.toml")

    assert caught.value.message.startswith("mine.toml")
    assert sentence in caught.value.message
    assert hint in caught.value.hint
