"""A finished run: verified as the deploy gate does against what is given now, or opened again for more soak."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.soak_time import soaked_seconds
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.document import text_of
from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import EventKind
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.run_directory import CHECKSUMS, POLICY, RunDirectory
from gatekeeper.report.data.decision import decide
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.open_run import RunRequest, open_stored
from gatekeeper.run.prepare import measures_real_time
from gatekeeper.run.publish import Finished
from gatekeeper.run.stored import tries, verify
from gatekeeper.run.stored.load import fixed_setting_of

OTHER_INPUTS = frozenset({Reason.OTHER_SLO, Reason.OTHER_INPUTS, Reason.OTHER_ARTIFACTS, Reason.NO_ARTIFACTS})
"""Reasons of a refusal that lie in what is given now, and not in the evidence: the user's input is wrong."""


def verify_finished(slo_path: Path, inputs: Inputs, out: Path) -> Finished:
    """Return the result of the finished run in *out*, verified as the deploy gate does against *inputs*.

    Raise InputError where the run is not of this SLO, these canaries and these models, NoProofError where its evidence,
    its policy or its certificate was changed, or where it has expired.
    """
    try:
        run, promoted = _verify(inputs, RunDirectory(out))
    except NoProofError as error:
        message = f"{out} holds a finished run: {error.message}"
        if error.reason in OTHER_INPUTS:
            hint = "give what the run was made of, or start a new run in another --output, without --resume or --extend"
            raise InputError(message, hint=hint) from error
        raise NoProofError(error.reason, message, hint=error.next(slo_path, out)) from error
    policy = (out / POLICY).read_text(encoding="utf-8", errors="replace") if promoted else None
    # A run that was killed after its checksums is not in the record yet.
    gap = tries.add_run(run.directory, run.manifest, run.slo, run.verdict.exit_code)
    text = text_of(run.verdict)
    return Finished(decide(run.verdict, policy=policy), text, out, tries=gap)


def _verify(inputs: Inputs, directory: RunDirectory) -> tuple[verify.VerifiedRun, bool]:
    """Verify a finished run, and tell whether it has a policy: an unproven run and a soak alone have none."""
    manifest, frozen = verify.read_frozen(directory)
    verify.check_slo(frozen, inputs.slo)
    admission.same_subject(manifest, verify.present_now(inputs))
    verify.check_sums(directory)
    run = verify.judge_again(directory, manifest)
    soak_alone = fixed_setting_of(directory) is not None and not (directory.path / POLICY).exists()
    if soak_alone or run.verdict.exit_code == ExitCode.UNPROVEN:
        return run, False
    verify.check_host(run)
    issued = verify.check_published(run).issued
    until = admission.expiry(issued=issued, ended=run.ended, valid_for=inputs.slo.promote.valid_for, max_age=None)
    if measures_real_time(inputs):  # a simulated run expires in its own time
        admission.in_time(until, issued, SystemClock().wall())
    return run, True


def open_extended(stack: ExitStack, request: RunRequest, seconds: float) -> ActiveRun:
    """Open a finished, unproven run so that its soaks continue for *seconds*; what it measured counts with the rest."""
    inputs, out = read_inputs(request.slo), request.out
    if out is None or not RunDirectory(out).is_finished():
        hint = "an unfinished run is continued with --resume"
        raise InputError("--extend continues a finished run, which --output names", hint=hint)
    before = verify_finished(request.slo, inputs, out).verdict
    if before.exit_code != ExitCode.UNPROVEN:
        hint = "only an unproven run can be extended; start a new run"
        raise InputError(f"{out} is decided: {before.outcome}", hint=hint)
    run = open_stored(stack, inputs, out, request.observers)
    case = run.case()
    allowed = seconds + max((soaked_seconds(recorded.records) for recorded in case.soaks.values()), default=0.0)
    if not any(soak.part > 1 for soak in conclude(replace(case, extended=allowed)).needs):
        hint = 'it helps where a required workload is open by an interval alone, unless until = "duration"'
        raise InputError(f"{out}: a longer soak would not decide this run", hint=hint)
    reopen(run, EventKind.EXTENDED, soak_seconds=allowed)
    return run


def reopen(run: ActiveRun, event: EventKind, **detail: Any) -> None:
    """Make a finished run an unfinished one, with the *event* that says why."""
    run.directory.remove(CHECKSUMS)
    run.events.reopen()
    run.observe(event, detail)
