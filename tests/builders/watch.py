"""A policy under watch, and answers of production, made by hand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gatekeeper.core.canary import Canary
from gatekeeper.core.policy import Guard, Policy
from gatekeeper.core.records import Answer, Generation, HostSample, Reading, Role, Setting
from gatekeeper.live.guards.guard_judgement import GuardContext, GuardResult, judge_guard
from gatekeeper.live.guards.recent_samples import GuardEvidence
from gatekeeper.live.running.deployed_server import CounterGain
from tests.builders.slo import FAST, PLAIN, SECOND, canary, counted, generation, steady

TOKEN_S = 0.02
"""Of plain decoding."""
DAY_S = 86400.0


def figure(center: float, lo: float, hi: float, n: int = 24) -> dict[str, Any]:
    return {"center": center, "lo": lo, "hi": hi, "n": n}


MEASURED = {
    "throughput_ratio": figure(1.5, 1.48, 1.52),
    "decode_throughput": figure(75.0, 70.0, 80.0),
    "canary_pass_rate": figure(1.0, 0.9, 1.0),
    "json_pass_rate": figure(1.0, 0.9, 1.0),
}

CONDITIONS = {"backend": "openai", "target": "t", "prompt_cache": "unknown", "concurrency": 1, "max_tokens": 512}


def guard(metric: str, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "for": 120.0, **more}


def policy(
    *guards: Mapping[str, Any], life_s: float = 30 * DAY_S, measured: Mapping[str, Any] | None = None, **more: Any
) -> Policy:
    """Return a policy with one route `easy` that speculates, and one step below it."""
    route = {
        "workload": "easy",
        "speculation": True,
        "setting": dict(FAST),
        "ladder": [{"step": "shrink-draft", "draft": "heavy", "num_draft_tokens": 2}],
        "measured": MEASURED if measured is None else measured,
    }
    return Policy.model_validate(
        {
            "schema": 1,
            "slo": "made",
            "grade": "certification",
            "manifest_sha256": "abc",
            "verdict_sha256": "def",
            "issued": 0,
            "expires": life_s,
            "conditions": CONDITIONS,
            "route": [route],
            "guard": list(guards),
            **more,
        }
    )


def context(*guards: Mapping[str, Any], canaries: Iterable[Canary] = (), **more: Any) -> GuardContext:
    frozen = {prompt.id: prompt for prompt in canaries} or {name: canary(name) for name in names(8)}
    return GuardContext(policy(*guards, **more), {"easy": frozen}, greedy=True, host_interval=1.0)


def names(count: int) -> list[str]:
    return [f"c-{number:03}" for number in range(count)]


def speed(ratio: float, sent_s: float, **more: Any) -> Answer:
    """Return an answer decoded at *ratio* of plain decoding's speed."""
    return steady(TOKEN_S / ratio, 40, first_s=0.1, sent_s=sent_s, **more)


def pairs(
    ratio_of: Sequence[float], *, first_s: float = 0.0, step_s: float = 60.0, names_: int = 8
) -> list[Generation]:
    """Return a candidate and its baseline each *step_s*, at those ratios, the canaries in rotation."""
    out = []
    for number, ratio in enumerate(ratio_of):
        name, at, pair = f"c-{number % names_:03}", first_s + number * step_s, f"round-{first_s:g}-{number}"
        out += [
            generation(speed(ratio, at), name, pair=pair),
            generation(speed(1.0, at + 10), name, arm="plain", role=Role.BASELINE, pair=pair),
        ]
    return out


def alone(answers: Sequence[Answer], *, knobs: Setting = FAST, names_: int = 8) -> list[Generation]:
    """Return answers of one setting without plain ones."""
    arm = "plain" if knobs == PLAIN else "candidate"
    return [
        generation(answer, f"c-{number % names_:03}", arm=arm, setting=knobs) for number, answer in enumerate(answers)
    ]


def accepting(shares: Sequence[float], *, step_s: float = 60.0) -> list[Generation]:
    """Return candidates whose drafts were accepted at those shares."""
    drafts = [counted(20, 100, round(100 * share)) for share in shares]
    return alone([speed(1.4, number * step_s, rounds=rounds) for number, rounds in enumerate(drafts)])


def sampled(values: Mapping[str, float | None], *, at_s: Iterable[float]) -> tuple[HostSample, ...]:
    """Return host samples at those seconds; None is a sensor that is not there."""
    readings = {
        name: Reading(value, "B", "made", "ok" if value is not None else "absent") for name, value in values.items()
    }
    return tuple(HostSample(f"at {at}", round(at * SECOND), readings) for at in at_s)


def evidence(
    answers: Iterable[Generation] = (),
    *,
    now_s: float = 3600.0,
    since_s: float = 0.0,
    samples: Iterable[HostSample] = (),
    counter_gains: Iterable[CounterGain] = (),
) -> GuardEvidence:
    return GuardEvidence(
        round(now_s * SECOND), round(since_s * SECOND), tuple(answers), tuple(samples), tuple(counter_gains)
    )


def judged(guarded: GuardContext, measured: GuardEvidence, *, knobs: Setting = FAST, at: int = 0) -> GuardResult:
    """Judge one guard of the policy."""
    bound: Guard = guarded.policy.guard[at]
    return judge_guard(bound, guarded.policy.route_of("easy"), measured, guarded, knobs)
