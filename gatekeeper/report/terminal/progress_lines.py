"""The progress of a run on stderr: a live view on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gatekeeper.backends.dialects.openai import AS_SERVED
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Detail, Event, EventKind
from gatekeeper.core.text import describe_setting, printable_error, show_count
from gatekeeper.core.units import show_seconds
from gatekeeper.report.data.progress import DONE, Progress, Snapshot
from gatekeeper.report.data.workload_progress import WorkloadRow
from gatekeeper.report.phrases import tokens_per_second
from gatekeeper.report.terminal.screen_refresh import CLOSED, REFRESH_S, RedrawnLines
from gatekeeper.report.terminal.summary import WIDEST, hanging_lines

NOT_DRAFTING = {describe_setting({"draft": None}): "plain", describe_setting({"draft": AS_SERVED}): "as served"}
"""How a speed is called of which it is not known that a draft gave it: `versus` also times servers without one."""
OFTEN_S, SELDOM_S, SETTLED_S = 5.0, 60.0, 60.0
"""Without a terminal, a progress line every 5 s for the first minute, then every minute: logs stay short."""
NARROW = 72
"""From this many columns on, the table also shows settings, plain decoding and the interval of the ratio."""
ROOMY = 100
"""From this many columns on, it shows the acceptance too."""
WIDE_COLUMNS = {"plain": 9, "drafting": 9, "against plain": 18, "answers": 7}
WIDEST_COLUMNS = {"plain": 9, "drafting": 9, "against plain": 18, "acceptance": 10, "answers": 7}
NARROW_COLUMNS = {"speed": 10, "ratio": 6}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FULL, EMPTY = "\N{BOX DRAWINGS HEAVY HORIZONTAL}", "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
LONGEST_BAR = 46
"""Columns of the bar: a longer one would take three rows, and leave one behind, where the terminal is halved."""
MOVING = 6
"""The part of the bar that moves where nothing says how much is left: a sixth."""
SHORTEST = 4
"""Columns of a draft's name that still identify it."""
MINUTES_S, HOURS_MIN = 100.0, 120
"""From here on a time is written in minutes, in hours."""


def _line(event: Event) -> str | None:
    """Return the line that an event leaves on the screen; None for an event without one."""
    detail = event.detail
    lines: dict[EventKind, Callable[[], str]] = {
        EventKind.BEGIN: lambda: f"run {detail['run']}" + (" (resumed)" if detail.get("segment") else ""),
        EventKind.STAGE: lambda: _stage(detail) + _settings(detail),
        EventKind.SOAKING: lambda: f"{detail['soak']}: at least {show_seconds(float(detail['seconds']))}",
        EventKind.RESTING: lambda: f"{detail['soak']}: {show_seconds(float(detail['seconds']))} for the power at rest",
        EventKind.STOPPED: lambda: f"{detail['workload']}: stopped testing {_trial(detail)} early: {detail['because']}",
        EventKind.DOUBT: lambda: f"not comparable: {detail['because']}",
        EventKind.WARNING: lambda: f"note: {detail['about']}: {detail['because']}",
        EventKind.BUSY: lambda: _busy(detail),
        EventKind.BASELINE_AGAIN: lambda: f"the baseline once more: {_once_more(detail)}",
        EventKind.TELEMETRY_FAILED: lambda: f"telemetry of {detail['stage']} was not delivered: {detail['because']}",
        EventKind.SUBJECT_DIED: lambda: (
            f"the system under test died ({detail['in_a_row']} in a row): {describe_setting(detail['setting'])}"
        ),
        EventKind.SUBJECT_LOST: lambda: f"the system under test cannot be started: {detail['because']}",
        EventKind.SAMPLER_DIED: lambda: f"host sampling stopped: {detail['because']}",
        EventKind.LOAD_DIED: lambda: f"{detail['soak']}: the background load died: {detail['because']}",
        EventKind.ARTIFACT_CHANGED: lambda: f"{detail['model']} changed on disk during the run",
    }
    line = lines[event.kind]() if event.kind in lines else ""
    return printable_error(line) if line else None


def _once_more(detail: Detail) -> str:
    steady = "plain decoding has one speed now, so all is swept again, and what was swept before is set aside"
    return steady if detail["set_aside"] else f"no better: {detail['because']}"


def _busy(detail: Detail) -> str:
    """Write what other programs use before a stage, or used during it; nothing where that was little."""
    if "before" in detail:
        return f"busy: {detail['because']}; close them or wait; else less is proven"
    return f"busy: during {detail['during']} {detail['because']}" if detail["busy"] else ""


def _stage(detail: Detail) -> str:
    """Name a stage: a soak by its own name, a follow-up with the soak's."""
    stage, soak = str(detail["stage"]).replace("_", " "), str(detail.get("soak", ""))
    return soak if stage == "soak" and soak else f"{stage} {soak}".rstrip()


