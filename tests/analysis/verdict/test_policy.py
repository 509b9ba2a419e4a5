"""What may be deployed."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.analysis.plan.settings import PLAIN
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.policy.certified_policy import issue_policy
from gatekeeper.analysis.verdict.run_verdict import Measured, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Check, Estimate, Finding, FindingKind, Missing, Outcome
from gatekeeper.core.policy import Policy, parse
from gatekeeper.core.records import Event, EventKind
from gatekeeper.report.policy_toml import render
from gatekeeper.report.run_document import fold_conditions
from tests.builders.golden_words import lines_with, says
from tests.builders.manifest import manifest
from tests.builders.slo import near, objective, slo

GOLDEN = Path(__file__).parent / "golden"
SETTING = {"draft": "heavy", "num_draft_tokens": 4}
ISSUED = datetime(2026, 1, 1, tzinfo=UTC)
SOAKED = Measured(
    {
        "throughput_ratio": Estimate(1.48, 1.41, 1.62, 24),
        "decode_throughput": Estimate(55.0, 53.0, 58.0, 24),
        "acceptance_rate": Estimate(0.95, 0.93, 0.97, 24),
        "canary_pass_rate": Estimate(1.0, 0.97, 1.0, 120),
    },
    answers=120,
    claimed=True,
)
ASKING = (
    {"id": "a", "messages": [{"role": "user", "content": "x"}]},
    {"id": "b", "messages": [{"role": "user", "content": "y"}], "thinking": False, "stop": "END"},
    {
        "id": "c",
        "messages": [{"role": "user", "content": "z"}],
        "tools": [{"type": "function", "function": {"name": "book_room"}}],
        "tool_choice": {"type": "function", "function": {"name": "book_room"}},
    },
    {
        "id": "d",
        "messages": [{"role": "user", "content": "z"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "logit_bias": {"7": -100, "a b": 1},
    },
)
"""Canaries that ask for different things."""


def ended(name: str, outcome: str, **more: Any) -> WorkloadVerdict:
    knobs = SETTING if outcome == "promoted" else {"draft": None}
    return WorkloadVerdict(
        name, WorkloadOutcome(outcome), knobs, checks=(), required=False, because=f"{name} is {outcome}", **more
    )


def choice_at(lows: Mapping[int, float | None]) -> Choice:
    """The choice of a sweep whose ratios have these lower ends, by concurrency; None: not measured."""
    ratios = tuple(
        (streams, Estimate(1.5, low, 2.0, 24) if low is not None else Missing("no pairs"))
        for streams, low in lows.items()
    )
    return Choice(PLAIN, "", by_streams=ratios)


def written(*workloads: WorkloadVerdict, host: tuple[Check, ...] = (), **changes: Any) -> dict[str, Any]:
    return tomllib.loads(render(certified(*workloads, host=host, **changes)))


def certified(*workloads: WorkloadVerdict, host: tuple[Check, ...] = (), **changes: Any) -> Policy:
    verdict = Verdict("made", "certification", "abc", workloads, host)
    if any(workload.name == "hard" for workload in workloads):
        changes |= {
            "workload": [{"name": workload.name, "canaries": f"{workload.name}.jsonl"} for workload in workloads]
        }
    run_manifest = manifest(backend="scripted", sight=("COLD",))
    return issue_policy(slo(**changes), verdict, run_manifest, (), verdict_sha256="def", issued=ISSUED)


@pytest.mark.parametrize("outcome", ["graded_back", "failed", "unproven"])
def test_nothing_else_turns_speculation_on(outcome: str) -> None:
    """Every other outcome is off, with its reason and without a guard."""
    policy = written(ended("easy", outcome))

    assert [(False, f"easy is {outcome}")] == [(route["speculation"], route["because"]) for route in policy["route"]]
    assert [] == policy["guard"]


def test_a_host_that_failed_turns_every_route_off() -> None:
    """Memory that ran out does not ask which workload it was."""
    failed = Check("memory_headroom", "at_least", 1e10, Outcome.FAIL, unit="B", because="short", why="it must fit")

    policy = written(ended("easy", "promoted"), host=(failed,))

    assert ([False], []) == ([route["speculation"] for route in policy["route"]], policy["guard"])


@pytest.mark.parametrize(("passed_with", "warm"), [(None, (None, None)), ("warm-up", (True, 10.0))])
def test_a_check_that_passed_with_a_warm_up_makes_it_an_obligation(
    passed_with: str | None, warm: tuple[bool | None, float | None]
) -> None:
    """A route needs a warm-up only where its first token kept its bound with one, and says after which pause."""
    first = Check(
        "ttft_delta",
        "at_most",
        0.08,
        Outcome.PASS,
        unit="1",
        because="in time",
        why="people wait",
        passed_with=passed_with,
    )

    policy = written(replace(ended("easy", "promoted"), checks=(first,)))

    assert warm == tuple(policy["route"][0].get(key) for key in ("warm_up", "warm_up_after"))


def test_objectives_become_guards() -> None:
    """What can be watched in production is guarded with its own bound and reason, over the acceptance window."""
    objectives = [
        objective("acceptance_window_min", at_least=0.4, workloads=["easy"]),
        objective("decode_throughput", at_least=20),
        objective("itl_p95", at_most=0.045),
    ]

    policy = written(ended("easy", "promoted"), objective=objectives)

    why = "a test promises it"
    assert [
        {"metric": "acceptance_rate", "at_least": 0.4, "for": 120.0, "why": why, "workloads": ["easy"]},
        {"metric": "decode_throughput", "at_least": 20.0, "for": 120.0, "why": why},
    ] == policy["guard"][:2]
    assert ["error_rate"] == [guard["metric"] for guard in policy["guard"][2:]]


def test_objectives_of_the_host_become_guards_with_their_own_stretch() -> None:
    """Swap over as long as the soak was, pressure over twice its bound."""
    objectives = [
        objective("memory_headroom", at_least="10 GB"),
        objective("memory_pressure_critical", at_most="10 s"),
        objective("swap_growth", at_most="256 MB"),
        objective("throttle_time", at_most=0),
    ]

    policy = written(ended("easy", "promoted"), objective=objectives)

    assert [
        ("memory_headroom", 1e10, None, 300.0),
        ("memory_pressure_critical", 10.0, 80.0, 300.0),
        ("swap_growth", 256e6, 600.0, 300.0),
        ("throttle_time", 0.0, 600.0, 300.0),
    ] == [
        (guard["metric"], guard.get("at_least", guard.get("at_most")), guard.get("over"), guard["missing_for"])
        for guard in policy["guard"][:4]
    ]


SLOW = Measured({"throughput_ratio": Estimate(1.08, 1.05, 1.11, 24)}, answers=120)
LOW = Measured({"acceptance_rate": Estimate(0.32, 0.3, 0.35, 24)}, answers=120)
LATENCY = objective("itl_p95", at_most=0.045)
WATCHED: dict[str, tuple[list[dict[str, Any]], Measured, dict[str, float]]] = {
    "speed 10 % and acceptance 25 % below the soak's lower bound, errors at 5 %": (
        [LATENCY], SOAKED,
        {"throughput_ratio": 1.269, "acceptance_rate": 0.6975, "canary_pass_rate": 0.9, "error_rate": 0.05},
    ),
    "a ratio never below plain decoding": ([LATENCY], SLOW, {"throughput_ratio": 1.0, "error_rate": 0.05}),
    # No failure in 20 answers leaves 13.9 % possible (1 - 0.05 ** (1 / 20)).
    **{
        f"errors of {answers} answers": ([LATENCY], Measured(answers=answers), {"error_rate": bound})
        for answers, bound in ((1000, 0.05), (20, 0.139108), (0, 0.05))
    },
    **{
        f"the tighter of {bounds}": (
            [
                *(objective("error_rate", at_most=bound) for bound in bounds),
                *(objective("acceptance_rate", at_least=bound) for bound in bounds),
            ],
            Measured(), {"error_rate": 0.05, "acceptance_rate": 0.2},
        )
        for bounds in ((0.05, 0.2), (0.2, 0.05))
    },
    "the soak's median where it lies below its windows": (
        [objective("acceptance_window_min", at_least=0.4)], LOW, {"acceptance_rate": 0.225, "error_rate": 0.05},
    ),
    "nothing of the other side of a ratio": (
        [objective("throughput_ratio", at_most=3.0)], Measured(), {"error_rate": 0.05},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WATCHED)
def test_what_is_guarded(case: str) -> None:
    """Objectives by their own bound, and what no objective bounds as it was measured."""
    objectives, measured, expected = WATCHED[case]

    guards = written(ended("easy", "promoted", measured=measured), objective=objectives)["guard"]

    assert expected == {guard["metric"]: near(guard.get("at_least", guard.get("at_most"))) for guard in guards}


@pytest.mark.parametrize("outcome", ["promoted", "graded_back"])
def test_the_text_is_the_policy_and_can_be_read_back(outcome: str) -> None:
    """Comments and layout change nothing: the file parses to the policy that was derived."""
    policy = certified(ended("easy", outcome, measured=SOAKED))

    stored = parse(render(policy), "policy.toml")

    assert policy == stored
    assert (4 if outcome == "promoted" else 1) == len(stored.route_of("easy").steps)


def conditions(*events: Event, **changes: Any) -> dict[str, Any]:
    return tomllib.loads(render(under_conditions(*events, **changes)))


LINE = {"command": ["server", "--model", "t", "--port", "{port}"], "environment": {"MLX_A": "1"}}


def under_conditions(*events: Event, findings: tuple[Finding, ...] = (), **changes: Any) -> Policy:
    easy = ended("easy", "promoted", measured=Measured(longest_prompt=812))
    verdict = Verdict("made", "certification", "abc", (easy,), findings=findings)
    run_manifest = manifest(**{"backend": "mlx-server", "sight": ("COLD",), **changes.pop("frozen", {})})
    return issue_policy(slo(**changes), verdict, run_manifest, events, verdict_sha256="d", issued=ISSUED)


def test_a_cache_that_was_on_is_not_called_off() -> None:
    """Where some prompts came from a cache that should be off, the policy does not say that it was."""
    warm = Finding(FindingKind.WARM_PROMPT, "easy, soak-1", "3 of 9 prompts were partly cached", "switch it off")

    assert "unknown" == under_conditions(findings=(warm,)).conditions.prompt_cache
    attached = conditions(frozen={"versions": {"url": "http://127.0.0.1:8080"}, "sight": ()})["conditions"]
    assert ("http://127.0.0.1:8080", "unknown") == (attached["url"], attached["prompt_cache"])


def test_the_policy_holds_the_launch_lines_of_the_last_soaks() -> None:
    """A fallback step was soaked on a server of its own: the line of the last one counts, and plain decoding's."""

    def launched(*servers: dict[str, Any]) -> Event:
        return Event(
            "now",
            EventKind.LAUNCH,
            {"servers": [{**LINE, **server} for server in servers], "request": {"cache": False}},
        )

    first = {"workloads": ["easy"], "speculation": True, "command": ["server", "--draft-model", "heavy"]}
    last = {"workloads": ["easy"], "speculation": True, "command": ["server", "--draft-model", "light"]}
    plain = {"workloads": [], "speculation": False}
    unreadable = Event("now", EventKind.LAUNCH, {"servers": ["?"]})
    policy = conditions(launched(first, plain), launched(last, plain), unreadable)

    assert [{**LINE, **last}, {**LINE, "speculation": False}] == policy["launch"]
    text = render(under_conditions(launched(first, plain)))
    says("verdicts", "the policy holds the launch lines of the last soaks", lines_with('command = ["server",', text))
    assert {"cache": False} == tomllib.loads(text)["conditions"]["request"]
    assert "heavy" in str(fold_conditions(parse(text, "policy.toml")))


