"""The gate on simulated systems whose truth is known: how often it promotes or blocks wrongly, or is unproven.

    python -m bench.truth --runs 40                           # per scenario; prints a table
    python -m bench.truth --runs 40 --processes 2             # the same figures, sooner
    python -m bench.truth --runs 40 --save truth.json         # every figure as JSON too
    python -m bench.truth --only "bimodal;leak"
    python -m bench.truth --of coverage --runs 2000           # the intervals themselves, see bench/coverage.py

A scenario's truth is the ratio of its script without noise and after every drift: the total decode time of plain
decoding over that of speculation, on the same canaries; costs of speculation are scaled so that the best setting lies
`effect` away from the bound. A false promotion is one of
a setting whose truth lies at least 3 % below the bound; a false block is `graded_back` or `failed` where the best
setting lies at least 5 % above it. Two naive rules on the same records of the sweep are compared with the gate:
comparing two means, and the better of two repetitions of each arm. Where no ratio is promised, the setting is no faster
than plain decoding and every promotion is false.

Where the system leaks, the objective is a bound on `footprint_growth`, and `effect` is how far below it the leak stays,
as a share of the bound; speculation is clearly faster. The naive rules use the soak's host samples: by how much the
mean of its second half exceeds that of its first; the smaller growth of the two halves, last reading minus first.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import repeat
from statistics import fmean
from typing import Any

from bench import coverage
from bench.rehearsal import STEADY, Rehearsed, canaries, rehearse, slo
from gatekeeper.analysis.metrics.answer_table import burst_gap, tabulate
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.records import Answer, Role, setting
from gatekeeper.core.slo import Slo
from tests.builders.slo import generation

EFFECTS = (-0.10, -0.03, 0.05, 0.10)
LATE_EFFECTS = (-0.10, -0.05, -0.03, 0.05, 0.10)
"""Of a change late in the soak, whose earlier level may lie on the other side of the bound."""
WRONG, RIGHT = 0.03, 0.05
"""How far from the bound a truth counts: below it for false promotions, above it for false blocks."""
ON_THE_EDGE = 0.002
"""Scaled truths miss their aim by the tokens of a round, which come microseconds apart; they still count."""
LEAK = 100e3
"""The bound of the leaks in bytes a second: 60 MB in the soak's ten minutes."""
WINS = 0.2
"""How far above its bound speculation lies where it is a leak that decides."""
PAUSED = STEADY.model_copy(update={"name": "paused", "idle": 8.0})
"""The load of a subject that changes: few answers, so that ten minutes cost no more than one."""
NO_STEADY_RATIO = ("bimodal", "decay through")
"""Scenarios that have no ratio to prove: they are left out of the rate of unproven runs."""
LENGTHS = (2, 4)
CANARIES = 24
SUBJECT: Mapping[str, Any] = {
    "tokens": 41,
    "token": 0.02,
    "acceptance": 0.8,
    "verify": 0.022,
    "draft_token": 0.002,
    "noise": {"answer": 0.05},
}
Outcome = str
"""promoted | blocked | unproven"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulated subject: what its script changes, and how far its truth lies from the bound."""

    name: str
    effect: float
    bound: float = 1.16
    script: Mapping[str, Any] = field(default_factory=dict)
    leaks: bool = False
    """The bound is one on the growth of memory."""
    repeats: int = 3
    """Of each canary in the sweep."""
    ratio_promised: bool = True
    busy: bool = False
    """A long soak has all the answers it can have: a change during it must be seen."""

    @property
    def label(self) -> str:
        """Name it in the table."""
        return f"{self.name} {self.effect:+.0%}"

    @property
    def changes(self) -> bool:
        """Tell whether it is another subject later: then the soak is long, so that the end is most of what it sees."""
        return self.leaks or bool(self.script.get("drift"))

    @property
    def margin(self) -> float:
        """Return how far below its bound a truth counts as clearly below."""
        return WRONG if self.ratio_promised else 0.0

    @property
    def gains(self) -> float:
        """Return how far the best setting's speed lies from its bound."""
        return WINS if self.leaks else self.effect