def _trial(detail: Detail) -> str:
    """Name a trial by its setting."""
    return describe_setting(detail["setting"])


def _settings(detail: Detail) -> str:
    settings = detail.get("settings")
    if isinstance(settings, int):
        return f": {settings} trials"
    if not isinstance(settings, Mapping):
        return ""
    return ": " + "; ".join(f"{name} with {describe_setting(knobs)}" for name, knobs in settings.items())


@contextmanager
def progress(first: str = "", *, quiet: bool) -> Iterator[Observer | None]:
    """Show the run on stderr, the line *first* above: a live view on a terminal, plain lines elsewhere.

    When *quiet*, show nothing.
    """
    if quiet:
        yield None
        return
    state, console = Progress(), Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        if first:
            sys.stderr.write(f"{printable_error(first)}\n")
        yield plain_lines(state, sys.stderr)
        return

    def draw() -> list[str]:
        frame = int(time.monotonic() / REFRESH_S)
        return _draw_lines(console, view(state.snapshot(), console.width - 1, console.height - 1, frame))

    with RedrawnLines(sys.stderr, draw, lambda: (console.width, console.height)) as live:
        live.print_above([printable_error(first)] if first else [])

        def observe(event: Event) -> None:
            state.update(event)
            line = _line(event)
            if line is not None:
                live.print_above(_draw_lines(console, Group(*hanging_lines(Text(line, style="dim"), console))))

        yield observe


def _draw_lines(console: Console, renderable: RenderableType) -> list[str]:
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().removesuffix("\n").split("\n")]


def plain_lines(state: Progress, file: TextIO, clock: Callable[[], float] = time.monotonic) -> Observer:
    """Return an observer that writes events as lines, and between them the progress, rarely enough for a log."""
    begun = last = clock()

    def observe(event: Event) -> None:
        nonlocal last
        state.update(event)
        if event.kind == EventKind.SAMPLE:  # sent by the sampler's thread, which must not wait
            return
        line, now = _line(event), clock()
        if line is None and now - last >= (OFTEN_S if now - begun < SETTLED_S else SELDOM_S):
            line = printable_error("; ".join(_in_one_line(state.snapshot())))
        if line is not None:
            last = now
            with suppress(*CLOSED):  # a log that cannot be written does not end the run
                file.write(line + "\n")
                file.flush()

    return observe


def _in_one_line(now: Snapshot) -> list[str]:
    """Write a snapshot as one line."""
    words = [": ".join(filter(None, (now.stage, now.part, ", ".join(filter(None, (_answers(now), *_times(now)))))))]
    for row in now.rows:
        if row.answered:
            arm = NOT_DRAFTING.get(row.setting, "drafting")
            figures = [f"{tokens_per_second(row.drafting)} {arm}"] if row.drafting is not None else []
            figures += [f"{tokens_per_second(row.plain)} plain"] if row.plain is not None else []
            figures += ["{:.2f}x [{:.2f}, {:.2f}]".format(*row.ratio)] if row.ratio is not None else []
            figures += [f"acceptance {row.acceptance:.2f}"] if row.acceptance is not None else []
            figures += [f"{row.read_at_once} of {row.answered} answers read at once"] if row.read_at_once else []
            words.append(f"{row.workload} {', '.join(figures)}")
    return [*words, ", ".join(gauge.text for gauge in now.host)] if now.host else words


def _answers(now: Snapshot) -> str:
    if now.rows and not now.answered and not any(row.answered for row in now.rows) and now.stage not in {"judge", DONE}:
        return "waiting for the first answer"
    if now.of:
        return f"{now.answered}/{now.of} answers{' of this part' if now.part else ''}"
    return f"{now.answered} answers" if now.answered or now.share is not None else ""


def _times(now: Snapshot) -> list[str]:
    words = [show_count(now.faults, "fault")] if now.faults else []
    if now.over is not None:
        return [*words, f"until enough answers, at most {_rounded_time(now.over)}"]
    words += [f"about {_rounded_time(now.run_left)} left"] if now.run_left is not None else []
    if now.left is not None:
        words.append(f"{_rounded_time(now.left)} {'' if now.run_left else 'left '}of this part")
    return words


