"""What the sweep measured of one candidate setting: its ratio to plain decoding, and what that is worth."""

from dataclasses import asdict, dataclass, field
from functools import cache
from statistics import median

from pydantic import model_serializer

from gatekeeper.analysis.metrics import paired_answers
from gatekeeper.analysis.metrics.comparability import (
    after_slow_start,
    length_mismatches,
    total_failure,
    unstable_plain_arm,
    voided_metrics,
)
from gatekeeper.analysis.metrics.consistency import contradictions
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.host.energy import energy_ratio
from gatekeeper.analysis.metrics.paired_answers import mean_ratio
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed, drafted_by_answer
from gatekeeper.analysis.metrics.timing import acceptance_rate
from gatekeeper.analysis.plan.settings import chosen_of, concurrency_of, conditions_of
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, Trial
from gatekeeper.analysis.sweep.early_stop import early_stops, least_speed
from gatekeeper.analysis.sweep.sweep_answers import Stop, SweepAnswers
from gatekeeper.core.judgement import Estimate, Finding, FindingKind, Missing, figures, omit_none, round_figure
from gatekeeper.core.metrics import DECODE_RATIO, SYSTEM_RATIO
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import describe_setting

BROKEN = 0.5
"""A draft that fails so many answers of a sweep is broken; a soak counts what fails by `error_rate`."""


@dataclass(frozen=True, slots=True)
class SettingResult:
    """What the sweep measured of one candidate setting."""

    trial: Trial
    ratio: Estimate | Missing
    measure: str
    """The ratio that it is judged by."""
    acceptance: float | None
    claimed: bool = field(default=False, kw_only=True)
    """The acceptance is the server's claim."""
    findings: tuple[Finding, ...] = ()
    stop: Stop | None = None
    """Why sampling of this setting stopped early."""
    age_s: float = 0.0
    """How old the process was on average, in seconds."""
    energy: Estimate | Missing | None = None
    """Joules a token over plain decoding's, rest included, where the SLO prefers the setting with the fewest."""

    @property
    def chosen(self) -> Setting:
        """Return the knobs of its setting that the sweep chooses."""
        return chosen_of(self.trial.setting)

    @property
    def conditions(self) -> Setting:
        """Return the knobs of its setting that are reported and never chosen."""
        return conditions_of(self.trial.setting)

    @property
    def shown(self) -> Estimate | None:
        """Return the ratio as reports show it; None where it was not measured."""
        return self.ratio.round_figures() if isinstance(self.ratio, Estimate) else None

    @property
    def center(self) -> float:
        """Return the ratio, 0 where it was not measured, to order settings by their speed."""
        return self.ratio.center if isinstance(self.ratio, Estimate) else 0.0

    @property
    def proposes_nothing(self) -> bool:
        """Return whether its draft proposed no token at all, so that it is plain decoding by another name."""
        return any(finding.kind == FindingKind.SILENT_SPECULATION for finding in self.findings)

    @property
    def slower_than_plain(self) -> bool:
        """Return whether it is proven slower than plain decoding, also if its process still warms up."""
        if self.stop is not None and self.stop.kind == "slower-than-plain":
            return True
        return isinstance(self.ratio, Estimate) and self.ratio.hi < least_speed(self.age_s)

    @property
    def beats_plain(self) -> bool:
        """Return whether a gain is proven: the interval over canaries lies above 1."""
        return isinstance(self.ratio, Estimate) and self.ratio.lo > 1

    @model_serializer
    def _write(self) -> dict[str, object]:
        ratio = figures("ratio", self.ratio)
        because = ratio.pop("because", None)
        return {
            "trial": self.trial.name,
            "setting": dict(self.trial.setting),
            "changed": self.trial.changed,
            "measure": self.measure,
            **ratio,
            "acceptance_rate": round_figure(self.acceptance) if self.acceptance is not None else None,
            **omit_none(
                acceptance_from="claims" if self.claimed and self.acceptance is not None else None,
                because=because,
                energy_ratio=self.energy and _write_ratio(self.energy),
                stopped=self.stop and asdict(self.stop),
            ),
        }


def _write_ratio(ratio: Estimate | Missing) -> dict[str, object]:
    """Return a ratio as verdict.json writes one that may be missing."""
    return figures("ratio", ratio) if isinstance(ratio, Estimate) else {"n": ratio.n, "because": ratio.because}


def measure_of(slo: Slo, trial: Trial) -> str:
    """Return the ratio that decides: above one stream only the system's throughput counts."""
    return DECODE_RATIO if concurrency_of(slo, trial.setting) == 1 else SYSTEM_RATIO


def setting_results(sweep: SweepAnswers) -> tuple[SettingResult, ...]:
    """Compare every candidate trial with its baseline."""
    about, stops = f"{sweep.workload}, sweep", early_stops(sweep)

    @cache
    def unstable(baseline: str) -> tuple[Finding, ...]:
        plain = (*sweep.of(baseline), *(sweep.of(NULL) if baseline == BASELINE else ()))
        return unstable_plain_arm(after_slow_start(plain), about)

    results = []
    silent = _silent_drafts(sweep, about)
    for trial in sweep.plan.candidates:
        pairs, name = sweep.pair_trial(trial), trial.name
        findings = (
            *unstable(trial.baseline),
            *total_failure(pairs.answers, about, least=BROKEN),
            *contradictions(pairs, f"{about} of {name}", speeds=False),
            *length_mismatches(pairs, f"{about} of {name}"),
            *((silent[name],) if name in silent else ()),
        )
        measure, by_pair, few = sweep.compare_trial(trial)
        ratio = mean_ratio(by_pair, pairs) if few is None else Missing(few, len(pairs.pairs))
        if measure_of(sweep.slo, trial) == SYSTEM_RATIO:
            measure, ratio = SYSTEM_RATIO, estimate(SYSTEM_RATIO, pairs)
        if (reason := voided_metrics(findings).get(measure)) is not None:
            ratio = Missing(reason, len(pairs.pairs))
        answers, claimed = counted_or_claimed(pairs.answers)
        accepted = [value for _, value in paired_answers.values_of(paired_answers.successful(answers), acceptance_rate)]
        result = SettingResult(
            trial, ratio, measure, median(accepted) if accepted else None, claimed=claimed, findings=findings,
            stop=stops.get(name), age_s=sweep.age_s(trial),
            energy=energy_ratio(pairs) if sweep.slo.sweep.prefer == "energy" else None,
        )  # fmt: skip
        results.append(result)
    return tuple(results)


def _silent_drafts(sweep: SweepAnswers, about: str) -> dict[str, Finding]:
    """Return a finding, by trial, where no answer has a drafted token; it is one finding where that holds for all."""
    drafted_tokens = {
        trial.name: drafted_by_answer(paired_answers.successful(sweep.of(trial.name)))
        for trial in sweep.plan.candidates
    }
    silent = [trial for trial in sweep.plan.candidates if {*drafted_tokens[trial.name]} == {0}]
    words = {trial.name: f" with {describe_setting(dict(trial.setting))}" for trial in silent}
    if len(silent) == len(drafted_tokens):
        words = dict.fromkeys(words, "")
    return {
        name: Finding(
            FindingKind.SILENT_SPECULATION, about, f"the draft proposed no tokens in any answer{which}",
            sweep.plan.terms.draft_hint,
        )
        for name, which in words.items()
    }  # fmt: skip