def scenarios() -> list[Scenario]:
    """Return every scenario of the table."""
    found = [Scenario("no effect", -1 + 1 / 1.16), Scenario("no ratio promised", 0.0, 1.0, ratio_promised=False)]
    for bound in (1.0, 1.16):
        sizes = (-0.2, -0.1, -0.05, -0.03, 0.0, 0.03, 0.05, 0.1, 0.2)
        found += [Scenario(f"clean, bound {bound:g}", effect, bound) for effect in sizes]
    slow = {"of": "time", "by": 0.10, "over": 100.0}
    noise = {"answer": 0.05}
    nuisances: dict[str, Mapping[str, Any]] = {
        "drift 10 %, both arms": {"drift": [slow]},
        "drift 10 %, candidate": {"drift": [{**slow, "arm": "candidate"}]},
        "drift 10 %, plain": {"drift": [{**slow, "arm": "plain"}]},
        "log-normal tails": {"noise": {"answer": 0.15, "token": 0.5, "stall": 0.3, "stall_share": 0.05}},
        "autocorrelation 0.9": {"noise": {"answer": 0.10, "autocorrelation": 0.9}},
        "bimodal baseline": {"noise": noise, "modes": [{"share": 0.4, "slower": 1.5, "arm": "plain"}]},
        "warm-up, both arms": {"drift": [{"of": "time", "by": -0.4, "over": 30.0}]},
        "warm-up, candidate": {"drift": [{"of": "time", "by": -0.3, "over": 30.0, "arm": "candidate"}]},
        "acceptance decay 30 %": {"drift": [{"of": "acceptance", "by": -0.3, "over": 100.0}]},
        "decay through the soak, candidate": {"drift": [{**slow, "by": 0.25, "over": 900.0, "arm": "candidate"}]},
        "sawtooth 30 %, both arms": {"noise": noise, "drift": list(_teeth(0.3, 60.0))},
        "bimodal, both arms": {"noise": noise, "modes": [{"share": 0.3, "slower": 1.3}]},
    }
    for name, script in nuisances.items():
        busy = name.startswith("decay through")
        found += [Scenario(name, effect, script=script, busy=busy) for effect in EFFECTS]
    found += [Scenario(name, effect, 1.10, script) for name, script in unequal().items() for effect in EFFECTS]
    found += [Scenario(f"{name}, bound 1", -0.05, 1.0, script) for name, script in unequal().items()]
    for sigma in (0.02, 0.10, 0.15):
        for repeats in (1, 3):
            name, noisy = f"noise {sigma:.0%}, repeats {repeats}", {"noise": {"answer": sigma}}
            found += [Scenario(name, effect, 1.05, noisy, repeats=repeats) for effect in EFFECTS]
    found += [Scenario(name, effect, script=script) for name, script in _late().items() for effect in LATE_EFFECTS]
    hidden: dict[str, Mapping[str, Any]] = {
        "leak, noise of 30 MB": {"noise": 30e6},
        "leak, slow noise of 20 MB": {"noise": 20e6, "noise_kept": 0.95},
        "leak under a cache of 200 MB": {"noise": 5e6, "sawtooth": 200e6, "sawtooth_every": 50.0},
        "leak in steps of 8 MB": {"noise": 5e6, "step": 8e6},
    }
    for name, memory in hidden.items():
        shares = (-1.0, -0.10, -0.03, 0.10, 0.5, 1.0)
        found += [Scenario(name, share, script={"memory": memory}, leaks=True) for share in shares]
    return found


