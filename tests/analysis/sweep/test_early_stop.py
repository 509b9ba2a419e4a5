"""Where a sweep stops early, and that a resumed and a re-judged sweep stop where the first one did."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from bench.rehearsal import canaries, slo
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.sweep.choice import Choice, choose
from gatekeeper.analysis.sweep.early_stop import competing, contests, early_stops
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
        sweep={"repeats": 3, "num_draft_tokens": LENGTHS, "default": {"num_draft_tokens": 4}, **sweep},
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
    events: list[tuple[str, dict[str, object]]] | None = None,
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
        if events is not None:
            events.append((kind, detail))

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
            if stood.wants(block, trials[step.trial]):
                keys[step.trial].add(step.key)
    return keys


def chosen(written: Slo, plan: SweepPlan, records: Records, *, required: bool = False) -> Choice:
    results = setting_results(sweep_answers(written, plan, records, "work", PROMPTS["work"]))
    return choose(written, results, "work", required=required)


def test_a_setting_that_is_clearly_worse_is_abandoned() -> None:
    """
    The slower setting gets few canaries, the winner is chosen as from a whole sweep, and the reason names what was left
    out; no request is sent that is not needed, and no arm gets more than another within a round.
    """
    early, never = promised(), promised(stop="never")
    (plan, stopped), (full_plan, full) = run(early, STEEP), run(never, STEEP)

    stops = early_stops(sweep_answers(early, plan, stopped, "work")).stops
    assert "slower-than-another" == stops["num_draft_tokens-6"].kind
    assert sum(map(len, asked(stopped).values())) < 0.5 * sum(map(len, asked(full).values()))
    assert chosen(early, plan, stopped).setting == chosen(never, full_plan, full).setting
    says("sweeps", "a setting that is clearly worse is abandoned", chosen(early, plan, stopped).because)
    assert "early" not in chosen(never, full_plan, full).because


@pytest.mark.parametrize("shares", [True, False])
def test_what_was_asked_is_what_the_records_ask_for(shares: bool) -> None:
    """
    A replay over the finished records wants exactly the answers that were taken, interleaved or in ABBA blocks.
    """
    written, truth = promised(), {**STEEP, "shares_process": shares}
    plan, records = run(written, truth)

    assert asked(records) == wanted(written, plan, records)
    assert asked(records) != {
        trial.name: {s.key for b in plan.blocks for s in b.requests if s.trial == trial.name} for trial in plan.trials
    }


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("most", [1, 30, 47, 80])
def test_a_resumed_sweep_leaves_out_what_its_records_say(shares: bool, most: int) -> None:
    """
    Interrupted anywhere and gone on with, a sweep takes what a replay over all its records wants, each answer once.
    """
    written, truth = promised(), {**STEEP, "shares_process": shares}
    _, half = run(written, truth, most=most)
    plan, records = run(written, truth, before=half)

    measured = [
        record.key for generations in records.values() for record in generations if record.role is not Role.WARMUP
    ]
    assert asked(records) == wanted(written, plan, records)
    assert sum(map(len, asked(records).values())) == len(measured)


def test_later_answers_change_no_earlier_look() -> None:
    """
    What a look decides rests on the stretches before it alone.
    """
    written = promised(stop="early")
    plan, _ = run(written, STEEP)
    _, every = run(promised(stop="never"), STEEP)
    at = {(s.trial, s.key): b.stretch for b in plan.blocks for s in b.requests}

    for stretch in (1, 2, 3):
        first = {
            name: [record for record in generations if at[name, record.key] < stretch]
            for name, generations in measured(every).items()
        }
        up_to_stretch, all_of_it = (
            early_stops(sweep_answers(written, plan, looked_at, "work"), stretch)
            for looked_at in (first, measured(every))
        )
        assert (up_to_stretch.stops, up_to_stretch.against_plain) == (all_of_it.stops, all_of_it.against_plain)


def measured(records: Records) -> Records:
    return {
        name: [record for record in generations if record.role is not Role.WARMUP]
        for name, generations in records.items()
    }


def test_every_stop_is_an_event_and_in_the_account() -> None:
    """
    Which setting was stopped early, at which look and why: an event when it happens, and written to verdict.json.
    """
    events: list[tuple[str, dict[str, object]]] = []
    written = promised()
    plan, records = run(written, STEEP, events=events)

    reasons = {detail["trial"]: detail["because"] for kind, detail in events if kind == "stopped"}
    document: Any = chosen(written, plan, records).document()
    written_down = {entry["trial"]: entry["stopped"]["because"] for entry in document["settings"] if "stopped" in entry}
    assert reasons == written_down
    assert " draft length 2: 0." in str(reasons["num_draft_tokens-6"])


def test_below_the_slos_bound_a_setting_is_left_and_may_still_be_chosen() -> None:
    """
    No setting can pass an objective of 3x: measuring ends, and the soak is left to prove it on the best of them.
    """
    written = promised(bound=3.0)
    plan, records = run(written, STEEP)

    stops = early_stops(sweep_answers(written, plan, records, "work")).stops
    assert "below-the-bound" == stops["num_draft_tokens-2"].kind
    assert 2 == dict(chosen(written, plan, records).setting)["num_draft_tokens"]


def test_a_knob_without_effect_is_swept_once() -> None:
    """
    Where a server ignores a knob, the first look stops all but its least value, in a resumed sweep too.
    """
    written = promised(num_draft_tokens=[2], default={"num_draft_tokens": 2}, draft_n_min=[0, 1, 2])

    plan, records = run(written, STEEP)

    stops = early_stops(sweep_answers(written, plan, records, "work")).stops
    ignored = {name for name, stop in stops.items() if (stop.kind, stop.look) == ("same-setting", 1)}
    assert len(plan.candidates) - 1 == len(ignored)
    assert asked(records) == wanted(written, plan, records)
    assert chosen(written, plan, records).setting == setting(draft="heavy", draft_n_min=0, num_draft_tokens=2)


def test_answers_that_fail_decide_nothing_early() -> None:
    """
    With too many lost pairs there is no early stop, for or against: absence is never good news.
    """
    written = promised()
    plan, records = run(written, {**STEEP, "faults": [{"every": 2, "arm": "candidate", "fault": "truncate"}]})

    assert {} == early_stops(sweep_answers(written, plan, records, "work")).stops


def test_each_knob_is_its_own_contest() -> None:
    """
    One knob at a time, the default races in every knob, and a value only against the values of its own.
    """
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"}
    written = promised(subject=subject, draft=["heavy", "light"])
    plan, _ = laid(written, STEEP)

    races = contests(sweep_answers(written, plan, {}, "work"))

    assert [{"default", "draft-light"}, {"default", "num_draft_tokens-2", "num_draft_tokens-6"}] == [
        {trial.name for trial in race} for race in races
    ]


def test_conditions_and_many_streams_are_asked_in_full() -> None:
    """
    What is reported and never chosen does not compete, and above one stream nothing is looked at before the end.
    """
    warm, _ = laid(promised(temperature=[0.0, 0.7]), STEEP)
    crowd = promised(concurrency=[1, 4])

    assert "temperature-0.7" not in {trial.name for trial in competing(promised(temperature=[0.0, 0.7]), warm)}
    assert "concurrency-4" not in {trial.name for trial in competing(crowd, laid(crowd, STEEP)[0])}


@pytest.mark.parametrize(("speculation", "least", "most"), [("required", 12, 12), ("optional", 24, 72)])
def test_a_gain_is_proven_only_where_plain_decoding_may_be_chosen(speculation: str, least: int, most: int) -> None:
    """
    One setting that is about as fast as plain decoding: where it must speculate the soak is left to decide after the
    answers of twelve canaries; where plain decoding is a choice too, sampling goes on.
    """
    written = promised(num_draft_tokens=[4])
    work = written.workload[0].model_copy(update={"speculation": speculation})
    written = written.model_copy(update={"workload": (work,)})
    _, records = run(written, {**STEEP, "draft_token": 0.0072, "noise": {"answer": 0.06}})

    assert least <= len(measured(records)["default"]) <= most


def test_two_settings_that_are_nearly_alike_need_no_more_answers() -> None:
    """
    Neither of two lengths is proven faster, but neither can be faster by 5 %: whichever is soaked, little is lost.
    """
    written = promised(num_draft_tokens=[3, 4])
    plan, records = run(written, {**STEEP, "ratio": {"3": 1.2, "4": 1.2}})

    stops = early_stops(sweep_answers(written, plan, records, "work")).stops
    assert ["decided", "decided"] == [stop.kind for stop in stops.values()]
    assert len(measured(records)["default"]) < 72


def test_a_process_that_warms_up_stops_nothing_as_too_slow() -> None:
    """
    A required workload whose draft begins 35 % slower and recovers over 300 s is not stopped as slower than plain
    decoding, although every answer of the sweep is.
    """
    ramp = {"of": "time", "by": 1 / 1.35 - 1, "over": 300.0, "arm": "candidate", "since": "start"}
    script = {**STEEP, "ratio": 1.0, "drift": [ramp]}
    written = promised()
    plan, records = run(written, script)

    stops = early_stops(sweep_answers(written, plan, records, "work")).stops
    assert not {stop.kind for stop in stops.values()} & {"slower-than-plain", "below-the-bound"}
    assert chosen(written, plan, records, required=True).setting != setting(draft=None)
