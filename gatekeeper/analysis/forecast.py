"""The forecast of a run's duration, stage by stage: an estimate, not a measurement.

The soak's schedule is played through on paper: it lasts its duration, or until every objective has the answers it
needs. Where nothing is known of an answer, it has its maximum length, at an assumed speed of plain decoding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.follow_ups.follow_up import FollowUp
from gatekeeper.analysis.plan import soak_schedule
from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.objectives import forced_workloads
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.request_costs import Assumptions, RequestCosts
from gatekeeper.analysis.plan.settings import PLAIN
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
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
        sweep = [self._answering(request) for request in self.plan.requests]
        soaks = self.soaks(soak_schedule.soak_plans(self.plan, self._assume_settings(), 1))
        stages = (StageForecast("sweep", len(sweep), sum(sweep)), *soaks)
        return tuple(stage for stage in stages if stage.seconds > 0)

    def shortest_sweep(self) -> float:
        """Return the seconds of the sweep if its first look decides everything."""
        looked = [block for block in self.plan.blocks if block.stretch == 0]
        return sum(self._answering(request) for block in looked for request in block.requests)

    def fallback(self) -> tuple[StageForecast, ...]:
        """Return each step of the ladder: the soak and the follow-ups it adds where every workload takes it."""
        settings, last, stages = dict(self._assume_settings()), None, []
        for turn in range(2, len(self.slo.fallback.ladder) + 2):
            down = {name: next_step(self.slo, knobs, last) for name, knobs in settings.items()}
            steps = {name: step for name, step in down.items() if step is not None}
            if not steps:
                break
            last = min((step for step, _ in steps.values()), key=self.slo.fallback.ladder.index)
            settings = {name: knobs for name, (step, knobs) in steps.items() if step == last}
            soaks = self.soaks(soak_schedule.soak_plans(self.plan, settings, turn))
            answers, seconds = sum(stage.answers for stage in soaks), sum(stage.seconds for stage in soaks)
            stages.append(StageForecast(last, answers, seconds))
        return tuple(stages)

    def soaks(self, soaks: Iterable[soak_schedule.SoakPlan]) -> tuple[StageForecast, ...]:
        """Return the stages of *soaks*: the soaks themselves, and what follows outside of their duration."""
        total: dict[str, StageForecast] = {}
        for soak in soaks:
            plain = [
                request for block in self._plain_blocks(soak) for request in (*block[: soak_schedule.WARMUPS], *block)
            ]
            for stage in (
                self._soak(soak),
                StageForecast("rest", 0, 2 * soak_schedule.rest_s(self.slo, soak.settings)),
                self._stage("plain_blocks", plain),
                self._stage("closing", soak_schedule.closing_requests(soak.settings, self.canaries)),
                *(self._follow_up(follow_up, soak) for follow_up in FOLLOW_UPS),
            ):
                before = total.get(stage.name, StageForecast(stage.name, 0, 0.0))
                answers, seconds = before.answers + stage.answers, before.seconds + stage.seconds
                total[stage.name] = StageForecast(stage.name, answers, seconds)
        return tuple(total.values())

    def pairs(self) -> dict[str, float]:
        """Return how many pairs of both arms the soaks have in their duration, by workload."""
        pairs: dict[str, float] = {}
        tiers = {workload.name: workload.tier for workload in self.slo.workload}
        for soak in soak_schedule.soak_plans(self.plan, self._assume_settings(), 1):
            if not self._woven:
                blocks = [request.workload for block in self._plain_blocks(soak) for request in block]
                pairs |= {name: float(blocks.count(name)) for name in soak.settings}
                continue
            weights = {name: self.profile.weight(name, tiers[name]) for name in soak.settings}
            stage = self._soak(soak)
            plain = stage.answers * self.slo.soak.duration / stage.seconds * self.slo.soak.baseline_share
            pairs |= {name: plain * weight / sum(weights.values()) for name, weight in weights.items()}
        return pairs

    def _assume_settings(self) -> Mapping[str, Setting]:
        default = self.plan.candidates[0].setting if self.plan.candidates else PLAIN
        return dict.fromkeys((workload.name for workload in self.slo.workload), self.plan.fixed or default)

    @property
    def costs(self) -> RequestCosts:
        """Return what the requests of the run take."""
        return RequestCosts(self.slo, self.plan.terms, self.canaries, self.assumed)

    def _answering(self, request: PlannedRequest) -> float:
        return self.costs.answering(request.workload, request.canary, request.setting)

    def _soak(self, soak: soak_schedule.SoakPlan) -> StageForecast:
        """Play the schedule through until every workload has the answers it needs; counts decide, as in the soak."""
        slo, profile, woven = self.slo, self.profile, self._woven
        tiers = {workload.name: workload.tier for workload in slo.workload}
        weights = {name: profile.weight(name, tiers[name]) for name in soak.settings}
        swept = soak_schedule.swept_canaries(slo, self.canaries)
        tried = {trial.setting for trial in self.plan.candidates}
        forces = forced_workloads(slo, soak.settings, self.plan.terms)
        coverage = soak_schedule.Coverage(
            {
                name: soak_schedule.canaries_needed(slo, name, knobs, self.canaries[name], forced=name in forces)
                for name, knobs in soak.settings.items()
            },
            {name: swept[name] for name, knobs in soak.settings.items() if knobs in tried},
        )
        for plain in (request for block in self._plain_blocks(soak) for request in block):
            coverage.add(plain.workload, plain.arm, plain.canary.id)
        share = slo.soak.baseline_share if woven else 0.0
        answers, seconds = 0, 0.0
        for turn in soak_schedule.soak_requests(
            soak.settings, self.canaries, weights, baseline_share=share, seed=self.plan.seed, swept=swept
        ):
            for request in turn:
                seconds += (self._answering(request) + profile.idle) / slo.soak.concurrency
                seconds = max(seconds, answers / profile.rate) if profile.rate is not None else seconds
                answers += 1
                coverage.add(request.workload, request.arm, request.canary.id)
            enough = not coverage.lacking() and (answers >= _TYPICAL or seconds >= slo.soak.duration)
            if seconds >= slo.soak.max_duration or enough:
                break
        lasts = soak.seconds or min(max(seconds, slo.soak.duration), slo.soak.max_duration)
        return StageForecast("soak", round(answers * lasts / seconds) if seconds else 0, lasts)

    @property
    def _woven(self) -> bool:
        return self.plan.shares_process and self.slo.soak.concurrency == 1

    def _plain_blocks(self, soak: soak_schedule.SoakPlan) -> list[list[PlannedRequest]]:
        """Return the plain requests before, between and after the stretches of a soak that does not interleave them."""
        if self._woven:
            return []
        blocks = soak_schedule.stretches(soak.seconds or self.slo.soak.duration) + 1
        return [
            soak_schedule.plain_block(self.slo, soak.settings, self.canaries, number, blocks)
            for number in range(blocks)
        ]

    def _stage(self, name: str, requests: Sequence[PlannedRequest]) -> StageForecast:
        return StageForecast(name, len(requests), sum(map(self._answering, requests)) / self.slo.soak.concurrency)

    def _follow_up(self, follow_up: FollowUp[Any], soak: soak_schedule.SoakPlan) -> StageForecast:
        seconds = [*follow_up.forecast(self.costs, soak.settings)]
        return StageForecast(follow_up.name, len(seconds), sum(seconds))
