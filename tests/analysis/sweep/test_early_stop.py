"""Where a sweep stops early, and that a resumed and a re-judged sweep stop where the first one did."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from bench.rehearsal import canaries, slo
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.sweep.choice import Choice, choose
from gatekeeper.analysis.sweep.early_stop import early_stops, wants_answers
from gatekeeper.analysis.sweep.setting_result import setting_results
from gatekeeper.analysis.sweep.sweep_answers import sweep_answers
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.records import Generation, Role, setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Recorder
from gatekeeper.run.stages.sweep import sweep
from tests.builders.golden_words import says

PROMPTS = {"work": canaries("work", 24)}
LENGTHS = [2, 4, 6]
# Costs and acceptance such that length 2 is clearly the best, 6 clearly the worst and slower than plain decoding.
STEEP: Mapping[str, Any] = {
    "seed": 3,
    "tokens": 60,
    "token": 0.02,
    "acceptance": 0.6,
    "verify": 0.022,
    "draft_token": 0.006,
    "noise": {"answer": 0.02},
}
Records = dict[str, list[Generation]]


class CutError(Exception):
    """The run is interrupted."""


def promised(bound: float = 1.0, subject: dict[str, Any] | None = None, **sweep: Any) -> Slo:
    return slo(
        **({"subject": subject} if subject else {}),
        workload=[{"name": "work", "canaries": "work.jsonl"}],
        sweep={"repeats": 3, "budget": 72, "num_draft_tokens": LENGTHS, "default": {"num_draft_tokens": 4}, **sweep},
        objective=[{"metric": "throughput_ratio", "at_least": bound, "why": "it must pay"}],
    )


def laid(written: Slo, truth: Mapping[str, Any], restart: Sequence[str] = ()) -> tuple[SweepPlan, ScriptedBackend]:
    backend = ScriptedBackend(Script.model_validate(dict(truth)))
    knobs, shares = restart or backend.restart_knobs, backend.shares_process
    return sweep_plan(written, PROMPTS, shares_process=shares, restart_knobs=knobs, seed=5), backend


def run(
    written: Slo,
    truth: Mapping[str, Any],
    *,
    before: Mapping[str, Sequence[Generation]] | None = None,
    most: int | None = None,
) -> tuple[SweepPlan, Records]:
    """Sweep, or go on with a sweep; interrupted after *most* new answers."""
    plan, backend = laid(written, truth)
    records: Records = {trial.name: list((before or {}).get(trial.name, ())) for trial in plan.trials}
    room = [most]

    def record(generation: Generation) -> None:
        if room[0] is not None:
            room[0] -= 1
            if room[0] < 0:
                raise CutError
        records[generation.trial].append(generation)

    def observe(kind: str, detail: dict[str, object]) -> None:
        del kind, detail

    with Client(written, backend, observe) as client:
        stored = {name: tuple(generations) for name, generations in records.items()}
        with suppress(CutError):
            sweep(written, plan, client, Recorder(record, observe), before=stored)
    return plan, records


def asked(records: Mapping[str, Sequence[Generation]]) -> dict[str, set[str]]:
    return {
        name: {record.key for record in generations if record.role is not Role.WARMUP}
        for name, generations in records.items()
    }


def wanted(written: Slo, plan: SweepPlan, records: Records) -> dict[str, set[str]]:
    """Return what a replay of the looks over the records says had to be sent."""
    keys: dict[str, set[str]] = {trial.name: set() for trial in plan.trials}
    trials = {trial.name: trial for trial in plan.trials}
    for block in plan.blocks:
        stood = early_stops(sweep_answers(written, plan, records, "work"), block.stretch)
        for step in block.requests:
            if wants_answers(stood, block, trials[step.trial]):
                keys[step.trial].add(step.key)
    return keys


def chosen(written: Slo, plan: SweepPlan, records: Records, *, required: bool = False) -> Choice:
    results = setting_results(sweep_answers(written, plan, records, "work", PROMPTS["work"]))
    return choose(written, results, "work", required=required)


def test_a_setting_that_is_clearly_worse_is_abandoned() -> None:
    """The slower setting gets few canaries, the winner is chosen as from a whole sweep, and the reason names what was
    left out; no request is sent that is not needed, and no arm gets more than another within a round.
    """
    early, never = promised(), promised(stop="never")
    (plan, stopped), (full_plan, full) = run(early, STEEP), run(never, STEEP)

    stops = early_stops(sweep_answers(early, plan, stopped, "work"))
    assert "slower-than-another" == stops["num_draft_tokens-6"].kind
    assert sum(map(len, asked(stopped).values())) < 0.7 * sum(map(len, asked(full).values()))
    assert chosen(early, plan, stopped).setting == chosen(never, full_plan, full).setting
    says("sweeps", "a setting that is clearly worse is abandoned", chosen(early, plan, stopped).because)
    assert "early" not in chosen(never, full_plan, full).because


@pytest.mark.parametrize("shares", [True, False])
def test_what_was_asked_is_what_the_records_ask_for(shares: bool) -> None:
    """A replay over the finished records wants exactly the answers that were taken, interleaved or in ABBA blocks."""
    written, truth = promised(), {**STEEP, "shares_process": shares}
    plan, records = run(written, truth)

    assert asked(records) == wanted(written, plan, records)
    assert asked(records) != {
        trial.name: {s.key for b in plan.blocks for s in b.requests if s.trial == trial.name} for trial in plan.trials
    }


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("most", [1, 47])
def test_a_resumed_sweep_leaves_out_what_its_records_say(shares: bool, most: int) -> None:
    """Interrupted anywhere, a sweep takes what a replay over its records wants, each answer once."""
    written, truth = promised(), {**STEEP, "shares_process": shares}
    _, half = run(written, truth, most=most)
    plan, records = run(written, truth, before=half)

    measured = [
        record.key for generations in records.values() for record in generations if record.role is not Role.WARMUP
    ]
    assert asked(records) == wanted(written, plan, records)
    assert sum(map(len, asked(records).values())) == len(measured)


def measured(records: Records) -> Records:
    return {
        name: [record for record in generations if record.role is not Role.WARMUP]
        for name, generations in records.items()
    }


def test_answers_that_fail_decide_nothing_early() -> None:
    """With too many lost pairs there is no early stop, for or against: absence is never good news."""
    written = promised()
    plan, records = run(written, {**STEEP, "faults": [{"every": 2, "arm": "candidate", "fault": "truncate"}]})

    assert {} == early_stops(sweep_answers(written, plan, records, "work"))


def test_values_of_two_knobs_do_not_compete() -> None:
    """One knob at a time, a value is stopped by the default or a value of its own knob: the lighter draft stays,
    although another length is far faster, as the best values of both are combined.
    """
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"}
    written = promised(subject=subject, draft=["heavy", "light"])
    plan, records = run(written, STEEP)

    stops = early_stops(sweep_answers(written, plan, records, "work"))

    assert "num_draft_tokens-6" in stops
    assert "slower-than-another" not in {stop.kind for name, stop in stops.items() if name == "draft-light"}


def test_a_process_that_warms_up_stops_nothing_as_too_slow() -> None:
    """A draft that begins 35 % slower and recovers over 300 s is not stopped as slower than plain."""
    ramp = {"of": "time", "by": 1 / 1.35 - 1, "over": 300.0, "arm": "candidate", "since": "start"}
    script = {**STEEP, "ratio": 1.0, "drift": [ramp]}
    written = promised()
    plan, records = run(written, script)

    stops = early_stops(sweep_answers(written, plan, records, "work"))
    assert "slower-than-plain" not in {stop.kind for stop in stops.values()}
    assert chosen(written, plan, records, required=True).setting != setting(draft=None)
