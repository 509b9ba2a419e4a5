"""The certified runs to compare with: found among stored runs, verified as the deploy gate does, and summarised."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gatekeeper import host
from gatekeeper.analysis.plan.settings import setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.analysis.verdict.against_certified import CertifiedFigures, PooledRun, compare_inputs, summary
from gatekeeper.analysis.verdict.case import Case, soak_answers
from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome
from gatekeeper.core.document import document_of
from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError, UnprovableError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.manifest import CertifiedBaseline, sha256
from gatekeeper.core.records import Knobs
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import SLO_NAME, stored_inputs
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory, is_run, runs_in
from gatekeeper.core.text import json_text
from gatekeeper.run.stored import verify
from gatekeeper.run.stored.load import load_case

NONE = "none"
"""The word in the place of a run: there is no certified run yet."""
MOST_POOLED = 10
"""Runs that are compared with together: the mean of ten is hardly less certain than that of more, and each of them is
judged again first."""
_HERE = ("platform", "chip", "memory_bytes")
"""Facts of a host that tell this machine from another."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The certified run, as the manifest names it, and the copy of its figures."""

    entry: CertifiedBaseline
    text: str | None
    """The copy; None where there is no certified run yet."""


def find_baseline(slo: Slo, baseline: str | None, runs: Path) -> Baseline | None:
    """Return the certified run that the objectives of *slo* compare with; None where none of them does.

    It is the run that *baseline* names (`none`: there is none yet). Else it is the newest one in the folder that
    *baseline* names, or in *runs*, of the same SLO on this host, together with the older ones of the same system.
    """
    if not needs_baseline(slo, baseline):
        return None
    if baseline == NONE:
        return Baseline(CertifiedBaseline(run=None), None)
    folder = runs if baseline is None else Path(baseline)
    if baseline is not None and (is_run(folder) or not folder.is_dir()):
        return _summarise([verify_certified(folder)])
    return _summarise(certified_runs(slo, _newest_first(slo, folder), f"on this host in {folder}"))


def needs_baseline(slo: Slo, baseline: str | None) -> bool:
    """Return whether objectives of *slo* compare with a certified run; where none does, *baseline* may name none."""
    is_needed = any(objective.against is not None for objective in slo.objective)
    if baseline is not None and not is_needed:
        hint = 'add against = "certified" to an objective, or remove --baseline'
        raise InputError("--baseline: no objective of this SLO compares with a certified run", hint=hint)
    return is_needed


def certified_runs(slo: Slo, newest_first: Sequence[Path], where: str) -> list[verify.VerifiedRun]:
    """Return the newest of these runs that the deploy gate would have admitted and that is no demo, and like ones.

    The run that decides to end a soak is a lucky one more often than not, so it is not compared with alone.
    """
    newest = _newest_certified(slo, newest_first, where)
    older = newest_first[newest_first.index(newest.directory.path) + 1 :]
    return [newest, *islice(_of_the_same_system(newest, older), MOST_POOLED - 1)]


def _newest_certified(slo: Slo, newest_first: Iterable[Path], where: str) -> verify.VerifiedRun:
    """Return the first of these runs that is a certification and that the deploy gate would have admitted.

    *where* is where they were found.
    """
    refusals = []
    for path in newest_first:
        try:
            run = verify_certified(path)
        except (InputError, NoProofError) as error:
            refusals.append(f"{path}: {error.message}")
            continue
        if run.verdict.grade == "certification":
            return run
        refusals.append(f"{path} is a demo, which counts only where --baseline names it")
    metric = next(objective.metric for objective in slo.objective if objective.against is not None)
    reasons = [f"no certified run of the SLO '{slo.name}' {where}", *refusals[:3]]
    message = f'objective {metric}, against = "certified": {"; ".join(reasons)}'
    raise UnprovableError(message, hint="name the run with --baseline RUN; certify the first one with --baseline none")


