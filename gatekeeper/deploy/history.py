"""Stored runs over time, with the trend of the newest ones."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gatekeeper.analysis.metrics.host.host_series import host_numbers
from gatekeeper.analysis.verdict.against_certified import compare_inputs
from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, Verdict, WorkloadVerdict
from gatekeeper.core.document import read_document
from gatekeeper.core.errors import RESTORE_HINT, GatekeeperError, InputError, NoProofError
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.metrics import DECODE_RATIO, PLAIN_SPEED
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import record_files, run_directory
from gatekeeper.core.system.run_directory import VERDICT, RunDirectory
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import sold_gigabytes
from gatekeeper.deploy.compare import contrast, read_inputs
from gatekeeper.report.data import run_history
from gatekeeper.report.data.compared_runs import ComparedFigure, figure_of
from gatekeeper.report.data.workload_summary import best_first
from gatekeeper.run.stored import verify

LONGEST = 16
"""Characters of a version, which may be a checksum."""
TREND = (DECODE_RATIO, PLAIN_SPEED, "acceptance_rate")


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    manifest: Manifest
    slo: Slo
    entry: run_history.HistoryRun


def history(folder: Path) -> run_history.RunHistory:
    """Return the runs of a folder, by SLO and oldest first, and the change since the last comparable run."""
    if run_directory.is_run(folder):
        raise InputError(f"{folder} is a run", hint=f"name the folder it is in: gatekeeper history {folder.parent}")
    by_slo = defaultdict[str, list[_RecordedRun]](list)
    unreadable = []
    for path in run_directory.runs_in(folder):
        try:
            run = _read(path)
        except (GatekeeperError, ValueError, LookupError, TypeError) as error:
            because = error.message if isinstance(error, GatekeeperError) else f"damaged: {error}"
            unreadable.append(run_history.UnreadableRun(str(path), because))
        else:
            by_slo[run.slo.name].append(run)
    slos = []
    for name, runs in sorted(by_slo.items()):
        runs.sort(key=lambda run: (run.manifest.frozen_at, Path(run.entry.run).name))
        slos.append(run_history.SloHistory(name, tuple(_with_changes(runs)), _trend(runs)))
    return run_history.RunHistory(tuple(slos), tuple(unreadable))


def _read(path: Path) -> _RecordedRun:
    """Read a run; its verdict is the stored one, shown only if the checksums match."""
    directory = RunDirectory(path)
    manifest, slo = read_inputs(path)
    trouble, verdict = None, None
    try:
        verify.check_sums(directory)
        verdict = read_document(Verdict, directory.document(VERDICT), VERDICT, hint=RESTORE_HINT)
    except NoProofError as error:
        trouble = error.message
    entry = run_history.HistoryRun(
        run=str(path), at=manifest.frozen_at, outcome=verdict.outcome if verdict else "unfinished",
        grade=verdict.grade if verdict else None, trouble=trouble, footprint_peak=_footprint(path),
        host=_host(manifest), failed=tuple(_list_failed_checks(verdict)) if verdict else (),
        workloads={workload.name: _workload(workload) for workload in verdict.workloads} if verdict else {},
    )  # fmt: skip
    return _RecordedRun(manifest, slo, entry)


def _workload(workload: WorkloadVerdict) -> run_history.HistoryWorkload:
    speed, bound = _speed(workload)
    figures = {metric: figure_of(workload.measured, metric) for metric in TREND}
    return run_history.HistoryWorkload(workload.outcome, workload.setting, figures, speed, bound)


def _host(manifest: Manifest) -> str:
    """Return a host's name for people: its chip and its memory."""
    chip, memory = (manifest.host.get(name) for name in ("chip", "memory_bytes"))
    sold = f"{sold_gigabytes(memory):.0f} GB" if isinstance(memory, int | float) else None
    return ", ".join(str(part) for part in (chip, sold) if part) or "unknown host"


