"""Reads all sources of a platform, tools and streams in threads, and keeps the newest reading of each value.

Values that read 0 although they cannot, from dead counters, are left out.
"""

import math
import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import takewhile
from typing import Self

from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.records import Reading
from gatekeeper.core.system.system_names import this_platform
from gatekeeper.core.units import show_bytes
from gatekeeper.host import linux, macos
from gatekeeper.host.macos import vm_stat
from gatekeeper.host.sources import PERIOD_STREAM, UNITS, DirectSource, Source, Status, Stream, Tool, Values
from gatekeeper.host.tool_commands import MOST_OUTPUT, Killed, Output, Result, exit_code, run_all, running

RETRY_PAUSES = (1.0, 5.0, 30.0)
"""Seconds before a stream that died is started again: soon at first, then rarely enough to cost nothing."""

_NEVER_STALE = (Status.ABSENT, Status.DENIED)
TAIL = 1 << 16  # bytes of a stream's output kept to explain its death


LOADED = 0.1
"""Share of active time from which a GPU must have a frequency and draw power, if one tool reads all of them."""
LOADED_APART = 0.5
"""The same if several tools read them: one may lag a second behind at the begin and the end of a request."""

LEAST_COUNTED, MOST_COUNTED = 0.5, 1.5
"""Share of the memory that all pages add up to: a wrong page size makes it four times as much, or as little."""
WRONG_PAGES = "the size of a page or a count is wrong"
"""What the detail of pages that are not the memory of the machine ends in."""

LEFT_OUT = "left out: a power counter or the frequency is 0 although the machine is at work"
"""What the detail of a dead counter ends in."""


def dead_counters(values: Values, loaded: float = LOADED) -> tuple[str, ...]:
    """Return the names in *values* that read 0 W or 0 Hz although they cannot: their counters do not work.

    The processor that runs this program draws power, a GPU only if it is busy. Some power counters of macOS 27 read 0.
    A package power without its CPU or its GPU is none, so it is among them.
    """
    active = values.get("gpu_active")
    of_gpu = ("gpu_power", "gpu_frequency") if isinstance(active, float) and active >= loaded else ()
    dead = [name for name in ("cpu_power", "system_power", "package_power", *of_gpu) if values.get(name) == 0]
    if "package_power" in values and "package_power" not in dead and {"cpu_power", "gpu_power"} & {*dead}:
        dead.append("package_power")
    return tuple(dead)


def describe_wrong_pages(values: Values) -> str:
    """Say that all counted pages together are not the memory of this machine; empty where they are, or unknown."""
    counted, total = values.get("memory_counted"), values.get("memory_total")
    if not isinstance(counted, float) or not isinstance(total, float):
        return ""
    if LEAST_COUNTED * total <= counted <= MOST_COUNTED * total:
        return ""
    return f"all pages together are {show_bytes(counted)} of {show_bytes(total)} of memory: {WRONG_PAGES}"


def dead_detail(source: str, names: Sequence[str]) -> str:
    """Say why *names* of a source that answers are absent."""
    return f"{source}: {', '.join(names)} {LEFT_OUT}"


class Reader:
    """The newest reading of a source, and how long it stays fresh."""

    def __init__(self, name: str, provides: tuple[str, ...], period: float) -> None:
        self.name = name
        self.provides = provides
        self.detail = ""
        """The last error, in the source's own words."""
        self.settled = threading.Event()
        """Set after its first result: a reading, an error or a timeout."""
        # Half a period of jitter, and a second for a busy machine; an older reading is stale.
        self.fresh_ns = (1.5 * period + 1.0) * 1e9
        self._newest: tuple[Values, int] | None = None

    def current(self, now: int) -> tuple[Values, float | None]:
        """Return each value or why it is missing, and the age in seconds of the reading they come from."""
        if self._newest is None:
            return dict.fromkeys(self.provides, Status.STALE), None
        values, read_ns = self._newest
        age_ns = max(0, now - read_ns)
        if age_ns > self.fresh_ns:
            values = {name: value if value in _NEVER_STALE else Status.STALE for name, value in values.items()}
        return values, round(age_ns / 1e9, 6)

    def gives(self, name: str) -> bool:
        """Return whether it has the value now."""
        return not isinstance(self.current(time.monotonic_ns())[0].get(name, Status.ABSENT), Status)

    @property
    def answers(self) -> bool:
        """Return whether the newest reading holds a value."""
        return self._newest is not None and any(not isinstance(value, Status) for value in self._newest[0].values())

    def _keep(self, values: Values, detail: str = "", *, age_ns: int = 0) -> None:
        if dead := dead_counters(values):
            values = values | dict.fromkeys(dead, Status.ABSENT)
            detail = detail or dead_detail(self.name, dead)
        self._newest, self.detail = (values, time.monotonic_ns() - age_ns), detail
        self.settled.set()

    def _keep_failure(self, status: Status, detail: str) -> None:
        self._keep(dict.fromkeys(self.provides, status), detail)

    def _keep_error(self, error: Exception) -> None:
        self._keep_failure(Status.DENIED if isinstance(error, PermissionError) else Status.ABSENT, str(error))

    def _timed_out(self, detail: str) -> None:
        """Keep the reason why there is no new reading; the last one stays until it is stale."""
        self.detail = detail
        self.settled.set()


class DirectReader(Reader):
    """A source that answers at once."""

    def __init__(self, source: DirectSource, interval: float) -> None:
        super().__init__(source.name, source.provides, interval)
        self.fresh_ns += source.max_reuse * 1e9
        self._source = source

    def gives(self, name: str) -> bool:
        """Return whether it has the value now; one that was never read is read for it."""
        if not self.settled.is_set():
            self.read()
        return super().gives(name)

    def read(self) -> None:
        """Read it now."""
        try:
            values = self._source.read()
            self._keep(values, age_ns=self._source.reused_age_ns)
        except (OSError, NotImplementedError) as error:
            self._keep_error(error)
        except (ValueError, LookupError) as error:
            self._keep_failure(Status.PARSE_ERROR, str(error))


class ToolReader(Reader):
    """A tool that is run again and again."""

    def __init__(self, tool: Tool, interval: float, gap: float) -> None:
        super().__init__(tool.name, tool.provides, max(tool.period, interval))
        self.limit = tool.limit
        self.fallback = tool.fallback
        self._tool = tool
        self._pause_ns = round(max(tool.period, gap) * 1e9)
        self._due_ns = 0.0
        self._running = False

    def due_command(self, now: int) -> Sequence[str] | None:
        """Return the command to run now; None where it is not due, still runs, or there is nothing to run."""
        if self._running or now < self._due_ns:
            return None
        argv = self._tool.argv()
        self._due_ns = now + self._pause_ns
        if argv is None:
            self._keep_failure(Status.ABSENT, "")
        elif shutil.which(argv[0]) is None:
            self._due_ns = math.inf
            self._keep_failure(Status.ABSENT, f"{argv[0]}: not found on PATH")
        else:
            self._running = True
            return argv
        return None

    def keep(self, result: Result) -> None:
        """Keep what a run of the command gave."""
        if isinstance(result, OSError):
            self._due_ns = math.inf
            self._keep_error(result)
        elif result is Killed.TIMEOUT:
            self._timed_out(f"{self.name}: no output within {self.limit:g} s, so it was killed")
        elif result is Killed.TOO_MUCH_OUTPUT:
            detail = f"{self.name}: printed more than {MOST_OUTPUT >> 20} MiB, so it was killed"
            self._keep_failure(Status.PARSE_ERROR, detail)
        else:
            values, detail = self._tool.parse(result), ""
            if result.code:
                detail = f"{self.name}: exit {result.code}: {''.join(result.messages.splitlines()[:1])}"
            elif Status.PARSE_ERROR in values.values():
                detail = f"{self.name}: unknown output"
            self._keep(values, detail)
        self._running = False