def _of_the_same_system(newest: verify.VerifiedRun, older: Iterable[Path]) -> Iterator[verify.VerifiedRun]:
    """Yield the certifications among *older* runs from which nothing differs that may change a figure."""
    for path in older:
        try:
            manifest, frozen = verify.read_frozen(RunDirectory(path))
            void, causes = compare_inputs(manifest, newest.manifest, frozen, newest.slo)
            is_same = not void and set(causes) <= {"slo"} and frozen.subject == newest.slo.subject
            if is_same and (run := verify_certified(path)).verdict.grade == "certification":
                yield run
        except (InputError, NoProofError):
            continue


def _newest_first(slo: Slo, runs: Path) -> list[Path]:
    """Return the runs of this SLO on this host, the newest first; a run that cannot be read is none of them."""
    if not runs.is_dir():
        return []
    host_facts, runs_by_time = host.facts(), []
    for path in runs_in(runs):
        try:
            manifest, frozen = verify.read_frozen(RunDirectory(path))
        except GatekeeperError:
            continue
        if frozen.name == slo.name and all(manifest.host.get(fact) == host_facts.get(fact) for fact in _HERE):
            runs_by_time.append((manifest.frozen_at, path))
    return [path for _, path in sorted(runs_by_time, reverse=True)]


def verify_certified(path: Path) -> verify.VerifiedRun:
    """Verify a run as the deploy gate does, whenever it expired; refuse one that would not have been admitted."""
    directory = RunDirectory(path)
    try:
        manifest, _ = verify.read_frozen(directory)
        verify.check_sums(directory)
        run = verify.judge_again(directory, manifest)
        if run.verdict.exit_code != ExitCode.OK:
            hint = "name a run that gatekeeper admit accepts"
            raise InputError(f"{path} is no certified run: its outcome is '{run.verdict.outcome}'", hint=hint)
        verify.check_published(run)
    except NoProofError as error:
        hint = "name a run that gatekeeper admit accepts"
        raise InputError(f"{path} is no certified run: {error.message}", hint=hint) from error
    return run


def _summarise(runs: Sequence[verify.VerifiedRun]) -> Baseline:
    """Return the figures of the first of these *runs*, and of the others where they certified the same settings."""
    newest, *older = runs
    directory, text = newest.directory, newest.directory.text(MANIFEST)
    workloads = _list_promoted_settings(newest)
    figures = _figures(newest, workloads)
    pooled = []
    for run in older:
        alike = {
            name: setting for name, setting in _list_promoted_settings(run).items() if workloads.get(name) == setting
        }
        for name, by_metric in _figures(run, alike).items():
            for metric, values in by_metric.items():
                figures[name][metric] = [*values, *figures[name].get(metric, [])]
        if alike:
            pooled.append(PooledRun(str(run.directory.path), tuple(sorted(alike))))
    path, slo_text = str(directory.path), directory.text(SLO_NAME)
    certified = CertifiedFigures(path, sha256(text), newest.manifest, slo_text, figures, pooled=tuple(pooled))
    content = json_text({"schema": 1} | document_of(certified))
    entry = CertifiedBaseline(run=path, manifest_sha256=sha256(text), sha256=sha256(content))
    return Baseline(entry, content)


def _list_promoted_settings(run: verify.VerifiedRun) -> dict[str, Knobs]:
    """Return the setting of each workload that a run promoted."""
    promoted = (workload for workload in run.verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED)
    return {workload.name: workload.setting for workload in promoted}


def _figures(run: verify.VerifiedRun, workloads: Mapping[str, Knobs]) -> dict[str, dict[str, Values]]:
    """Return what the soaks that certified these *workloads*, each with its setting, showed of them."""
    inputs, _ = stored_inputs(run.directory, run.manifest)
    case = load_case(run.directory, inputs, run.manifest, run.directory.text(MANIFEST))
    return {name: _figures_of(case, name, knobs) for name, knobs in workloads.items()}


def _figures_of(case: Case, workload: str, knobs: Knobs) -> dict[str, Values]:
    for name in reversed(list(case.soaks)):
        answers = (answer for answer in case.soaks[name].records if answer.workload == workload)
        setting = next((answer.setting for answer in answers if speculates(answer.setting)), None)
        if setting is not None and setting_document(setting) == knobs:
            soak = SoakPlan(name, {workload: setting}, setting)
            return summary(soak_answers(case, soak, workload))
    return {}
