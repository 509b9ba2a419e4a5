"""The opening of a run: a new directory with everything frozen in it, or an unfinished one that is continued."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gatekeeper.analysis.plan.settings import PLAIN, chosen_of, defaults
from gatekeeper.core import toml_file
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import CHOSEN, ChosenKnobs, Slo
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.inputs import Inputs, load_manifest
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory
from gatekeeper.core.text import KNOB_NAMES
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.prepare import hold_host, prepare
from gatekeeper.run.stages.freeze import frozen_files
from gatekeeper.run.stored.load import fixed_setting_of


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that the user wants, with the options of the command line that its stages read."""

    slo: Path
    out: Path | None = None
    observers: Sequence[Observer] = ()
    baseline: str | None = None
    """The certified runs that objectives compare with: see `find_baseline`."""


def open_new(
    stack: ExitStack, request: RunRequest, *, knobs: Mapping[str, Any] | None = None, compared: bool = False
) -> ActiveRun:
    """Prepare a run and make its directory; nothing is written before the objectives can be proven.

    With *knobs* it soaks the SLO's default setting, changed by them, and nothing else. A *compared* run is held
    against a certified one where its objectives say so.
    """
    inputs = read_inputs(request.slo)
    fixed = None if knobs is None else fixed_setting(inputs.slo, knobs)
    path = request.out or run_directory.RUNS / run_directory.new_run_id(inputs.slo.name, SystemClock().wall())
    run_directory.check_writable(path)
    remark = stack.enter_context(hold_host(inputs, path))
    prepared = prepare(inputs, path, fixed=fixed, compared=compared, baseline=request.baseline)
    directory = _directory(stack, path, resume=False)
    copy = prepared.certified.text if prepared.certified is not None else None
    for name, content in frozen_files(inputs, prepared.plan, copy, prepared.text):
        directory.write(name, content)
    return stack.enter_context(ActiveRun(prepared, directory, request.observers, remark))


def open_stored(stack: ExitStack, inputs: Inputs, path: Path, observers: Sequence[Observer]) -> ActiveRun:
    """Open the directory of a run to continue it; a soak alone is continued as one."""
    run_directory.check_writable(path)
    directory = _directory(stack, path, resume=True)
    with run_directory.unreadable_as_no_proof(path):
        load_manifest(directory.read(MANIFEST))
        fixed = fixed_setting_of(directory)
    remark = stack.enter_context(hold_host(inputs, path))
    prepared = prepare(inputs, path, measuring=False, fixed=fixed, stored=directory)
    return stack.enter_context(ActiveRun(prepared, directory, observers, remark))


def _directory(stack: ExitStack, path: Path, *, resume: bool) -> RunDirectory:
    directory = RunDirectory.open(path, resume=resume)
    stack.callback(directory.close)
    return directory


def fixed_setting(slo: Slo, knobs: Mapping[str, Any]) -> Setting:
    """Return the SLO's default setting, changed by *knobs*; raise InputError for an unknown knob, value or draft."""
    for knob in knobs:
        if knob not in CHOSEN:
            names = {title.replace(" ", "_"): name for name, title in KNOB_NAMES.items()}
            hint = did_you_mean(names.get(knob, knob), CHOSEN)
            raise InputError(f"--set {knob}: not a knob that --set can change", hint=hint)
    try:
        changed = {**defaults(slo), **ChosenKnobs.model_validate(knobs, strict=True).model_dump(exclude_unset=True)}
    except ValidationError as error:
        first = error.errors()[0]
        message, hint = toml_file.describe_error("", "--set", ChosenKnobs, first)
        message = message.replace("--set: line 1: ", "--set ")
        raise InputError(message, hint=hint or f"for example --set {first['loc'][0]}=4") from error
    if changed.get("draft") not in {None, *slo.subject.drafts}:
        hint = did_you_mean(str(changed["draft"]), slo.subject.drafts)
        raise InputError(f"--set draft: '{changed['draft']}' is not one of subject.drafts", hint=hint)
    return chosen_of(setting(**changed)) if changed.get("draft") is not None else PLAIN