def _show_elapsed_time(seconds: float) -> str:
    """Write the time since the start, to the second: 3:07, 1:03:07."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} elapsed" if hours else f"{minutes}:{rest:02} elapsed"


def _rounded_time(seconds: float) -> str:
    """Write a remaining time without digits that change faster than a person reads."""
    if seconds < MINUTES_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < HOURS_MIN else f"{minutes // 60} h {minutes % 60:02} min"


def view(now: Snapshot, width: int, height: int, frame: int = 0) -> RenderableType:
    """Draw a snapshot into at most *width* columns and *height* rows; *frame* counts how often it was drawn."""
    width = max(1, min(width, WIDEST))
    drawn: list[RenderableType] = [_title(now, width, frame), _bar(now, min(width, LONGEST_BAR), frame)]
    answers = [Text(word) for word in (_answers(now), _show_elapsed_time(now.elapsed), *_times(now)) if word]
    gauges = [Text(gauge.text, style="yellow" if gauge.alarming else "") for gauge in now.host]
    drawn += [_join_words(words, width) for words in (answers, gauges) if words]
    room = max(0, height - len(drawn) - 1)
    if now.rows and room:
        drawn.append(_workload_table(now.rows[:room], width))
    return Group(*drawn[: max(1, height)])


def _title(now: Snapshot, width: int, frame: int) -> Text:
    """Return the stages of the run, the current one with a spinner, and the name of the SLO."""
    title = Text.assemble(*((f"{name} \N{CHECK MARK}  ", "green") for name in now.before))
    title.append(f"{SPINNER[frame % len(SPINNER)]} " if now.stage != DONE else "", style="bold")
    title.append(printable_error(now.stage), style="bold")
    title.append(f": {printable_error(now.part)}" if now.part else "")
    title.append("".join(f"  {name}" for name in now.after), style="dim")
    title.append(f"  ({printable_error(now.slo)})" if now.slo else "", style="dim")
    return _cut(title, width)


def _bar(now: Snapshot, width: int, frame: int) -> Text:
    """Return the done share of the run; where nothing says how much is left, a piece that only moves."""
    spans: tuple[tuple[int, bool], ...]
    if now.done is None:
        piece = max(1, width // MOVING)
        begin = frame % max(1, width - piece + 1)
        spans = ((begin, False), (piece, True), (width - piece - begin, False))
    else:
        filled = round(now.done * width)
        spans = ((filled, True), (width - filled, False))
    bar = Text()
    for length, full in spans:
        bar.append((FULL if full else EMPTY) * max(0, length), style="green" if full else "dim")
    if now.done is not None and now.done < 1:
        bar.append(f" {now.done:.0%}")
    return _cut(bar, width + 5)


def _workload_table(rows: Sequence[WorkloadRow], width: int) -> Table:
    """Return the table of workloads, with fewer columns on a narrow terminal."""
    wide = width >= NARROW
    columns = (WIDEST_COLUMNS if width >= ROOMY else WIDE_COLUMNS) if wide else NARROW_COLUMNS
    speeds = {"plain": [row.plain for row in rows], "drafting": [row.drafting for row in rows]}
    longest = {head: max(len(tokens_per_second(speed)) for speed in column) for head, column in speeds.items()}
    columns = {head: max(least, longest.get(head, 0)) for head, least in columns.items()}
    name = min(max(8, *(len(row.workload) for row in rows)), width // 3)
    rest = width - name - 2 - sum(column + 2 for column in columns.values())
    room = min(rest, max(8, *(len(row.setting) for row in rows)))
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(width=name, no_wrap=True, overflow="ellipsis")
    if wide:
        table.add_column(width=room, no_wrap=True, overflow="ellipsis")
    for column in columns.values():
        table.add_column(width=column, justify="right", no_wrap=True)
    table.add_row("workload", *(["setting"] if wide else []), *columns, style="dim")
    for row in rows:
        plain, drafting = tokens_per_second(row.plain), tokens_per_second(row.drafting)
        cells = {
            "plain": plain,
            "drafting": drafting,
            "against plain": "-" if row.ratio is None else "{:.2f}x [{:.2f}, {:.2f}]".format(*row.ratio),
            "ratio": "-" if row.ratio is None else f"{row.ratio[0]:.2f}x",
            "acceptance": "-" if row.acceptance is None else f"{row.acceptance:.2f}",
            "answers": str(row.answered),
            "speed": plain if row.drafting is None else drafting,
        }
        setting = [_shorten_setting(printable_error(row.setting), room)] if wide else []
        table.add_row(*map(Text, (printable_error(row.workload), *setting, *(cells[name] for name in columns))))
    return table


def _shorten_setting(setting: str, width: int) -> str:
    """Shorten the name of the draft before the knobs' values: they are what a sweep moves."""
    if cell_len(setting) > width:
        setting = setting.replace("draft length", "length")
    draft, comma, knobs = setting.partition(",")
    spare = width - cell_len(comma + knobs) - 1
    if not knobs or spare < SHORTEST or cell_len(setting) <= width:
        return setting
    return f"{set_cell_size(draft, spare).rstrip()}\N{HORIZONTAL ELLIPSIS}{comma}{knobs}"


def _join_words(words: Sequence[Text], width: int) -> Text:
    """Join as many of the words as fit into a line."""
    line = Text()
    for word in words:
        if line.cell_len + word.cell_len + 3 * bool(line) > width and line:
            break
        line.append(" \N{MIDDLE DOT} " if line else "")
        line.append_text(word)
    return _cut(line, width)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line
