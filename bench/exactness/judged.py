"""How gatekeeper judges one run of the bench, by what a kind of backend shows: its passes, its metrics, its checks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from bench.exactness.evidence import DRAFTING, WORKLOADS, Run
from gatekeeper.analysis.follow_ups import log_probabilities, numerics, replay
from gatekeeper.analysis.follow_ups.follow_up import Needs, Soaked
from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.metrics.words.scored_answers import Place, left_to_continue, read_whole, windows
from gatekeeper.analysis.plan.objectives import Terms, all_objectives
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.workload_verdict import objective_estimate
from gatekeeper.backends.dialects import llama_server, lmstudio, mlx_server
from gatekeeper.backends.worker_backend.worker_backend import READS_TARGET, SEEN_IN_ANSWERS
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Numerics, Scored, StoredRecords
from gatekeeper.core.slo import Slo, parse


class Shown(StrEnum):
    """What a kind of backend shows."""

    ROUNDS = "in process"
    """Rounds can be read again: our mlx worker."""
    LEADS = "HTTP, log-probabilities"
    """Those of plain decoding, and of a beginning read as a prompt: llama-server."""
    PASSES = "HTTP, verified passes"
    """Those of the passes that verified a draft: mlx_lm.server."""
    TEXT = "text alone"
    """LM Studio."""


SIGHTS: Mapping[Shown, Sight] = {
    Shown.ROUNDS: SEEN_IN_ANSWERS | READS_TARGET | Sight.ROUNDS | Sight.PLAIN,
    Shown.LEADS: llama_server.DIALECT.sight | Sight.PLAIN,
    Shown.PASSES: mlx_server.DIALECT.sight | Sight.PLAIN,
    Shown.TEXT: lmstudio.DIALECT.sight | Sight.PLAIN,
}
_SLO = """
schema = 1
name = "exactness"
[subject]
backend = "mlx"
target = "little-target"
drafts = ["little-draft"]
[sampling]
temperature = 0.0
[sweep]
num_draft_tokens = [3]
[soak]
duration = "600 s"
"""
QUALITY = {"json_pass_delta": "json", "task_pass_delta": "code"}
"""The objectives that count right answers, and their workloads; the others are implicit, and about words and speed."""
_GRADED = """
[[objective]]
metric = "{metric}"
{bound}
workloads = {workloads}
why = "quality within 0.5 %, as in m4-24gb"
"""


def bench_slo() -> Slo:
    """Return an SLO with quality within 0.5 % as in m4-24gb, on JSON and code; everything else is implicit."""
    text = _SLO + "".join(f'[[workload]]\nname = "{name}"\ncanaries = "{name}"\n' for name in WORKLOADS)
    for metric, workload in QUALITY.items():
        for bound in ("at_least = -0.005", "at_most = 0.005"):
            text += _GRADED.format(metric=metric, bound=bound, workloads=f'["{workload}"]')
    return parse(text, "exactness.toml")


@dataclass(frozen=True, slots=True)
class Judged:
    """The checks of one run, by workload."""

    checks: Mapping[str, tuple[Check, ...]]

    def promoted(self, *, quality: bool) -> bool:
        """Return whether each check of each workload passes; without *quality* those of pass rates are left out."""
        return all(result.outcome is Outcome.PASS for result in self._counting(quality=quality))

    def failed(self, *, quality: bool) -> bool:
        """Return whether a check fails."""
        return any(result.outcome is Outcome.FAIL for result in self._counting(quality=quality))

    def _counting(self, *, quality: bool) -> Iterator[Check]:
        for checks in self.checks.values():
            yield from (result for result in checks if quality or result.metric not in QUALITY)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the run is not promoted."""
        return tuple(
            f"{workload}: {result.metric} {result.outcome.name.lower()}: {result.because}"
            for workload, checks in self.checks.items()
            for result in checks
            if result.outcome is not Outcome.PASS
        )


def judge(run: Run, shown: Shown, slo: Slo, *, level: float = 0.95, everything: bool = False) -> Judged:
    """Judge a run as `certify` would after its soak; *everything*: every answer is read again in fact."""
    terms = Terms(sight=SIGHTS[shown])
    settings = dict.fromkeys(WORKLOADS, DRAFTING)
    paired = {name: _paired(run, shown, name, level) for name in WORKLOADS}
    for name in WORKLOADS:
        others = (paired[other] for other in WORKLOADS if other != name)
        elsewhere = tuple(answer for answers in others for answer in (*answers.answers, *answers.plain))
        paired[name] = replace(paired[name], elsewhere=elsewhere)
    soaked = Soaked(
        slo, SoakPlan("soak-1", settings, DRAFTING), terms, paired.__getitem__, lambda name: (paired[name],)
    )
    for name, generations in replay.FOLLOW_UP.needs(soaked).items():
        replays = run.replays(generations, everything=everything)
        paired[name] = _with_records(paired[name], replay.FOLLOW_UP.name, replays)
    scored = log_probabilities.FOLLOW_UP.needs(soaked)
    records = tuple(_scored(run, shown, scored))
    for name in scored:
        paired[name] = _with_records(paired[name], log_probabilities.FOLLOW_UP.name, records)
    planned = numerics.FOLLOW_UP.needs(soaked)
    read: tuple[Numerics, ...] = tuple(
        run.widths(name, place.canary, place.width)
        if place.width is not None
        else run.as_prompt(name, place.scored, place.positions)
        for name, places in planned.items()
        for place in places
    )
    for name in planned:
        paired[name] = _with_records(paired[name], numerics.FOLLOW_UP.name, read)
    logits = Sight.LOGITS in terms.sight
    return Judged(
        {
            name: tuple(
                check(objective, objective_estimate(objective, paired[name], {}, logits=logits))
                for objective in all_objectives(slo, name, speculating=True, terms=terms)
            )
            for name in WORKLOADS
        }
    )


def _with_records(answers: PairedAnswers, name: str, records: tuple[Any, ...]) -> PairedAnswers:
    return replace(answers, followed={**answers.followed, name: StoredRecords(records)})


def _scored(run: Run, shown: Shown, needs: Needs) -> Iterator[Scored]:
    """Yield what the follow-up of the log-probabilities would record."""
    own_pass, records = shown is Shown.PASSES, dict[Place, list[Scored]]()
    for name, canaries in needs.items():
        for canary in canaries:
            drafting = run.scored(name, canary.id, "candidate", own_pass=own_pass)
            pieces = windows(drafting) if canary.differs else ()
            records[name, canary.id] = [drafting, *(run.continued(name, window) for window in pieces)]
    least, read = {name: max(canary.least for canary in canaries) for name, canaries in needs.items()}, set[Place]()
    while unread := [place for place in read_whole(records, least) if place not in read]:
        read.update(unread)
        for name, canary_id in unread:
            of_canary = records[name, canary_id]
            of_canary.append(run.scored(name, canary_id, "plain", own_pass=own_pass))
            while (left := left_to_continue(of_canary)) is not None:
                of_canary.append(run.continued(name, left))
    for of_canary in records.values():
        yield from of_canary


def _paired(run: Run, shown: Shown, name: str, level: float) -> PairedAnswers:
    drafted, plain = run.generations(name, counted=shown is Shown.ROUNDS)
    chosen = [run.pair.canaries[run.rows[index]][1] for index in run.canaries[name]]
    canaries = {canary.id: canary for canary in chosen}
    return pair_answers(PairedAnswers(name, canaries, drafted, plain, level=level, seed=7, greedy=True))
