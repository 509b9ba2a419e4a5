"""`gatekeeper bisect`: find the first of an ordered list of versions that shows a symptom."""

import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gatekeeper.backends.process import error_line
from gatekeeper.core.errors import ExitCode, GatekeeperError, HostLacksError, InputError, StartError, UnresponsiveError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import sha256
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.parse import json_object
from gatekeeper.core.records import Event
from gatekeeper.core.system import inputs
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.verdict import Estimate
from gatekeeper.regression import package_environments as environments
from gatekeeper.regression import symptom
from gatekeeper.regression.bisection_order import Word, interval, next_version
from gatekeeper.regression.mlx_requirements import check_worker, completed, parsed
from gatekeeper.regression.package_environments import InstallError, PackageEnvironment, environment
from gatekeeper.regression.version_probe import Wanted, one_workload, probe_version
from gatekeeper.run.prepare import hold_host
from gatekeeper.run.stages.freeze import freeze_models

STATE = "bisect.json"
UNMEASURED = (
    "pin the packages of its time with --with, for example --with 'transformers<5', give each version its own with "
    "--step, or leave it out with --versions"
)
"""What to do where the packages of a version do not work together."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version to test: packages that are installed together, a program, or a draft."""

    requirements: tuple[str, ...] = ()
    program: str | None = None
    draft: str | None = None

    @property
    def name(self) -> str:
        """Return how it is shown."""
        return " ".join(self.requirements) or self.program or str(self.draft)

    @property
    def option(self) -> list[str]:
        """Return the options of the command line that name it."""
        if self.requirements:
            return ["--step", " ".join(self.requirements)]
        return ["--program", self.program] if self.program is not None else ["--draft", str(self.draft)]


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched, and how a version is judged."""

    slo: Path
    versions: tuple[Version, ...]
    metric: str
    bound: str
    threshold: float | None
    """None: halfway between what the good and the bad version show."""
    workload: str | None = None
    also: tuple[str, ...] = ()
    """Requirements of every environment."""
    pip: tuple[str, ...] = ()
    """Options of the installer."""

    def fixed(self) -> dict[str, Any]:
        """Return what a resumed search must have in common with the interrupted one."""
        return {
            "slo_sha256": sha256(self.slo.read_bytes()),
            "versions": [one.name for one in self.versions],
            "metric": self.metric,
            "bound": self.bound,
            "given": self.threshold,
            "workload": self.workload,
            "also": list(self.also),
        }


def bisect(search: Search, out: Path, *, resume: bool, observers: Sequence[Observer]) -> dict[str, Any]:
    """Test the ends, then halve what lies between them; return what is known. *out* keeps every step's records."""
    if len(search.versions) < 2:
        raise InputError("bisect needs two versions or more", hint="name --good and --bad, or --step twice or more")
    given, workload = one_workload(inputs.read(search.slo), search.workload)
    _check(search, given)
    state = _state(search, out, resume=resume)
    with hold_host(given, out):
        return _Bisection(search, given, workload, out, state, observers).run()


def _check(search: Search, given: Inputs) -> None:
    """Raise InputError for what no version could show, before one is installed."""
    backend = given.slo.subject.backend
    for one in search.versions:
        if one.requirements and backend == "mlx":
            check_worker((*one.requirements, *search.also))
        if one.requirements and backend == "mlx-server" and BY_NAME[search.metric].from_rounds:
            message = f"{search.metric}: only this gatekeeper's own mlx_lm.server counts rounds, not one of a release"
            raise InputError(message, hint='set backend = "mlx" in [subject], whose worker counts them')
    if not any(one.draft for one in search.versions):
        freeze_models(given)


def _state(search: Search, out: Path, *, resume: bool) -> dict[str, Any]:
    """Return the steps so far: none, or those of the interrupted search in *out*."""
    file, fixed = out / STATE, search.fixed()
    if file.is_file() and not resume:
        raise InputError(f"{out} holds a search", hint="continue it with --resume, or choose another --output")
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        return {"search": fixed, "steps": {}}
    stored = json_object(file.read_bytes())
    if stored.get("search") != fixed:
        raise InputError(
            f"{out} holds another search", hint="give the same SLO, versions and metric, or another --output"
        )
    measured = {key: step for key, step in stored["steps"].items() if step["center"] is not None}
    return {"search": fixed, "steps": measured}


