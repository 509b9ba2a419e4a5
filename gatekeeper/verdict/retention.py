"""The retention of stored runs: which of them a rotation keeps, and why."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gatekeeper.verdict.admission import CLOCKS_APART_S


@dataclass(frozen=True, slots=True)
class Stored:
    """What a rotation has to know of one run."""

    run: str
    family: str
    """The SLO's name and the kind of host: the newest of each are counted apart."""
    subject: str
    """What `admit` tells runs apart by: promises, inputs and artifacts."""
    at: datetime
    """When it was frozen."""
    until: datetime
    """Until when it may count for a deploy, at the latest."""
    sealed: bool
    passed: bool
    promoted: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """What a rotation is asked to keep."""

    last: int
    """So many of the newest sealed runs of each family."""
    within: float = 0.0
    """Every run that is younger, in seconds."""
    promoted: bool = False
    """Every run that was promoted."""
    unfinished: float | None = None
    """An unfinished run may go once it is older, in seconds; None: never."""


def retain(runs: Iterable[Stored], rules: Rules, now: datetime) -> dict[str, tuple[str, ...]]:
    """Return why each run is kept, by its name; one without a reason may go.

    Whatever the rules say, `admit` gives no better answer without the runs that go: the newest run of a subject stays
    as long as any of that subject may count, be it a bad one, and the newest that passed stays beside it.
    """
    known = sorted(runs, key=lambda one: (one.at, one.run))
    found: dict[str, list[str]] = {one.run: [] for one in known}
    for run in known:
        found[run.run] += _own_reasons(run, rules, now)
    for family in _by(known, lambda one: one.family).values():
        for run in [one for one in family if one.sealed][-rules.last :]:
            found[run.run].append(f"one of the newest {rules.last}")
    for subject in _by(known, lambda one: one.subject).values():
        if any(_may_count(one, now) for one in subject):
            found[subject[-1].run].append("the newest of its promises and artifacts: admit answers by it")
        passed = [one for one in subject if one.passed and _may_count(one, now)]
        if passed:
            found[passed[-1].run].append("the newest of its promises and artifacts that passed and may still count")
    return {run: tuple(reasons) for run, reasons in found.items()}


def _own_reasons(run: Stored, rules: Rules, now: datetime) -> list[str]:
    """Return the reasons that have nothing to do with other runs."""
    age = (now - run.at).total_seconds()
    reasons = []
    if not run.sealed and (rules.unfinished is None or age < rules.unfinished):
        reasons.append("unfinished: it can be resumed")
    if age < rules.within:
        reasons.append("young")
    if rules.promoted and run.promoted:
        reasons.append("promoted")
    return reasons


def _may_count(run: Stored, now: datetime) -> bool:
    return now - run.until < timedelta(seconds=CLOCKS_APART_S)


def _by(runs: Sequence[Stored], key: Callable[[Stored], str]) -> Mapping[str, list[Stored]]:
    groups: dict[str, list[Stored]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups
