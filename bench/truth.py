"""The gate against simulated subjects whose truth is known: how often it promotes or blocks wrongly, or proves nothing.

    python -m bench.truth --runs 40              # per scenario; prints a table
    python -m bench.truth --runs 200 --json      # every figure as JSON
    python -m bench.truth --only "bimodal;decay"

A scenario's truth is the decode ratio its script gives once noise is off and every drift is over, measured on the same
canaries; costs of speculation are scaled so that the best setting lies `effect` away from the bound. A false promotion
is one of a setting whose truth lies at least 3 % below the bound; a false block is `graded_back` or `failed` where the
best setting lies at least 5 % above it. Beside the gate stand two naive rules on the same records of the sweep:
comparing two means, and the better of two repetitions of each arm.
"""

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean
from typing import Any

from bench.rehearsal import Rehearsed, canaries, rehearse, slo
from gatekeeper.backends.script import Script
from gatekeeper.backends.scripted import ScriptedBackend
from gatekeeper.terms.canary import Canary
from gatekeeper.terms.ports import Ask, Sampling
from gatekeeper.terms.records import Answer, setting
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.timing import decode_rate

WRONG, RIGHT = 0.03, 0.05
"""How far from the bound a truth counts: below it for false promotions, above it for false blocks."""
ON_THE_EDGE = 0.002
"""Scaled truths miss their aim by the tokens of a round, which come microseconds apart; they still count."""
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

    @property
    def label(self) -> str:
        """Name it in the table."""
        return f"{self.name} {self.effect:+.0%}"


def scenarios() -> list[Scenario]:
    """Return every scenario of the table."""
    found = [Scenario("no effect", -1 + 1 / 1.16)]
    for bound in (1.0, 1.16):
        sizes = (-0.2, -0.1, -0.05, -0.03, 0.0, 0.03, 0.05, 0.1, 0.2)
        found += [Scenario(f"clean, bound {bound:g}", effect, bound) for effect in sizes]
    slow = {"of": "time", "by": 0.10, "over": 200.0}
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
        "acceptance decay 30 %": {"drift": [{"of": "acceptance", "by": -0.3, "over": 200.0}]},
    }
    for name, script in nuisances.items():
        found += [Scenario(name, effect, script=script) for effect in (-0.10, -0.03, 0.05, 0.10)]
    return found


def promise(bound: float) -> Slo:
    """Return the SLO of every scenario: one workload that must speculate, one ratio, a short soak full of twins."""
    return slo(
        workload=[{"name": "work", "canaries": "work.jsonl"}],
        sweep={"repeats": 3, "num_draft_tokens": list(LENGTHS), "default": {"num_draft_tokens": LENGTHS[-1]}},
        soak={"duration": 60.0, "sentinel_share": 0.5},
        objective=[{"metric": "throughput_ratio", "at_least": bound, "why": "it must pay"}],
    )


@cache
def prompts() -> tuple[Canary, ...]:
    """Return the canaries of every scenario."""
    return canaries("work", CANARIES)


def quiet(script: Mapping[str, Any]) -> dict[str, Any]:
    """Return the script without noise, and with every drift over."""
    # The first answers, thrown away, let this microsecond pass.
    drift = [{**one, "over": 1e-6} for one in script.get("drift", ())]
    return {**script, "noise": {}, "modes": (), "drift": drift}


def truths(script: Mapping[str, Any]) -> dict[int, float]:
    """Return the true decode ratio of each draft length, the geometric mean over the canaries."""
    subject = ScriptedBackend(Script.model_validate(quiet(script)))
    resident = subject.start(setting(draft="heavy"))
    sampling = Sampling(max_tokens=256)

    def answers(**knobs: Any) -> list[Answer]:
        return [resident.answer(Ask(canary, setting(**knobs), sampling)) for canary in prompts()]

    answers(draft=None)
    plain = answers(draft=None)
    found = {}
    for length in LENGTHS:
        mine = answers(draft="heavy", num_draft_tokens=length)
        pairs = [(decode_rate(one), decode_rate(twin)) for one, twin in zip(mine, plain, strict=True)]
        found[length] = math.exp(fmean(math.log(ours / theirs) for ours, theirs in pairs if ours and theirs))
    return found


def subject_of(scenario: Scenario, seed: int) -> tuple[dict[str, Any], dict[int, float]]:
    """Return the script whose best setting lies *effect* away from the bound, and each setting's truth."""
    script = {**SUBJECT, **scenario.script, "seed": seed}
    scale = max(truths(script).values()) / (scenario.bound * (1 + scenario.effect))
    scaled = {**script, "verify": script["verify"] * scale, "draft_token": script["draft_token"] * scale}
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


def run(scenario: Scenario, seed: int) -> Run:
    """Run a scenario once."""
    script, true = subject_of(scenario, seed)
    ran = rehearse(promise(scenario.bound), {"work": prompts()}, script, seed)
    verdict = ran.verdict.workloads[0]
    gate = {"promoted": "promoted", "unproven": "unproven"}.get(verdict.outcome, "blocked")
    chosen = verdict.setting.get("num_draft_tokens") if gate == "promoted" else None
    best = max(true.values())
    return Run(
        gate,
        _naive(ran, scenario.bound, _mean_of_all),
        _naive(ran, scenario.bound, _best_of_two),
        true.get(int(chosen or 0), best) / scenario.bound - 1,
        true[LENGTHS[-1]] / scenario.bound - 1,
        verdict.because,
    )