@dataclass(slots=True)
class _Bisection:
    search: Search
    given: Inputs
    workload: str
    out: Path
    state: dict[str, Any]
    observers: Sequence[Observer]
    threshold: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.threshold = self.search.threshold

    def run(self) -> dict[str, Any]:
        last = len(self.search.versions) - 1
        ends = []
        for which, at in (("good", 0), ("bad", last)):
            ends.append(self._test(at))
            if ends[-1]["center"] is None:
                return self._document(f"the {which} version {ends[-1]['name']} {ends[-1]['because']}")
        if self.threshold is None:
            self.threshold = self._halfway(*ends)
        if self.threshold is None:
            because = f"{self.search.metric} shows no difference between the good and the bad version"
            return self._document(because, "name the limit with --at-least or --at-most, or another --metric")
        words = self._words()
        if words[0] != "good" or words[last] != "bad":
            wrong = [f"{self.search.versions[at].name} is {words[at]}" for at in (0, last)]
            because = f"the first version must be good and the last one bad: {', '.join(wrong)}"
            return self._document(because, "search from an earlier to a later version, or set another limit")
        while (between := next_version(self._words())) is not None:
            self._test(between)
        return self._document("")

    def _words(self) -> dict[int, Word]:
        assert self.threshold is not None
        found: dict[int, Word] = {}
        for key, step in self.state["steps"].items():
            word: Word = "unclear"
            if (seen := _estimate(step)) is not None:
                word = symptom.judged(seen, self.search.bound, self.threshold)[0]
            found[int(key)] = word
        return found

    def _test(self, at: int) -> dict[str, Any]:
        """Return what is known of a version; one that cannot be installed or started is unclear."""
        steps: dict[str, Any] = self.state["steps"]
        if str(at) in steps:
            return dict(steps[str(at)])
        version, folder = self.search.versions[at], self.out / f"step-{at:03}"
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted step
        wanted = Wanted(self.search.metric, self.workload, self.search.bound, self.threshold)
        try:
            given = self._with(version)
            found = probe_version(given, folder, wanted, self.observers, version.name)
            if found["center"] is None:
                found["because"] = f"was not measured: {found['because']}{_of_logs(folder)}"
        except (InputError, UnresponsiveError, HostLacksError) as error:
            # What a version is not to blame for ends the search.
            if at in {0, len(self.search.versions) - 1} and not isinstance(error, StartError | UnresponsiveError):
                raise
            because = _because(error)
            found = {"center": None, "lo": None, "hi": None, "n": 0, "because": because, "versions": {}}
        steps[str(at)] = {"name": version.name, **found}
        write_atomically(self.out / STATE, json.dumps(self.state, indent=1).encode())
        return dict(steps[str(at)])

    def _with(self, version: Version) -> Inputs:
        """Return the inputs with the system under test of this version."""
        subject = self.given.slo.subject
        if version.requirements:
            made = self._environment(version)
            subject = made.subject(subject)
        elif version.program is not None:
            words = [_here(word) for word in shlex.split(version.program)]
            key = "command" if subject.command is not None else "program"
            rest = subject.command[1:] if subject.command is not None else ()
            subject = subject.model_copy(update={key: (*words, *rest)})
        else:
            subject = subject.model_copy(update={"drafts": (_here(str(version.draft)),)})
        slo = self.given.slo.model_copy(update={"subject": subject})
        if version.draft is not None:
            knobs = slo.sweep.default.model_copy(update={"draft": None})
            slo = slo.model_copy(update={"sweep": slo.sweep.model_copy(update={"default": knobs})})
        return replace(self.given, slo=slo)

    def _environment(self, version: Version) -> PackageEnvironment:
        def note(what: str) -> None:
            for observer in self.observers:
                observer(Event("", "stage", {"stage": what}))

        return environment(completed((*version.requirements, *self.search.also)), self.search.pip, note)

    def _halfway(self, good: dict[str, Any], bad: dict[str, Any]) -> float | None:
        first, last = _estimate(good), _estimate(bad)
        if first is None or last is None:
            return None
        metric = BY_NAME[self.search.metric]
        logs = metric.speed_ratio or metric.unit != "1"
        return symptom.between(first, last, higher_is_better=metric.higher_is_better, logs=logs)

    def _document(self, trouble: str, hint: str = "") -> dict[str, Any]:
        versions, steps = self.search.versions, self.state["steps"]
        words = self._words() if self.threshold is not None else {}
        known = interval(words) if not trouble else None
        tested = [
            {**steps[key], "answer": "unclear" if steps[key]["center"] is None else words.get(int(key))}
            for key in sorted(steps, key=int)
        ]
        found: dict[str, Any] = {
            "schema": 1,
            "slo": self.given.slo.name,
            "workload": self.workload,
            "metric": self.search.metric,
            "bound": self.search.bound,
            "threshold": self.threshold,
            "versions": len(versions),
            "steps": tested,
            "last_good": None,
            "first_bad": None,
            "unclear": [],
            "also_differs": [],
            "because": trouble,
            "hint": hint,
            "reproduce": None,
            "environments": None,
            "run": str(self.out),
            "exit_code": int(ExitCode.UNPROVEN),
        }
        if known is not None:
            between = range(known.last_good + 1, known.first_bad)
            found |= {
                "last_good": versions[known.last_good].name,
                "first_bad": versions[known.first_bad].name if known.found else None,
                "unclear": [versions[at].name for at in between],
                "also_differs": self._also_differs(known.last_good, known.first_bad),
                "reproduce": self._command(versions[known.last_good], versions[known.first_bad]),
                "exit_code": int(ExitCode.OK if known.found else ExitCode.UNPROVEN),
            }
            if not known.found:
                among = [versions[at].name for at in (*between, known.first_bad)]
                found["because"] = f"the first bad version is one of: {', '.join(among)}"
        packages = any(one.requirements for one in versions)
        if packages and any(one["center"] is None for one in tested):
            found["hint"] = UNMEASURED
        if packages:
            place = environments.folder()
            found["environments"] = {"folder": str(place), "bytes": environments.size_of(place)}
        return found

    def _also_differs(self, good: int, bad: int) -> list[str]:
        """Return what changed between two tested versions beside the packages that were searched."""
        own = {one.name for one in parsed(self.search.versions[bad].requirements)}
        before, after = (self.state["steps"][str(at)]["versions"] for at in (good, bad))
        changed = ((name, before[name], after[name]) for name in before if name in after and name not in own)
        return [f"{name} {old} to {new}" for name, old, new in changed if old != new]

    def _command(self, good: Version, bad: Version) -> str:
        """Return the command that tests the two versions on both sides of the change again."""
        bound = [f"--{self.search.bound.replace('_', '-')}", f"{self.threshold:.6g}"]
        more = [word for one in self.search.also for word in ("--with", one)]
        more += [f"--pip={word}" for word in self.search.pip]
        words = [*good.option, *bad.option, "--metric", self.search.metric, *bound, "--workload", self.workload]
        return shlex.join(["gatekeeper", "bisect", str(self.search.slo), *words, *more])


def _because(error: GatekeeperError) -> str:
    if isinstance(error, InstallError):
        return f"cannot be installed: {error.cause}"
    return f"cannot be started: {error.cause if isinstance(error, StartError) else error.message}"


def _of_logs(folder: Path) -> str:
    """Return what the last log of a version names as its error."""
    logs = sorted((folder / "logs").glob("*.log"), key=lambda one: one.stat().st_mtime)
    line = error_line(logs[-1]) if logs else ""
    return f"; its log: {line}" if line else ""


def _here(word: str) -> str:
    """Return a path of this folder in full: those of an SLO begin at its own folder."""
    path = Path(word).expanduser()
    return str(path.absolute()) if "/" in word and path.exists() else word


def _estimate(step: dict[str, Any]) -> Estimate | None:
    if step["center"] is None:
        return None
    return Estimate(step["center"], step["lo"], step["hi"], step["n"])