class StreamReader(Reader):
    """A stream that is read in a thread, and restarted when it ends or prints nothing."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.name, stream.provides, PERIOD_STREAM)
        self.cost_ns = 0
        """CPU time of the thread that reads it."""
        self._stream = stream
        self._deaths = 0

    def follow(self, stop: int) -> None:
        """Read it until the descriptor *stop* becomes readable, or until it can never work."""
        while self._follow_once(stop):
            pause = RETRY_PAUSES[min(self._deaths, len(RETRY_PAUSES) - 1)]
            self._deaths += 1
            if select.select([stop], [], [], pause)[0]:
                return

    def _follow_once(self, stop: int) -> bool:
        """Read one process to its end; return whether another may be started."""
        argv = self._stream.argv()
        if argv is None or shutil.which(argv[0]) is None:
            self._keep_failure(Status.ABSENT, f"{argv[0] if argv else self.name}: not found on PATH")
            return False
        try:
            with running(argv) as process:
                output = self._read(process, stop)
        except OSError as error:
            self._keep_error(error)
            return False
        if output is None:
            return True
        messages = " ".join(output.messages.split())[-200:]
        detail = f"{self.name}: exited with code {output.code}{f': {messages}' if messages else ''}"
        status = self._stream.permanent_failure(output)
        if status is not None or self._newest is None:  # there is no reading that could be stale
            self._keep_failure(status or Status.ABSENT, detail)
        self.detail = detail
        return status is None

    def _read(self, process: subprocess.Popen[bytes], stop: int) -> Output | None:
        """Keep its readings until it ends; None where it prints none for too long, or *stop* becomes readable."""
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.fileno(), process.stderr.fileno()
        pipes, tails = {out, err}, {out: b"", err: b""}
        decoder, newest = self._stream.decoder(), time.monotonic()
        while pipes:
            seconds = max(0.0, newest + self._stream.silence - time.monotonic())
            ready = select.select([stop, *pipes], [], [], seconds)[0]
            if not ready:
                self._timed_out(f"{self.name}: no reading for {self._stream.silence:g} s, restarting it")
            if not ready or stop in ready:
                return None
            for pipe in ready:
                chunk = os.read(pipe, 1 << 16)
                tails[pipe] = (tails[pipe] + chunk)[-TAIL:]
                if not chunk:
                    pipes.remove(pipe)
                elif pipe == out and (readings := decoder.feed(chunk)):
                    self._keep(readings[-1])
                    newest, self._deaths, tails[out] = time.monotonic(), 0, b""
            self.cost_ns = time.thread_time_ns()
        return Output(exit_code(process), tails[out], tails[err])


class Poller:
    """Starts the sources, keeps their newest readings, and ends what it started.

    Times here are real, also where the run's clock is virtual. There *gap* is the least real time between two runs of a
    tool. How much real time such a run takes says nothing: no reading becomes stale.
    """

    def __init__(self, sources: Sequence[Source], *, interval: float, gap: float = 0.0) -> None:
        self._readers = [_reader(source, interval, gap) for source in sources]
        for reader in self._readers:
            reader.fresh_ns = math.inf if gap else reader.fresh_ns
        self._direct = [reader for reader in self._readers if isinstance(reader, DirectReader)]
        self._tools = [reader for reader in self._readers if isinstance(reader, ToolReader)]
        provided = [name for name in UNITS if any(name in reader.provides for reader in self._readers)]
        self._providers = {name: [reader for reader in self._readers if name in reader.provides] for name in provided}
        self._without_source = {name: Reading(None, unit, "none", Status.ABSENT.value) for name, unit in UNITS.items()}
        self._streams = [reader for reader in self._readers if isinstance(reader, StreamReader)]
        self._stop, self._close = os.pipe()
        self._executor = ThreadPoolExecutor(len(sources) + 1, "host source")
        self._following = [self._executor.submit(stream.follow, self._stop) for stream in self._streams]
        self._runs: list[Future[None]] = []
        self._left_out: dict[str, str] = {}
        self._tools_cost_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the streams and the running tools."""
        os.close(self._close)
        self._executor.shutdown(cancel_futures=True)
        os.close(self._stop)

    def settle(self, *, streams: bool, limit: float = 3.0) -> None:
        """Wait until each tool, and with *streams* each stream, has had its first reading, error or timeout."""
        self._start()
        end = time.monotonic() + limit
        for reader in (*filter(self._needs_tool, self._tools), *(self._streams if streams else ())):
            reader.settled.wait(max(0.0, end - time.monotonic()))

    def refresh(self, grace: float) -> None:
        """Read the direct sources, then start the tools that are due, and wait *grace* seconds for them.

        A tool that needs longer keeps running; its reading belongs to the next sample, with its age.
        """
        # First, so that the tool which stands in for a call that fails now is started for this sample, not the next.
        for reader in self._direct:
            reader.read()
        wait(self._start(), grace)

    def _start(self) -> list[Future[None]]:
        """Start the tools that are due, all in one thread; return the threads in which tools run now."""
        for ended in filter(Future.done, [*self._following, *self._runs]):
            ended.result()  # raises again what a parser with a bug raised
        self._runs = [run for run in self._runs if not run.done()]
        now = time.monotonic_ns()
        needed = filter(self._needs_tool, self._tools)
        due = [(tool, argv) for tool in needed if (argv := tool.due_command(now)) is not None]
        if due:
            self._runs.append(self._executor.submit(self._run, due))
        return self._runs

    def _needs_tool(self, tool: ToolReader) -> bool:
        """Return whether a tool is to run: a fallback only while the sources before it lack one of its values."""
        return not tool.fallback or not all(
            any(reader.gives(name) for reader in takewhile(lambda reader: reader is not tool, self._providers[name]))
            for name in tool.provides
        )

    def _run(self, due: Sequence[tuple[ToolReader, Sequence[str]]]) -> None:
        began = time.thread_time_ns()
        commands = [(argv, tool.limit) for tool, argv in due]
        run_all(commands, lambda index, result: due[index][0].keep(result), self._stop)
        self._tools_cost_ns += time.thread_time_ns() - began

    def cost_ns(self) -> int:
        """Return the CPU time of this thread and of the threads of tools and streams."""
        return time.thread_time_ns() + self._tools_cost_ns + sum(stream.cost_ns for stream in self._streams)

    def readings(self) -> dict[str, Reading]:
        """Return every value from the first source that has a fresh one, else the status that is easiest to fix.

        A counter that is dead by the GPU's activity, which another source may have, is absent. Counts of pages that are
        not the memory which another source reads are no sizes.
        """
        now = time.monotonic_ns()
        current = {reader: reader.current(now) for reader in self._readers}
        readings = self._without_source | {name: self._reading(name, current) for name in self._providers}
        values = {name: reading.value for name, reading in readings.items() if reading.value is not None}
        if (readings["gpu_active"].age or 0.0) > PERIOD_STREAM:
            values.pop("gpu_active", None)  # it may be of another request
        dead = dead_counters(values, LOADED_APART)
        self._left_out = {name: dead_detail(readings[name].source, (name,)) for name in dead}
        readings |= {name: replace(readings[name], value=None, status=Status.ABSENT.value) for name in dead}
        if wrong := describe_wrong_pages(values):
            pages = vm_stat.PROVIDES
            self._left_out |= dict.fromkeys(pages, wrong)
            unknown = Status.PARSE_ERROR.value
            readings |= {name: replace(readings[name], value=None, status=unknown) for name in pages}
        return readings

    def _reading(self, name: str, current: Mapping[Reader, tuple[Values, float | None]]) -> Reading:
        missing: list[tuple[Reader, Status, float | None]] = []
        for reader in self._providers[name]:
            values, age = current[reader]
            value = values.get(name, Status.ABSENT)
            if not isinstance(value, Status):
                return Reading(value, UNITS[name], reader.name, "ok", age)
            missing.append((reader, value, age))
        if len(missing) > 1:
            easiest_to_fix = (Status.DENIED, Status.PARSE_ERROR, Status.STALE, Status.ABSENT)
            missing.sort(key=lambda lack: (easiest_to_fix.index(lack[1]), not lack[0].answers))
        reader, status, age = missing[0]
        return Reading(None, UNITS[name], reader.name, status.value, age)

    def details(self) -> Mapping[str, str]:
        """Return the last error of each source that failed, in its own words, and of each value that it left out."""
        return {reader.name: reader.detail for reader in self._readers if reader.detail} | self._left_out


def _reader(source: Source, interval: float, gap: float) -> Reader:
    if isinstance(source, Tool):
        return ToolReader(source, interval, gap)
    return StreamReader(source) if isinstance(source, Stream) else DirectReader(source, interval)


PLATFORMS = ("macos", "linux")


def platform_sources(platform: str | None, pids: Callable[[], Sequence[int]]) -> Sequence[Source]:
    """Return the sources of *platform*, this one when None, in the order they are preferred."""
    if platform is not None and platform not in PLATFORMS:
        raise InputError(f"unknown platform '{platform}'", hint=did_you_mean(platform, PLATFORMS))
    name = platform or this_platform()
    if name == "linux":
        return linux.sources(pids)
    return macos.sources(pids) if name == "macos" else []