def unequal() -> dict[str, Mapping[str, Any]]:
    """Return candidates whose gain is unequal, so that the typical gain of a prompt is not that of the work.

    `HalfNone`: a third of the prompts at 2.2x, the others at 0.85x. `Stall`: every 50th answer takes six times as long.
    """

    def ratio(best: float) -> dict[str, float]:
        return {str(length): best * share for length, share in zip(LENGTHS, (0.93, 1.0), strict=True)}

    faster = {f"work-{number:03}": {"ratio": ratio(2.2)} for number in range(CANARIES // 3)}
    stall = {"share": 0.02, "slower": 6.0, "arm": "candidate"}
    return {"HalfNone": {"ratio": ratio(0.85), "canaries": faster}, "Stall": {"modes": [stall]}}


def _late() -> dict[str, Mapping[str, Any]]:
    """Return candidates whose process is slower from late in its soak of 600 s on, or until late in it."""
    fall = {"of": "time", "by": 0.20, "arm": "candidate", "since": "start"}
    rise = {"of": "time", "by": 1 / 1.35 - 1, "arm": "candidate", "since": "start"}
    shapes: dict[str, Sequence[Mapping[str, Any]]] = {
        "late fall": [{**fall, "after": 450.0, "over": 150.0}],
        "late step": [{**fall, "after": 480.0, "over": 1.0}],
        "fall in the last tenth": [{**fall, "by": 0.15, "after": 540.0, "over": 70.0}],
        "step at 360 s": [{**fall, "after": 360.0, "over": 1.0}],
        "step at 540 s": [{**fall, "after": 540.0, "over": 1.0}],
        "fall of 10 % from 300 s": [{**fall, "by": 0.10, "after": 300.0, "over": 300.0}],
        "fall in two steps": [{**fall, "by": 0.10, "after": at, "over": 1.0} for at in (420.0, 540.0)],
        "fall of 30 %, half recovers": [
            {**fall, "by": 0.30, "after": 360.0, "over": 1.0},
            {**fall, "by": 1.15 / 1.30 - 1, "after": 480.0, "over": 1.0},
        ],
        "warm-up of 120 s": [{**rise, "over": 120.0}],
        "warm-up of 300 s": [{**rise, "over": 300.0}],
        "warm-up of 600 s": [{**rise, "over": 600.0}],
        "warm at once at 200 s": [{**rise, "after": 200.0, "over": 1.0}],
    }
    return {name: {"drift": drifts} for name, drifts in shapes.items()}


def _teeth(by: float, every: float, count: int = 30) -> Iterator[dict[str, Any]]:
    """Yield the drifts of a host that slows by a share over *every* seconds and recovers at once, again and again."""
    for number in range(count):
        yield {"of": "time", "by": by, "over": every, "after": number * every}
        yield {"of": "time", "by": 1 / (1 + by) - 1, "over": 1e-6, "after": (number + 1) * every}


def promise(scenario: Scenario) -> Slo:
    """Return the SLO: one workload that must speculate, one ratio and a short soak; or a bound on a leak.

    The soak continues up to six times as long while it is undecided, as one of 600 s does by default. A minute has some
    40 pairs, as many as those 600 s have at eight seconds an answer.
    """
    ratio = {"metric": "throughput_ratio", "at_least": scenario.bound, "why": "it must pay"}
    whole = {"metric": "error_rate", "at_most": 0, "why": "answers must arrive"}
    growth = {"metric": "footprint_growth", "at_most": LEAK, "why": "it must run for days"}
    duration = 600.0 if scenario.changes else 60.0
    return slo(
        workload=[{"name": "work", "canaries": "work.jsonl"}],
        sweep={
            "repeats": scenario.repeats,
            "num_draft_tokens": list(LENGTHS),
            "default": {"num_draft_tokens": LENGTHS[-1]},
        },
        soak={"duration": duration, "max_duration": 6 * duration, "until": "decided", "baseline_share": 0.5},
        objective=[ratio, growth] if scenario.leaks else [ratio] if scenario.ratio_promised else [whole],
    )


@cache
def prompts() -> tuple[Canary, ...]:
    """Return the canaries of every scenario."""
    return canaries("work", CANARIES)


def quiet(script: Mapping[str, Any]) -> dict[str, Any]:
    """Return the script without noise, and with every drift over."""
    # The first answers, thrown away, let this microsecond pass.
    drift = [{**one, "after": 0.0, "over": 1e-6} for one in script.get("drift", ())]
    return {**script, "noise": {}, "modes": (), "drift": drift}


def expected_time(script: Mapping[str, Any], arm: str) -> float:
    """Return how many times as long an answer of an arm takes on average, by its slower modes."""
    modes = [mode for mode in script.get("modes", ()) if mode.get("arm", "both") in {arm, "both"}]
    return math.prod(1.0 + float(mode["share"]) * (float(mode["slower"]) - 1) for mode in modes)


def truths(script: Mapping[str, Any]) -> dict[int, float]:
    """Return the true decode ratio of each draft length: plain decoding's total time over speculation's."""
    subject = ScriptedBackend(Script.model_validate(quiet(script)))
    resident = subject.start(setting(draft="heavy"))
    sampling = SamplingParameters(max_tokens=256)

    def answers(**knobs: Any) -> list[Answer]:
        return [resident.answer(DecodeRequest(canary, setting(**knobs), sampling)) for canary in prompts()]

    answers(draft=None)
    plain = answers(draft=None)

    def total_time(every: Sequence[Answer]) -> float:
        return math.fsum(1 / rate for rate in _rates([generation(answer) for answer in every]))

    slower = expected_time(script, "plain") / expected_time(script, "candidate")
    return {
        length: slower * total_time(plain) / total_time(answers(draft="heavy", num_draft_tokens=length))
        for length in LENGTHS
    }


def subject_of(scenario: Scenario, seed: int) -> tuple[dict[str, Any], dict[int, float]]:
    """Return the script whose best setting lies *effect* away from the bound, and each setting's truth."""
    script = {**SUBJECT, **scenario.script, "seed": seed}
    if scenario.leaks:
        script["memory"] = {**script["memory"], "leak": LEAK * (1 - scenario.effect)}
    scale = max(truths(script).values()) / (scenario.bound * (1 + scenario.gains))
    scaled = {**script, "verify": script["verify"] * scale, "draft_token": script["draft_token"] * scale}
    if "ratio" in script:
        parts = [scaled, *scaled.get("canaries", {}).values()]
        ratios = [{length: ratio / scale for length, ratio in part["ratio"].items()} for part in parts]
        scaled |= {"ratio": ratios[0]}
        scaled |= {
            "canaries": {name: {"ratio": part} for name, part in zip(scaled["canaries"], ratios[1:], strict=True)}
        }
    return scaled, truths(scaled)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a scenario ended in, by the gate and by two naive rules."""

    gate: Outcome
    means: Outcome
    best_of_two: Outcome
    truth: float
    """Of the setting that was promoted, or else of the best one; relative to the bound."""
    naive_truth: float
    because: str
    requests: int = 0
    """Of the sweep and all soaks, warm-ups not counted."""


def requests_of(ran: Rehearsed) -> tuple[int, int]:
    """Return how many requests the sweep and the soaks took, without warm-ups."""
    swept, soaked = (
        sum(one.role is not Role.WARMUP for stored in records.values() for one in stored.records)
        for records in (ran.case.sweep, ran.case.soaks)
    )
    return swept, soaked


def run(scenario: Scenario, seed: int) -> Run:
    """Run a scenario once."""
    script, true = subject_of(scenario, seed)
    profile = PAUSED if scenario.changes and not scenario.busy else STEADY
    ran = rehearse(promise(scenario), {"work": prompts()}, script, seed, profile=profile)
    verdict = ran.verdict.workloads[0]
    gate = {"promoted": "promoted", "unproven": "unproven"}.get(ran.verdict.outcome, "blocked")
    chosen = verdict.setting.get("num_draft_tokens") if gate == "promoted" else None
    truth = true.get(int(chosen or 0), max(true.values())) / scenario.bound - 1
    naive_truth, requests = true[LENGTHS[-1]] / scenario.bound - 1, sum(requests_of(ran))
    if scenario.leaks:
        naive = _naive_of_memory(ran)
        return Run(gate, *naive, min(truth, scenario.effect), scenario.effect, verdict.because, requests=requests)
    means, best_of_two = (_naive(ran, scenario.bound, rule) for rule in (_mean_of_all, _best_of_two))
    return Run(gate, means, best_of_two, truth, naive_truth, verdict.because, requests)


def _naive(ran: Rehearsed, bound: float, rule: Any) -> Outcome:
    """Judge the default setting by *rule*, a figure for each arm: it always decides."""
    mine, plain = (rule(ran.case.sweep[name].records) for name in ("default", "baseline"))
    return "promoted" if mine / plain >= bound else "blocked"


def _naive_of_memory(ran: Rehearsed) -> tuple[Outcome, Outcome]:
    """Judge the growth of memory over the first soak by two means, and by the better of its halves."""
    seen = [one for one in ran.case.host_samples if one.phase == "soak-1"]
    values = [float(one.values["subject_footprint"].value or 0) for one in seen]
    half = len(values) // 2
    seconds = (seen[-1].at_ns - seen[0].at_ns) / 2e9
    halves = (values[:half], values[-half:])
    means = (fmean(halves[1]) - fmean(halves[0])) / seconds
    best = min((one[-1] - one[0]) / seconds for one in halves)
    return ("promoted" if means <= LEAK else "blocked", "promoted" if best <= LEAK else "blocked")


def _rates(answers: Sequence[Any], repeat: int | None = None) -> list[float]:
    kept = [one for one in answers if one.role == "measured" and repeat in {None, one.repeat}]
    decode_rate = tabulate((kept, burst_gap(kept))).read("decode_rate")
    return [rate for one in kept if (rate := decode_rate(one.answer)) is not None]


def _mean_of_all(answers: Sequence[Any]) -> float:
    return fmean(_rates(answers))


def _best_of_two(answers: Sequence[Any]) -> float:
    return max(fmean(rates) for repeat in (0, 1) if (rates := _rates(answers, repeat)))


@dataclass(slots=True)
class Tally:
    """Counts of one rule over runs."""

    runs: int = 0
    unproven: int = 0
    wrong: int = 0
    """Runs whose truth lies clearly below the bound."""
    right: int = 0
    """Runs whose truth lies clearly above it."""
    false_promotions: int = 0
    false_blocks: int = 0
    requests: int = 0

    def add(self, outcome: Outcome, truth: float, best: float, margin: float) -> None:
        """Count one more run."""
        wrong, right = truth <= -margin + ON_THE_EDGE, best >= RIGHT - ON_THE_EDGE
        self.runs += 1
        self.unproven += outcome == "unproven"
        self.wrong += wrong
        self.right += right
        self.false_promotions += wrong and outcome == "promoted"
        self.false_blocks += right and outcome == "blocked"

    def join(self, tally: "Tally") -> None:
        """Take over the counts of other runs."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(tally, name))


RULES = ("gate", "means", "best_of_two")
Tallies = dict[str, Tally]


def count_runs(scenario: Scenario, runs: int, seed: int, processes: Executor | None = None) -> Tallies:
    """Run a scenario *runs* times and count, per rule."""
    tallies = {rule: Tally() for rule in RULES}
    everything = map if processes is None else partial(processes.map, chunksize=4)
    for made in everything(run, repeat(scenario), range(seed, seed + runs)):
        tallies["gate"].requests += made.requests
        tallies["gate"].add(made.gate, made.truth, scenario.effect, scenario.margin)
        for rule in RULES[1:]:
            tallies[rule].add(getattr(made, rule), made.naive_truth, made.naive_truth, scenario.margin)
    return tallies


def share(count: int, of: int) -> str:
    """Write a rate, or a dash where nothing could go wrong."""
    return f"{count / of:7.1%}" if of else "      -"


def line(name: str, tallies: Tallies) -> str:
    """Write one row of the table."""
    gate = tallies["gate"]
    cells = [f"{name:<36}", f"{gate.runs:>5}"]
    for rule in RULES:
        counted = tallies[rule]
        cells += [share(counted.false_promotions, counted.wrong), share(counted.false_blocks, counted.right)]
        if rule == "gate":
            cells += [share(gate.unproven, gate.runs), f"{gate.requests / max(1, gate.runs):7.0f}"]
    return " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="per scenario")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--of",
        choices=("speed", "memory", "coverage"),
        help="only the scenarios with this objective; or how often the intervals themselves hold, in numpy",
    )
    parser.add_argument(
        "--only", default="", help="only the scenarios whose name contains one of these, separated by semicolons"
    )
    parser.add_argument("--processes", type=int, default=1, help="number of processes; the results do not depend on it")
    options = parser.parse_args()
    if options.of == "coverage":
        coverage.print_table(options.runs, options.seed)
        return
    names = [name for name in options.only.split(";") if name]
    begun, total = time.perf_counter(), {rule: Tally() for rule in RULES}
    far = {"5 %": (0.045, 0.055, Tally()), "10 % and more": (0.095, math.inf, Tally())}
    print(f"{'':<42} {'gate':^31} {'two means':^15} {'best of two':^15}")
    print(f"{'scenario, truth against bound':<36} {'runs':>5} promote   block unprovn    sent" + " promote   block" * 2)
    with ProcessPoolExecutor(options.processes) if options.processes > 1 else nullcontext() as processes:
        for number, scenario in enumerate(scenarios()):
            if names and not any(name in scenario.label for name in names):
                continue
            if options.of is not None and scenario.leaks != (options.of == "memory"):
                continue
            tallies = count_runs(scenario, options.runs, options.seed + number * 1_000_003, processes)
            for rule in RULES:
                total[rule].join(tallies[rule])
            for least, most, tally in far.values():
                steady = not scenario.leaks and not scenario.name.startswith(NO_STEADY_RATIO)
                if steady and least <= abs(scenario.effect) < most:
                    tally.join(tallies["gate"])
            print(line(scenario.label, tallies), flush=True)
    print(line("total", total))
    for words, (_, _, tally) in far.items():
        if tally.runs:
            unproven = f"{tally.unproven} of {tally.runs} {share(tally.unproven, tally.runs)}"
            print(f"unproven where the truth lies {words} from the bound, without bimodal and decaying: {unproven}")
    runs = total["gate"].runs
    print(f"{runs} runs in {time.perf_counter() - begun:.0f} s; goals: false promotions 0.5 %, false blocks 1 %")


if __name__ == "__main__":
    main()