@pytest.mark.parametrize(
    ("lows", "streams", "certified"),
    [
        ({1: 1.3, 2: 1.2, 4: 1.01, 8: 0.8}, 1, 4),
        ({1: 1.3, 2: 0.9, 4: 1.2}, 1, 1),
        ({1: 1.3, 2: None, 4: 1.2}, 1, 1),
        ({1: 1.3, 2: 1.0}, 1, 1),
        ({4: 0.9}, 1, 1),
        ({1: 1.2, 2: 0.99}, 2, 2),  # a soak of two streams is proof for two
        ({}, 1, None),
    ],
)
def test_a_route_speculates_up_to_the_concurrency_at_which_a_gain_is_proven(
    lows: dict[int, float | None], streams: int, certified: int | None
) -> None:
    """The sweep's figures count up to the first without a proven gain, and the soak's own concurrency in any case."""
    choice, soak = choice_at(lows), {"concurrency": streams}

    policy = written(ended("easy", "promoted", choice=choice), ended("hard", "graded_back", choice=choice), soak=soak)

    assert [certified, None] == [route.get("max_concurrency") for route in policy["route"]]


def test_a_route_names_what_its_canaries_asked_for() -> None:
    """Each combination once, without schemas and names of tools, with the model's names."""
    canaries = tuple(Canary.model_validate(fields | {"id": f"{fields['id']}{n}"}) for n in (1, 2) for fields in ASKING)
    measured = replace(SOAKED, canaries=canaries, models=("org/served",))

    policy = certified(ended("easy", "promoted", measured=measured), sampling={"thinking": True})
    route = parse(render(policy), "policy.toml").route[0]

    assert ("t", "org/served") == route.models
    assert len(json.dumps(canaries[3].response_format)) == route.longest_format
    assert [
        {"thinking": True},
        {"thinking": False, "stop": ["END"]},
        {"thinking": True, "tools": True, "tool_choice": {"type": "function"}},
        {
            "thinking": True,
            "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
            "logit_bias": {"7": -100.0, "a b": 1.0},
        },
    ] == [request.model_dump(mode="json", exclude_defaults=True) for request in route.request]
