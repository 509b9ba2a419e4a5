"""`gatekeeper bisect`: find the first of an ordered list of versions that shows a symptom."""

import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.backends import facts_of
from gatekeeper.backends.server_process import error_line
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError, StartError, UnresponsiveError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import sha256
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.parse import json_object
from gatekeeper.core.records import Event
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.regression import package_environments
from gatekeeper.regression.bisect_result import BisectResult, KeptEnvironments, Step
from gatekeeper.regression.mlx_requirements import check_oldest, complete_requirements, parse_requirements
from gatekeeper.regression.searched_versions import Version
from gatekeeper.regression.symptom import Symptom, is_linear
from gatekeeper.regression.version_comparison import ROUNDS, Interval, VersionComparison, Word, interval, next_version
from gatekeeper.regression.version_probe import probe_version
from gatekeeper.regression.version_under_test import with_one_workload
from gatekeeper.run.prepare import hold_host
from gatekeeper.run.stages.freeze import freeze_models

STATE = "bisect.json"
UNMEASURED = (
    "pin the packages of its time with --with, for example --with 'transformers<5', give each version its own with "
    "--step, or leave it out with --versions"
)
"""What to do where the packages of a version do not work together."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched, and how a version is judged."""

    slo: Path
    versions: tuple[Version, ...]
    symptom: Symptom
    workload: str | None = None
    """None: the first of the SLO."""
    also: tuple[str, ...] = ()
    """Requirements of every environment."""
    pip: tuple[str, ...] = ()
    """Options of the installer."""

    def fixed(self) -> dict[str, Any]:
        """Return what a resumed search must have in common with the interrupted one."""
        return {
            "schema": 2,
            "slo_sha256": sha256(self.slo.read_bytes()),
            "versions": [version.name for version in self.versions],
            "metric": self.symptom.metric,
            "bound": self.symptom.bound,
            "given": self.symptom.threshold,
            "workload": self.workload,
            "also": list(self.also),
        }


def bisect(search: Search, out: Path, *, resume: bool, observers: Sequence[Observer]) -> BisectResult:
    """Test the ends, then halve what lies between them; return what is known. *out* keeps every step's records."""
    if len(search.versions) < 2:
        raise InputError("bisect needs two versions or more", hint="name --good and --bad, or --step twice or more")
    inputs = with_one_workload(read_inputs(search.slo), search.workload)
    _check(search, inputs)
    steps = _earlier_steps(search, out, resume=resume)
    with hold_host(inputs, out):
        return _Bisection(search, inputs, out, steps, observers).run()


def _check(search: Search, inputs: Inputs) -> None:
    """Raise InputError for what no version could show, before one is installed."""
    facts, metric = facts_of(inputs.slo.subject.backend), search.symptom.metric
    script = facts.console_script
    for version in search.versions:
        if version.requirements:
            check_oldest((*version.requirements, *search.also), facts)
        if version.requirements and script is not None and BY_NAME[metric].from_rounds:
            message = f"{metric}: only this gatekeeper's own {script} counts rounds, not one of a release"
            raise InputError(message, hint='set backend = "mlx" in [subject], whose worker counts them')
    if not any(version.draft for version in search.versions):
        freeze_models(inputs)


def _earlier_steps(search: Search, out: Path, *, resume: bool) -> dict[int, Step]:
    """Return the versions that the interrupted search in *out* measured, by position; none of a new one."""
    file = out / STATE
    if file.is_file() and not resume:
        raise InputError(f"{out} holds a search", hint="continue it with --resume, or choose another --output")
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        return {}
    state = json_object(file.read_bytes())
    if state.get("search") != search.fixed():
        hint = "give the same SLO, versions and metric, or another --output"
        raise InputError(f"{out} holds another search", hint=hint)
    steps = {int(position): Step.of(document) for position, document in state["steps"].items()}
    return {position: step for position, step in steps.items() if isinstance(step.value, Estimate)}


