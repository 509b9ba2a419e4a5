"""The certified run to compare with: found among stored runs, verified as the deploy gate does, and summarised."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan.settings import setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.against_certified import summary
from gatekeeper.analysis.verdict.case import Case, soak_answers
from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.errors import ExitCode, GatekeeperError, InputError, NoProofError, UnprovableError
from gatekeeper.core.manifest import CertifiedBaseline, sha256
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import SLO_NAME, stored_inputs
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory, runs_in
from gatekeeper.core.text import json_text
from gatekeeper.run import verify
from gatekeeper.run.load import load_case

NONE = "none"
"""In the place of a run: there is no certified run yet."""
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

    It is the run that *baseline* names (`none`: there is none yet), else the newest one in the folder *runs*, of the
    same SLO on this host, that the deploy gate would have admitted.
    """
    if not needs_baseline(slo, baseline):
        return None
    if baseline == NONE:
        return Baseline(CertifiedBaseline(run=None), None)
    if baseline is not None:
        return _summarise(verify_certified(Path(baseline)))
    return _summarise(newest_certified(slo, _newest_first(slo, runs), f"on this host in {runs}"))


def needs_baseline(slo: Slo, baseline: str | None) -> bool:
    """Return whether objectives of *slo* compare with a certified run; where none does, *baseline* may name none."""
    is_needed = any(objective.against is not None for objective in slo.objective)
    if baseline is not None and not is_needed:
        hint = 'add against = "certified" to an objective, or remove --baseline'
        raise InputError("--baseline: no objective of this SLO compares with a certified run", hint=hint)
    return is_needed


def newest_certified(slo: Slo, newest_first: Iterable[Path], where: str) -> verify.VerifiedRun:
    """Return the first of these runs that the deploy gate would have admitted; *where* is where they were found."""
    refusals = []
    for path in newest_first:
        try:
            return verify_certified(path)
        except (InputError, NoProofError) as error:
            refusals.append(f"{path}: {error.message}")
    metric = next(objective.metric for objective in slo.objective if objective.against is not None)
    reasons = [f"no certified run of the SLO '{slo.name}' {where}", *refusals[:3]]
    message = f'objective {metric}, against = "certified": {"; ".join(reasons)}'
    raise UnprovableError(message, hint="name the run with --baseline RUN; certify the first one with --baseline none")


def _newest_first(slo: Slo, runs: Path) -> list[Path]:
    """Return the runs of this SLO on this host, the newest first; a run that cannot be read is none of them."""
    host_facts, runs_by_time = host.conditions(), []
    for path in runs_in(runs) if runs.is_dir() else ():
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


def _summarise(run: verify.VerifiedRun) -> Baseline:
    directory, text = run.directory, run.directory.text(MANIFEST)
    inputs, _ = stored_inputs(directory, run.manifest)
    case = load_case(directory, inputs, run.manifest, text)
    promoted = [workload for workload in run.verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    document: dict[str, Any] = {
        "schema": 1,
        "run": str(directory.path),
        "manifest_sha256": sha256(text),
        "manifest": run.manifest.document(),
        "slo": directory.text(SLO_NAME),
        "workloads": {workload.name: _figures(case, workload) for workload in promoted},
    }
    content = json_text(document)
    entry = CertifiedBaseline(run=str(directory.path), manifest_sha256=sha256(text), sha256=sha256(content))
    return Baseline(entry, content)


def _figures(case: Case, workload: WorkloadVerdict) -> dict[str, list[list[Any]]]:
    """Return what the soak that certified a workload showed of it."""
    for name in reversed(list(case.soaks)):
        answers = (answer for answer in case.soaks[name].records if answer.workload == workload.name)
        setting = next((answer.setting for answer in answers if speculates(answer.setting)), None)
        if setting is not None and setting_document(setting) == workload.setting:
            soak = SoakPlan(name, {workload.name: setting}, setting)
            return summary(soak_answers(case, soak, workload.name))
    return {}
