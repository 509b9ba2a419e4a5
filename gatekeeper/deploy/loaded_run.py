"""A stored run for people who compute: its verdict, a row an answer, a row a host sample."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import MISSING, Generation, HostSample, StoredRecords
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.system.record_files import ANSWERS, SAMPLES, read_records
from gatekeeper.core.system.run_directory import (
    CHECKSUMS,
    HOST_FILE,
    PLAN,
    RUNS,
    RunDirectory,
    is_run,
    newest_run,
    suggest_run,
    unreadable_as_no_proof,
)
from gatekeeper.report.data.run_rows import AnswerFile, AnswerRow, SampleRow, answer_rows, sample_rows
from gatekeeper.run.stored.judge import judge

LATEST = Path("latest")


class LoadedRun:
    """A finished or interrupted run. What is read of it is kept; nothing is ever written to it.

    A record file that is cut off or damaged gives the records that are whole, and `troubles` says so.
    """

    def __init__(self, path: str | Path) -> None:
        """Open the run in the folder *path*, or the newest one in `runs` for `latest`; InputError where it is none."""
        self.path = Path(path)
        """Its folder."""
        if self.path == LATEST and not self.path.is_dir():
            self.path = newest_run(RUNS)
        suggest_run(self.path)
        if not is_run(self.path):
            raise InputError(
                f"{self.path} is not a run directory", hint="name the folder that certify wrote, or latest"
            )
        self.name: str = self.path.absolute().name
        """The name of its folder, as the rows have it."""

    def __repr__(self) -> str:
        """Return the call that made it."""
        return f"gatekeeper.load({str(self.path)!r})"

    def judge(self, slo: str | Path | None = None) -> Verdict:
        """Derive the verdict from the records, as `gatekeeper judge` does; with *slo* by that file's objectives."""
        return judge(self.path, None if slo is None else Path(slo))

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict that the records give."""
        return self.judge()

    @cached_property
    def answers(self) -> tuple[AnswerRow, ...]:
        """A row an answer: the sweep's, the soaks' and those of the follow-ups, in this order."""
        return tuple(answer_rows(self.name, self.answer_files))

    @cached_property
    def samples(self) -> tuple[SampleRow, ...]:
        """A row a host sample, in the order of time; none where the run took none."""
        return tuple(sample_rows(self.name, self.host_columns))

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with the record files, a sentence a file; those of an interrupted run are cut off."""
        return tuple(f"{name}: {trouble}" for name, trouble in {**self._changed, **self._cut}.items())

    @property
    def damaged(self) -> bool:
        """Whether a record file is missing, was changed or is damaged, and not only cut off by an interrupt."""
        return bool(self._changed) or any(read.damaged for read in self._read.values())

    @cached_property
    def _changed(self) -> dict[str, str]:
        """The record files of a finished run that are not what its checksums name."""
        names = RunDirectory(self.path).changed_files(lambda name: name.endswith(".jsonl"))
        return dict.fromkeys(names, f"missing, or differs from {CHECKSUMS}")

    @property
    def _cut(self) -> dict[str, str]:
        """What is wrong in each record file that was read."""
        troubles = {name: read.trouble for name, read in self._read.items()}
        return {name: trouble for name, trouble in troubles.items() if trouble is not None and trouble != MISSING}

    @property
    def _read(self) -> dict[str, StoredRecords[Any]]:
        return {**self._answers, HOST_FILE: self._samples}

    @property
    def answer_files(self) -> list[AnswerFile]:
        """The record files of answers."""
        return [AnswerFile(name, self._phases[name], read.records) for name, read in self._answers.items()]

    @property
    def host_columns(self) -> HostColumns:
        """The host samples in columns."""
        return HostColumns.of(self._samples.records)

    @cached_property
    def _answers(self) -> dict[str, StoredRecords[Generation]]:
        return {name: read_records(self.path / name, ANSWERS) for name in self._phases}

    @cached_property
    def _samples(self) -> StoredRecords[HostSample]:
        return read_records(self.path / HOST_FILE, SAMPLES)

    @cached_property
    def _phases(self) -> dict[str, str]:
        """The phase in which the answers of each record file that is there were requested, by its name."""
        with unreadable_as_no_proof(self.path):
            phases = dict(self._list_record_files())
        return {name: phase for name, phase in phases.items() if "/" not in name and (self.path / name).exists()}

    def _list_record_files(self) -> Iterator[tuple[str, str]]:
        for trial in RunDirectory(self.path).document(PLAN).get("trials", ()):
            yield str(trial["file"]), "sweep"
        stems = {"baseline-again": "baseline_again", "soak": "soak"}
        stems |= {each.name: each.name for each in FOLLOW_UPS if each.kind is Generation}
        for stem, phase in stems.items():
            for path in sorted(self.path.glob(f"{stem}-*.jsonl")):
                yield path.name, phase