class _Bisection:
    def __init__(
        self, search: Search, inputs: Inputs, out: Path, steps: dict[int, Step], observers: Sequence[Observer]
    ) -> None:
        self.search, self.inputs, self.out, self.steps, self.observers = search, inputs, out, steps, observers
        self.fixed = search.fixed()
        self.symptom = search.symptom
        """With its threshold, once that is known."""
        self.comparison: VersionComparison | None = None
        if self.symptom.is_compared:
            metric, canaries = BY_NAME[self.symptom.metric], inputs.canaries[inputs.slo.workload[0].name]
            self.comparison = VersionComparison(
                self._values, len(canaries), logs=not is_linear(metric), higher_is_better=metric.higher_is_better,
                rounds=ROUNDS if _varies(metric, inputs.slo) else ROUNDS[:1],
            )  # fmt: skip

    def run(self) -> BisectResult:
        last = len(self.search.versions) - 1
        for end, word in ((0, "good"), (last, "bad")):
            if (result := self._unmeasured_end(end, word)) is not None:
                return result
        if self.comparison is not None:
            return self._compare(self.comparison, last)
        return self._search_by_limit(last)

    def _unmeasured_end(self, end: int, word: str) -> BisectResult | None:
        value = self._test(end).value
        if isinstance(value, Missing):
            return self._result(f"the {word} version {self.search.versions[end].name} {value.because}")
        return None

    def _compare(self, comparison: VersionComparison, last: int) -> BisectResult:
        """Compare versions with both ends, canary by canary."""
        difference = comparison.compare_ends(last)
        for end, word in ((0, "good"), (last, "bad")):
            if (result := self._unmeasured_end(end, word)) is not None:
                return result
        if isinstance(difference, Missing):
            hint = "name the limit with --at-least or --at-most, or another --metric"
            return self._result(f"{self.symptom.metric}: {difference.because}", hint)
        words, bounds = comparison.search(last)
        is_change = comparison.is_change(bounds)
        good = self.steps[0].values
        for position, word in words.items():
            step = self.steps[position]
            change = comparison.change(step.values, good) if position and step.values else None
            self.steps[position] = replace(step, word=word, change=change)
        if not is_change:
            names = [self.search.versions[position].name for position in (bounds.first_bad, bounds.last_good)]
            reason = f"{names[0]} is as the bad version, but not proven worse than {names[1]}, which is as the good one"
            return self._result(reason, "compare the two with gatekeeper versus, which takes as long as you let it")
        return self._found(bounds)

    def _values(self, position: int, rounds: int) -> Values | Missing:
        step = self._test(position, rounds)
        return step.value if isinstance(step.value, Missing) else step.values

    def _search_by_limit(self, last: int) -> BisectResult:
        """Hold each version against the limit."""
        good, bad = (self.steps[end].value for end in (0, last))
        if self.symptom.threshold is None and isinstance(good, Estimate) and isinstance(bad, Estimate):
            self.symptom = replace(self.symptom, threshold=self.symptom.halfway(good, bad))
        if self.symptom.threshold is None:
            reason = f"{self.symptom.metric} shows no difference between the good and the bad version"
            return self._result(reason, "name the limit with --at-least or --at-most, or another --metric")
        words = self._words()
        if words[0] != "good" or words[last] != "bad":
            wrong = [f"{self.search.versions[end].name} is {words[end]}" for end in (0, last)]
            reason = f"the first version must be good and the last one bad: {', '.join(wrong)}"
            return self._result(reason, "search from an earlier to a later version, or set another limit")
        while (between := next_version(self._words())) is not None:
            self._test(between)
        return self._found(interval(self._words()))

    def _words(self) -> dict[int, Word]:
        words = {position: self.symptom.judge(step.value) for position, step in self.steps.items()}
        return {position: word for position, word in words.items() if word is not None}

    def _test(self, position: int, rounds: int = 1) -> Step:
        """Return what is known of a version after so many *rounds* of its canaries or more.

        One that cannot be installed or started is unclear.
        """
        before = self.steps.get(position)
        if before is not None and (before.rounds >= rounds or isinstance(before.value, Missing)):
            return before
        step = self._probe(position, range(before.rounds if before is not None else 0, rounds))
        if before is not None:
            step = step.after(before)
        self.steps[position] = step
        steps = {str(position): step.state(self.symptom) for position, step in self.steps.items()}
        write_atomically(self.out / STATE, json.dumps({"search": self.fixed, "steps": steps}, indent=1).encode())
        return step

    def _probe(self, position: int, rounds: range) -> Step:
        version, later = self.search.versions[position], f"-round-{rounds.start + 1}" if rounds.start else ""
        folder = self.out / f"step-{position:03}{later}"
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted step
        try:
            inputs = self._with(version)
            step = probe_version(inputs, folder, self.symptom, self.observers, version.name, rounds=rounds)
            if isinstance(step.value, Missing):
                reason = f"was not measured: {step.because}{_error_of_logs(folder)}"
                step = replace(step, value=replace(step.value, because=reason))
        except (InputError, UnresponsiveError, HostLacksError) as error:
            # What a version is not to blame for ends the search.
            is_end = position in {0, len(self.search.versions) - 1}
            if is_end and not isinstance(error, StartError | UnresponsiveError):
                raise
            step = Step(version.name, Missing(_reason(error)))
        return step

    def _with(self, version: Version) -> Inputs:
        """Return the inputs with the system under test of this version."""
        subject = self.inputs.slo.subject
        if version.requirements:
            subject = package_environments.started_from(self._environment(version), subject)
        elif version.program is not None:
            words = [_absolute(word) for word in shlex.split(version.program)]
            key = "command" if subject.command is not None else "program"
            rest = subject.command[1:] if subject.command is not None else ()
            subject = subject.model_copy(update={key: (*words, *rest)})
        else:
            subject = subject.model_copy(update={"drafts": (_absolute(str(version.draft)),)})
        slo = self.inputs.slo.model_copy(update={"subject": subject})
        if version.draft is not None:
            knobs = slo.sweep.default.model_copy(update={"draft": None})
            slo = slo.model_copy(update={"sweep": slo.sweep.model_copy(update={"default": knobs})})
        return replace(self.inputs, slo=slo)

    def _environment(self, version: Version) -> Path:
        def note(stage: str) -> None:
            for observer in self.observers:
                observer(Event("", "stage", {"stage": stage}))

        requirements = complete_requirements((*version.requirements, *self.search.also))
        return package_environments.make_environment(requirements, self.search.pip, note)

    def _result(self, because: str, hint: str = "") -> BisectResult:
        """Return what was tested, and why the first bad version is not known."""
        result = BisectResult(
            slo=self.inputs.slo.name, workload=self.inputs.slo.workload[0].name, symptom=self.symptom,
            versions=len(self.search.versions), steps=tuple(self.steps[position] for position in sorted(self.steps)),
            run=str(self.out), because=because, hint=hint,
        )  # fmt: skip
        if not any(version.requirements for version in self.search.versions):
            return result
        if any(isinstance(step.value, Missing) for step in result.steps):
            result = replace(result, hint=UNMEASURED)
        folder = package_environments.environments_folder()
        return replace(result, environments=KeptEnvironments(str(folder), package_environments.folder_bytes(folder)))

    def _found(self, bounds: Interval) -> BisectResult:
        names = [version.name for version in self.search.versions]
        between, first_bad = names[bounds.last_good + 1 : bounds.first_bad], names[bounds.first_bad]
        reason = "" if bounds.is_closed else f"the first bad version is one of: {', '.join((*between, first_bad))}"
        return replace(
            self._result(reason),
            last_good=names[bounds.last_good],
            first_bad=first_bad if bounds.is_closed else None,
            unclear=tuple(between),
            also_differs=tuple(self._also_differs(bounds)),
            reproduce=self._command(bounds),
        )

    def _also_differs(self, bounds: Interval) -> Iterator[str]:
        """Yield what changed between two tested versions beside the packages that were searched."""
        requirements = parse_requirements(self.search.versions[bounds.first_bad].requirements)
        searched = {requirement.name for requirement in requirements}
        before, after = (self.steps[position].versions for position in (bounds.last_good, bounds.first_bad))
        for name, version in before.items():
            if name in after and name not in searched and version != after[name]:
                yield f"{name} {version} to {after[name]}"

    def _command(self, bounds: Interval) -> str:
        """Return the command that tests the two versions on both sides of the change again."""
        good, bad = self.search.versions[bounds.last_good], self.search.versions[bounds.first_bad]
        limit: list[str] = []
        if self.symptom.threshold is not None:
            limit = [f"--{self.symptom.bound.replace('_', '-')}", f"{self.symptom.threshold:.6g}"]
        workload = ["--workload", self.inputs.slo.workload[0].name]
        installed = [word for requirement in self.search.also for word in ("--with", requirement)]
        installed += [f"--pip={option}" for option in self.search.pip]
        words = [*good.option, *bad.option, "--metric", self.symptom.metric, *limit, *workload, *installed]
        return shlex.join(["gatekeeper", "bisect", str(self.search.slo), *words])


def _varies(metric: Metric, slo: Slo) -> bool:
    """Return whether a canary that is answered again may show another value: greedy answers have the same rounds."""
    is_greedy = slo.sampling.temperature == 0 and not slo.sweep.default.temperature
    return not (metric.from_rounds and is_greedy)


def _reason(error: GatekeeperError) -> str:
    if isinstance(error, package_environments.InstallError):
        return f"cannot be installed: {error.cause}"
    return f"cannot be started: {error.cause if isinstance(error, StartError) else error.message}"


def _error_of_logs(folder: Path) -> str:
    """Return what the last log of a version names as its error."""
    logs = sorted((folder / "logs").glob("*.log"), key=lambda log: log.stat().st_mtime)
    line = error_line(logs[-1]) if logs else ""
    return f"; its log: {line}" if line else ""


def _absolute(word: str) -> str:
    """Return a path of this folder in full: those of an SLO begin at its own folder."""
    path = Path(word).expanduser()
    return str(path.absolute()) if "/" in word and path.exists() else word
