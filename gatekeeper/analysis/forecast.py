"""The forecast of a run's duration, stage by stage: an estimate, not a measurement.

The soak's schedule is played through on paper: it lasts its duration, or until every objective has the answers it
needs. Where nothing is known of an answer, it has its maximum length, at an assumed speed of plain decoding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.passes import PASSES
from gatekeeper.analysis.passes.definition import Pass
from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.objectives import forced_workloads
from gatekeeper.analysis.plan.region_points import Point, box_corners, certified_point, directions, point_plan
from gatekeeper.analysis.plan.request_costs import Assumptions, RequestCosts
from gatekeeper.analysis.plan.settings import PLAIN, chosen_of, plain_of, speculates
from gatekeeper.analysis.plan.soak_schedule import (
    PLAIN_BLOCKS,
    WARMUPS,
    Coverage,
    SoakPlan,
    SoakRequest,
    canaries_needed,
    closing_requests,
    plain_block,
    soak_plans,
    soak_requests,
    swept_canaries,
)
from gatekeeper.analysis.plan.sweep_plan import ASKED, SweepPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Profile, Slo

_TYPICAL = 200
"""After so many answers the mix of a soak is known, and the rest of its duration is extrapolated."""


@dataclass(frozen=True, slots=True)
class StageForecast:
    """One stage of a run: its answers, and how long it takes."""

    name: str
    answers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of one run's stages; see `stages`, `soaks` and `fallback`."""

    slo: Slo
    plan: SweepPlan
    canaries: Mapping[str, Sequence[Canary]]
    profile: Profile
    assumed: Assumptions

    def stages(self) -> tuple[StageForecast, ...]:
        """Return the stages in their order, if the sweep sends all its requests and chooses the default everywhere."""
        sweep = [self._answer(one.workload, one.canary, one.trial.setting) for one in self.plan.requests]
        soaks = self.soaks(self._first_soaks())
        found = (StageForecast("sweep", len(sweep), sum(sweep)), *soaks, self._routing(), self._region())
        return tuple(stage for stage in found if stage.seconds > 0)

    def shortest_sweep(self) -> float:
        """Return the seconds of the sweep if its first look decides everything."""
        looked = [block for block in self.plan.blocks if block.stretch == 0]
        return sum(
            self._answer(one.workload, one.canary, one.trial.setting) for block in looked for one in block.requests
        )

    def fallback(self) -> tuple[StageForecast, ...]:
        """Return each step of the ladder: the soak and the passes it adds where every workload takes it."""
        settings, last, found = dict(self._chosen()), None, []
        for turn in range(2, len(self.slo.fallback.ladder) + 2):
            down = {name: next_step(self.slo, knobs, last) for name, knobs in settings.items()}
            steps = {name: step for name, step in down.items() if step is not None}
            if not steps:
                break
            last = min((step for step, _ in steps.values()), key=self.slo.fallback.ladder.index)
            settings = {name: knobs for name, (step, knobs) in steps.items() if step == last}
            passes = self.soaks(soak_plans(self.plan, settings, turn))
            found.append(StageForecast(last, sum(one.answers for one in passes), sum(one.seconds for one in passes)))
        return tuple(found)

    def soaks(self, soaks: Iterable[SoakPlan]) -> tuple[StageForecast, ...]:
        """Return the stages of *soaks*: the soaks themselves, and the passes outside of their duration."""
        total: dict[str, StageForecast] = {}
        for soak in soaks:
            for one in (
                self._soak(soak),
                self._whole("plain_blocks", soak, self._plain_blocks(soak)),
                self._whole("closing", soak, closing_requests(soak.settings, self.canaries)),
                *(self._pass(each, soak) for each in PASSES),
            ):
                before = total.get(one.name, StageForecast(one.name, 0, 0.0))
                total[one.name] = StageForecast(one.name, before.answers + one.answers, before.seconds + one.seconds)
        return tuple(total.values())

    def _chosen(self) -> Mapping[str, Setting]:
        default = self.plan.candidates[0].setting if self.plan.candidates else PLAIN
        return dict.fromkeys((one.name for one in self.slo.workload), self.plan.fixed or default)

    def _first_soaks(self) -> tuple[SoakPlan, ...]:
        return soak_plans(self.plan, self._chosen(), 1)

    @property
    def costs(self) -> RequestCosts:
        """Return what the requests of the run take."""
        return RequestCosts(self.slo, self.plan.terms, self.canaries, self.assumed)

    def _answer(self, workload: str, canary: Canary, knobs: Setting) -> float:
        return self.costs.answering(workload, canary, knobs)

    def _of(self, soak: SoakPlan, request: SoakRequest) -> float:
        knobs = soak.settings[request.workload]
        return self._answer(request.workload, request.canary, knobs if request.arm == "candidate" else plain_of(knobs))

    def _soak(self, soak: SoakPlan) -> StageForecast:
        """Play the schedule through until every workload has the answers it needs; counts decide, as in the soak."""
        slo, profile, woven = self.slo, self.profile, self._woven
        tiers = {one.name: one.tier for one in slo.workload}
        weights = {name: profile.weight(name, tiers[name]) for name in soak.settings}
        swept = swept_canaries(slo, self.canaries)
        tried = {one.setting for one in self.plan.candidates}
        forces = forced_workloads(slo, soak.settings, self.plan.terms)
        coverage = Coverage(
            {
                name: canaries_needed(slo, name, knobs, self.canaries[name], forced=name in forces)
                for name, knobs in soak.settings.items()
            },
            {name: swept[name] for name, knobs in soak.settings.items() if knobs in tried},
        )
        for plain in () if woven else [one for number in range(PLAIN_BLOCKS) for one in self._block(soak, number)]:
            coverage.add(plain.workload, plain.arm, plain.canary.id)
        share = slo.soak.sentinel_share if woven else 0.0
        answers, seconds = 0, 0.0
        for turn in soak_requests(
            soak.settings, self.canaries, weights, sentinel_share=share, seed=self.plan.seed, swept=swept
        ):
            for one in turn:
                seconds += (self._of(soak, one) + profile.idle) / slo.soak.concurrency
                seconds = max(seconds, answers / profile.rate) if profile.rate is not None else seconds
                answers += 1
                coverage.add(one.workload, one.arm, one.canary.id)
            enough = not coverage.lacking() and (answers >= _TYPICAL or seconds >= slo.soak.duration)
            if seconds >= slo.soak.max_duration or enough:
                break
        lasts = soak.seconds or min(max(seconds, slo.soak.duration), slo.soak.max_duration)
        return StageForecast("soak", round(answers * lasts / seconds) if seconds else 0, lasts)

    @property
    def _woven(self) -> bool:
        return self.plan.shares_process and self.slo.soak.concurrency == 1

    def _routing(self) -> StageForecast:
        """Count what a whole sweep leaves to the routing pass: plain answers again, and the best of two knobs together.

        What else it asks, a sweep that stopped early has saved.
        """
        weights = [self.profile.weight(one.name, one.tier) for one in self.slo.workload]
        routes = len([weight for weight in weights if weight])
        if routes < 2 or self.slo.soak.concurrency != 1 or self.plan.fixed or not self.plan.candidates:
            return StageForecast("routing", 0, 0.0)
        chosen = {knob for trial in self.plan.candidates for knob in dict(chosen_of(trial.setting)).items()}
        knobs = {name for name, _ in chosen if len({value for knob, value in chosen if knob == name}) > 1}
        settings = [PLAIN] * bool(knobs) + [self.plan.candidates[0].setting] * (len(knobs) > 1)
        asked = [
            self._answer(one.name, canary, setting)
            for one, weight in zip(self.slo.workload, weights, strict=True)
            for canary in (self.canaries[one.name][:ASKED] if weight else ())
            for setting in settings
        ]
        return StageForecast("routing", len(asked), sum(asked))

    def _region(self) -> StageForecast:
        """Count the first look at every value of each axis, and at the corners of the box: as if all were inside."""
        answers, seconds, slo = 0, 0.0, self.slo
        chosen = {} if self.plan.fixed else self._chosen()
        for name, knobs in chosen.items() if slo.region.axes else ():
            if not speculates(knobs):
                continue
            ways = directions(slo, certified_point(slo, knobs, self.canaries[name], None))
            along: list[Point] = [((way.axis, value),) for way in ways for value in way.values[-way.most_probes :]]
            for point in (*along, *box_corners({way: len(way.values) for way in ways})):
                shares = self.plan.shares_process
                planned = point_plan(slo, name, knobs, self.canaries[name], point, seed=self.plan.seed, shares=shares)
                for one in (request for block in planned.blocks(0, self.plan.seed) for request in block):
                    mine = planned.knobs if one.arm == "candidate" else planned.plain
                    answers += 1
                    seconds += self._answer(name, one.unit.canary, mine) / planned.streams
        return StageForecast("region", answers, seconds)

    def _block(self, soak: SoakPlan, number: int) -> list[SoakRequest]:
        return plain_block(soak.settings, self.canaries, number)

    def _plain_blocks(self, soak: SoakPlan) -> list[SoakRequest]:
        """Return the plain requests before, midway and after a soak that does not interleave them."""
        blocks = [] if self._woven else [self._block(soak, number) for number in range(PLAIN_BLOCKS)]
        return [request for block in blocks for request in (*block[:WARMUPS], *block)]

    def _whole(self, name: str, soak: SoakPlan, requests: Sequence[SoakRequest]) -> StageForecast:
        return StageForecast(
            name, len(requests), sum(self._of(soak, one) for one in requests) / self.slo.soak.concurrency
        )

    def _pass(self, after: Pass[Any], soak: SoakPlan) -> StageForecast:
        seconds = [*after.forecast(self.costs, soak.settings)]
        return StageForecast(after.name, len(seconds), sum(seconds))
