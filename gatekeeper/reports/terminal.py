"""What a person sees while a run goes on and when it ends. The one file that imports rich."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gatekeeper.reports import plaintext
from gatekeeper.terms.outcome import Check, Outcome, Verdict
from gatekeeper.terms.ports import Observer
from gatekeeper.terms.records import Event, Generation
from gatekeeper.terms.units import show_bytes, show_seconds

LINE_S = 5.0
"""Without a terminal, one progress line in this time."""
RECENT = 20
"""Answers that the current speed and acceptance are averaged over."""
COLOURS = {
    "promoted": "green",
    "graded_back": "yellow",
    "failed": "red",
    "unproven": "magenta",
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.UNPROVEN: "magenta",
}


@dataclass(slots=True)
class _State:
    """What the view shows, folded from events."""

    stage: str = "starting"
    about: str = ""
    begun: float = field(default_factory=time.monotonic)
    begun_at: str = ""
    last_at: str = ""
    """Of the latest event. What was recorded before somebody began to look has passed all the same."""
    answered: int = 0
    of: int | None = None
    seconds: float | None = None
    faults: int = 0
    speeds: dict[str, deque[float]] = field(default_factory=dict)
    acceptance: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    memory: int | None = None

    def fold(self, event: Event) -> str | None:
        """Take an event in; return a line worth keeping, if it is one."""
        detail, self.last_at = event.detail, event.at
        if event.kind in {"stage", "soaking"}:
            self.begun_at = event.at
        match event.kind:
            case "stage":
                self.stage, self.about = str(detail["stage"]), str(detail.get("soak", ""))
                self.begun, self.answered, self.of, self.seconds = time.monotonic(), 0, None, None
            case "soaking":
                self.begun, self.seconds, self.of = time.monotonic(), float(detail["seconds"]), None
            case "block" | "closing":
                self.about = f"{detail.get('soak', '')} block {detail.get('block', 'closing')}".strip()
            case "answer":
                self._answer(detail)
        return _line(event)

    def _answer(self, detail: dict[str, Any]) -> None:
        made: Generation = detail["generation"]
        self.answered = int(detail.get("answered", self.answered + 1))
        self.of = detail.get("of")
        answer = made.answer
        self.faults += answer.fault is not None
        if answer.output_tokens and answer.ended_ns > answer.sent_ns:
            speed = answer.output_tokens / (answer.ended_ns - answer.sent_ns) * 1e9
            self.speeds.setdefault(made.arm, deque(maxlen=RECENT)).append(speed)
        if answer.rounds is not None and answer.rounds.drafted:
            self.acceptance.append(answer.rounds.accepted / answer.rounds.drafted)
        self.memory = answer.memory_active or self.memory

    def share(self) -> float | None:
        """Return how much of the stage is done."""
        if self.of:
            return min(1.0, self.answered / self.of)
        return min(1.0, self.passed() / self.seconds) if self.seconds else None

    def passed(self) -> float:
        """Return the seconds of the stage, by this clock or by the record, whichever saw more of it."""
        seen = time.monotonic() - self.begun
        if not (self.begun_at and self.last_at):
            return seen
        told = datetime.fromisoformat(self.last_at) - datetime.fromisoformat(self.begun_at)
        return max(seen, told.total_seconds())

    def words(self) -> list[str]:
        """Return the figures of the moment."""
        share, passed = self.share(), self.passed()
        left = passed * (1 - share) / share if share else None
        words = [f"{self.answered} answers" if self.of is None else f"{self.answered}/{self.of} answers"]
        words += [f"{show_seconds(left)} left"] if left is not None and share and share < 1 else []
        words += [f"{arm} {sum(s) / len(s):.0f} tok/s" for arm, s in sorted(self.speeds.items())]
        words += [f"acceptance {sum(self.acceptance) / len(self.acceptance):.2f}"] if self.acceptance else []
        words += [f"subject {show_bytes(self.memory)}"] if self.memory else []
        words += [f"{self.faults} faults"] if self.faults else []
        return words


def _line(event: Event) -> str | None:
    """Return the line that stays on the screen, for an event that is worth one."""
    detail = event.detail
    lines: dict[str, Callable[[], str]] = {
        "begin": lambda: f"run {detail['run']}" + (" (resumed)" if detail.get("segment") else ""),
        "stage": lambda: f"{detail['stage']} {detail.get('soak', '')}".rstrip() + _settings(detail),
        "soaking": lambda: f"{detail['soak']}: at least {show_seconds(float(detail['seconds']))}",
        "stopped": lambda: f"{detail['workload']}: {detail['trial']} is asked no further: {detail['because']}",
        "doubt": lambda: f"not comparable: {detail['because']}",
        "warning": lambda: f"note: {detail['about']}: {detail['because']}",
        "telemetry_failed": lambda: f"telemetry of {detail['stage']} was not delivered: {detail['because']}",
    }
    if event.kind in {"subject_died", "subject_lost", "sampler_died", "load_died", "artifact_changed", "interrupted"}:
        return f"{event.kind.replace('_', ' ')}: {detail}"
    return lines[event.kind]() if event.kind in lines else None


def _settings(detail: dict[str, Any]) -> str:
    settings = detail.get("settings")
    if not isinstance(settings, dict):
        return ""
    return ": " + "; ".join(f"{name} {plaintext.setting(knobs)}" for name, knobs in settings.items())


@contextmanager
def progress(*, quiet: bool) -> Iterator[Observer | None]:
    """Show the run on stderr: a live view on a terminal, plain lines elsewhere, nothing when *quiet*."""
    if quiet:
        yield None
        return
    state = _State()
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _plain_lines(state)
        return
    with Live(console=console, refresh_per_second=4, transient=True, get_renderable=lambda: _view(state)):

        def observe(event: Event) -> None:
            line = state.fold(event)
            if line is not None:
                console.print(line, style="dim")

        yield observe


def _plain_lines(state: _State) -> Observer:
    last = [time.monotonic()]

    def observe(event: Event) -> None:
        line = state.fold(event)
        if line is None and time.monotonic() - last[0] > LINE_S:
            line = f"{state.stage} {state.about}".rstrip() + ": " + ", ".join(state.words())
        if line is not None:
            last[0] = time.monotonic()
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    return observe


def _view(state: _State) -> RenderableType:
    share = state.share()
    rows = Table.grid()
    rows.add_column(no_wrap=True, overflow="ellipsis")
    rows.add_row(Text.assemble((state.stage, "bold"), " ", state.about))
    rows.add_row(ProgressBar(total=1.0, completed=share or 0.0, pulse=share is None, width=40))
    rows.add_row(Text(", ".join(state.words())))
    return rows


def summary(verdict: Verdict, *, run: Path, promoted: bool) -> None:
    """Print the verdict at a glance on stdout: per workload the setting, the figures and the promises not kept."""
    console = Console(highlight=False)
    style = COLOURS.get(verdict.outcome, "")
    console.print(
        Text.assemble((verdict.slo, "bold"), ": ", (verdict.outcome.replace("_", " "), f"bold {style}"))
        + Text(f"  (exit code {verdict.exit_code}, grade {verdict.grade})")
    )
    if verdict.incomplete:
        console.print(f"not proven: {verdict.incomplete}", style="magenta")
    console.print(_table(verdict))
    for workload in verdict.workloads:
        console.print(
            Text.assemble("\n", (workload.name, "bold"), f": {plaintext.setting(workload.setting)}; {workload.because}")
        )
        for line in plaintext.account(workload):
            console.print(Text(f"  {line}", style="dim"))
        _print_checks(console, workload.checks)
    if blended := plaintext.routing(verdict):
        console.print(Text(f"\n{blended}"))
    if verdict.host_checks:
        kept = sum(check.outcome is Outcome.PASS for check in verdict.host_checks)
        console.print(Text.assemble("\n", ("host", "bold"), f": {kept}/{len(verdict.host_checks)} promises kept"))
        _print_checks(console, verdict.host_checks)
    for finding in verdict.findings:
        advice = f"; {finding.advice}" if finding.advice else ""
        console.print(Text(f"{finding.kind}, {finding.about}: {finding.detail}{advice}", style="yellow"))
    console.print(f"\nrun: {run}")
    console.print(f"policy: {run / 'policy.toml'}" if promoted else "policy: none was written")


def _table(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("workload", "outcome", "against plain", "acceptance", "TTFT delta", "promises"):
        table.add_column(name, no_wrap=True)
    for workload in verdict.workloads:
        measured = workload.measured
        kept = sum(check.outcome is Outcome.PASS for check in workload.checks)
        table.add_row(
            workload.name,
            Text(workload.outcome.replace("_", " "), style=COLOURS[workload.outcome]),
            plaintext.against_plain(workload),
            _center(measured, "acceptance_rate", "{:.2f}"),
            _center(measured, "ttft_delta", "{:+.1%}"),
            f"{kept}/{len(workload.checks)}",
        )
    return table


def _center(measured: dict[str, Any], metric: str, form: str) -> str:
    return form.format(measured[metric]["center"]) if metric in measured else "-"


def _print_checks(console: Console, checks: tuple[Check, ...]) -> None:
    """Print the promises that were not kept, each with why it was made; kept ones are only counted."""
    for check in checks:
        if check.outcome is not Outcome.PASS:
            mark = Text(f"  {plaintext.MARKS[check.outcome]:<9}", style=COLOURS[check.outcome])
            console.print(mark + Text(f"{check.metric}: {check.because}"))
            console.print(f"           why: {check.why}", style="dim")