def _speed(workload: WorkloadVerdict) -> tuple[ComparedFigure | None, float | None]:
    """Return the speed against plain decoding of the fastest setting that was soaked with a draft, and its bound."""
    parts: list[WorkloadVerdict | AbandonedStep] = [workload, *best_first(workload)]
    for check in (check for part in parts for check in part.checks):
        if check.metric == DECODE_RATIO and check.bound == "at_least" and check.against is None:
            if check.center is None or check.lo is None or check.hi is None:
                return None, check.threshold
            return ComparedFigure(check.center, check.lo, check.hi), check.threshold
    return next(filter(None, (figure_of(part.measured, DECODE_RATIO) for part in parts)), None), None


def _list_failed_checks(verdict: Verdict) -> Iterator[run_history.StandingCheck]:
    """Yield the checks that failed or are open; those of the last setting that was given up only where they failed."""
    for workload in verdict.workloads:
        yield from _standing(workload.name, workload.checks)
        for step in workload.steps[-1:]:
            about = f"{workload.name}, {describe_setting(step.setting)}, given up"
            yield from _standing(about, (check for check in step.checks if check.outcome is Outcome.FAIL))
    yield from _standing("host", verdict.host_checks)


def _standing(about: str, checks: Iterable[Check]) -> Iterator[run_history.StandingCheck]:
    for check in checks:
        if check.outcome is not Outcome.PASS:
            yield run_history.StandingCheck(about, check.metric, check.because)


def _with_changes(runs: Sequence[_RecordedRun]) -> Iterator[run_history.HistoryRun]:
    """Yield each run with what differs from the one before it on the same host, versions with both their values."""
    before: dict[str, Manifest] = {}
    for run in runs:
        last = before.get(run.entry.host, run.manifest)
        names = [*differences(last, run.manifest), *_display_changed(last, run.manifest)]
        changed = tuple(_change(name, last, run.manifest) for name in names)
        yield replace(run.entry, changed=changed)
        before[run.entry.host] = run.manifest


def _display_changed(before: Manifest, after: Manifest) -> Iterator[str]:
    """Yield its name where the display woke or went to sleep, which may explain a slow night and voids nothing."""
    displays = {manifest.host.get("display") for manifest in (before, after)}
    if None not in displays and len(displays) > 1:
        yield "host.display"


def _change(name: str, before: Manifest, after: Manifest) -> str:
    part, _, key = name.partition(".")
    if part not in {"versions", "host"}:
        return name
    old, new = (str(getattr(manifest, part).get(key))[:LONGEST] for manifest in (before, after))
    return f"{key if part == 'versions' else name}: {old} → {new}"


def _footprint(path: Path) -> float | None:
    """Return the largest memory footprint of the system under test in any soak; None if not measured."""
    samples = record_files.read_records(path / "host.jsonl", record_files.SAMPLES).records
    during_soaks = HostColumns.of(samples)
    during_soaks = during_soaks.select(during_soaks.phase)
    return max(host_numbers(during_soaks, "subject_footprint"), default=None)


def _trend(runs: Sequence[_RecordedRun]) -> run_history.Trend | run_history.NoTrend | None:
    """Compare the newest intact run with the newest comparable one before it."""
    intact = [run for run in runs if run.entry.trouble is None]
    if len(intact) < 2:
        return None
    *earlier, newest = intact
    compared = [(run, *compare_inputs(run.manifest, newest.manifest, run.slo, newest.slo)) for run in reversed(earlier)]
    previous, matter, causes = next((candidate for candidate in compared if not candidate[1]), compared[0])
    before, after = previous.entry, newest.entry
    if matter:
        because = f"no earlier run is comparable; the previous one differs in: {', '.join(matter)}"
        return run_history.NoTrend(after.run, because)
    confidences, count = (previous.slo.confidence, newest.slo.confidence), len(TREND) * len(after.workloads)
    workloads = {}
    for name, workload in after.workloads.items():
        then = before.workloads[name].figures if name in before.workloads else {}
        workloads[name] = tuple(
            contrast(metric, then.get(metric), workload.figures[metric], confidences, count) for metric in TREND
        )
    peaks = [ComparedFigure(peak, peak, peak) if (peak := run.footprint_peak) else None for run in (before, after)]
    footprint = contrast("footprint_peak", peaks[0], peaks[1])
    if footprint.change is not None:  # one reading per run has no interval: only the change is shown
        footprint = replace(footprint, says="one reading each")
    return run_history.Trend(before.run, after.run, tuple(causes), workloads, footprint)