def _naive(ran: Rehearsed, bound: float, rule: Any) -> Outcome:
    """Judge the default setting by *rule*, a figure for each arm: it always decides."""
    mine, plain = (rule(ran.case.sweep[name].answers) for name in ("default", "baseline"))
    return "promoted" if mine / plain >= bound else "blocked"


def _rates(answers: Sequence[Any], repeat: int | None = None) -> list[float]:
    kept = [one for one in answers if one.role == "measured" and repeat in {None, one.repeat}]
    return [rate for one in kept if (rate := decode_rate(one.answer)) is not None]


def _mean_of_all(answers: Sequence[Any]) -> float:
    return fmean(_rates(answers))


def _best_of_two(answers: Sequence[Any]) -> float:
    return max(fmean(_rates(answers, repeat)) for repeat in (0, 1))


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one rule over runs."""

    runs: int = 0
    promoted: int = 0
    blocked: int = 0
    unproven: int = 0
    wrong: int = 0
    """Runs whose truth lies clearly below the bound."""
    right: int = 0
    """Runs whose truth lies clearly above it."""
    false_promotions: int = 0
    false_blocks: int = 0

    def plus(self, outcome: Outcome, truth: float, best: float) -> "Tally":
        """Count one more run."""
        wrong, right = truth <= -WRONG + ON_THE_EDGE, best >= RIGHT - ON_THE_EDGE
        return replace(
            self,
            runs=self.runs + 1,
            promoted=self.promoted + (outcome == "promoted"),
            blocked=self.blocked + (outcome == "blocked"),
            unproven=self.unproven + (outcome == "unproven"),
            wrong=self.wrong + wrong,
            right=self.right + right,
            false_promotions=self.false_promotions + (wrong and outcome == "promoted"),
            false_blocks=self.false_blocks + (right and outcome == "blocked"),
        )

    def together(self, other: "Tally") -> "Tally":
        """Add two tallies."""
        names = self.__dataclass_fields__
        return Tally(*(getattr(self, name) + getattr(other, name) for name in names))

    def document(self) -> dict[str, Any]:
        """Return counts and rates."""
        counts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return counts | {
            "false_promotion_rate": self.false_promotions / self.wrong if self.wrong else None,
            "false_block_rate": self.false_blocks / self.right if self.right else None,
            "unproven_rate": self.unproven / self.runs if self.runs else None,
        }


RULES = ("gate", "means", "best_of_two")


def tally(scenario: Scenario, runs: int, seed: int) -> dict[str, Tally]:
    """Run a scenario *runs* times and count, per rule."""
    tallies = {rule: Tally() for rule in RULES}
    for number in range(runs):
        made = run(scenario, seed + number)
        for rule in RULES:
            truth = made.truth if rule == "gate" else made.naive_truth
            best = scenario.effect if rule == "gate" else made.naive_truth
            tallies[rule] = tallies[rule].plus(getattr(made, rule), truth, best)
    return tallies


def share(count: int, of: int) -> str:
    """Write a rate, or a dash where nothing could go wrong."""
    return f"{count / of:7.1%}" if of else "      -"


def line(name: str, tallies: Mapping[str, Tally]) -> str:
    """Write one row of the table."""
    cells = [f"{name:<32}", f"{tallies['gate'].runs:>5}"]
    for rule in RULES:
        one = tallies[rule]
        cells += [share(one.false_promotions, one.wrong), share(one.false_blocks, one.right)]
        if rule == "gate":
            cells.append(share(one.unproven, one.runs))
    return " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="per scenario")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="scenarios whose name holds one of these, separated by semicolons")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    wanted = [name for name in given.only.split(";") if name]
    begun, total, rows = time.perf_counter(), {rule: Tally() for rule in RULES}, []
    if not given.json:
        print(f"{'':<38} {'gate':^23} {'two means':^15} {'best of two':^15}")
        print(f"{'scenario, truth against bound':<32} {'runs':>5}" + " promote   block unprovn promote   block", end="")
        print(" promote   block")
    for number, scenario in enumerate(scenarios()):
        if wanted and not any(name in scenario.label for name in wanted):
            continue
        counted = tally(scenario, given.runs, given.seed + number * 1_000_003)
        total = {rule: total[rule].together(counted[rule]) for rule in RULES}
        rows.append({"scenario": scenario.name, "effect": scenario.effect, "bound": scenario.bound})
        rows[-1] |= {rule: counted[rule].document() for rule in RULES}
        if not given.json:
            print(line(scenario.label, counted), flush=True)
    seconds = time.perf_counter() - begun
    if given.json:
        document = {"runs": given.runs, "seed": given.seed, "seconds": round(seconds, 1), "scenarios": rows}
        print(json.dumps(document | {"total": {rule: total[rule].document() for rule in RULES}}, indent=1))
        return
    print(line("total", total))
    runs = total["gate"].runs
    print(f"{runs} runs in {seconds:.0f} s; goals: false promotions 1 %, false blocks 2 %")


if __name__ == "__main__":
    main()
