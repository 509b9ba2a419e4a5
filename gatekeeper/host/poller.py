"""The panel: all sources of a host at work in one thread, and the newest reading of each value."""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Self

from gatekeeper.core.records import Reading
from gatekeeper.core.text import one_line
from gatekeeper.host.sources import (
    PERIOD_STREAM,
    UNITS,
    Decoder,
    Found,
    Lack,
    Local,
    Output,
    Source,
    Stream,
    Tool,
    lacking,
)

OUTPUT_MOST = 4 << 20
"""Bytes: a full powermetrics sample is a quarter of a megabyte; ten times that is not an answer."""


def environment() -> dict[str, str]:
    """Return this process's environment in the C locale, so that numbers carry points and words are English."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LC_") and key != "LANG"}
    return kept | {"LC_ALL": "C", "LANG": "C"}


class Child:
    """A running command, its own process group, both outputs non-blocking. Whoever starts it closes it."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.started_ns = time.monotonic_ns()
        # A group of its own, not a session: sudo's cached permission belongs to the terminal of this session.
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            process_group=0,
        )
        self.out = bytearray()
        self.err = bytearray()
        self._open: dict[IO[bytes], bytearray] = {}
        self._selector: selectors.BaseSelector | None = None
        for pipe, kept in ((self._process.stdout, self.out), (self._process.stderr, self.err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._open[pipe] = kept

    def register(self, selector: selectors.BaseSelector, ready: Callable[[], None]) -> None:
        """Have *selector* report new output by calling *ready*, which calls `read`."""
        self._selector = selector
        for pipe in self._open:
            selector.register(pipe, selectors.EVENT_READ, ready)

    def read(self) -> None:
        """Take what has arrived."""
        for pipe, taken in list(self._open.items()):
            try:
                chunk = os.read(pipe.fileno(), 1 << 16)
            except BlockingIOError:
                continue
            taken.extend(chunk)
            if not chunk:
                self._shut(pipe)

    def _shut(self, pipe: IO[bytes]) -> None:
        del self._open[pipe]
        if self._selector is not None:
            self._selector.unregister(pipe)
        pipe.close()

    @property
    def ended(self) -> bool:
        """Tell whether it has said all it will say."""
        return not self._open

    @property
    def overflowing(self) -> bool:
        """Tell whether it has printed more than any answer is long."""
        return len(self.out) + len(self.err) > OUTPUT_MOST

    def output(self) -> Output:
        """Return what it left behind, after its end."""
        try:
            code = self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.close()
            code = -signal.SIGKILL
        return Output(code, bytes(self.out), bytes(self.err))

    def close(self) -> None:
        """End it and its group; what runs as root ends at its next write into the closed pipe."""
        for pipe in list(self._open):
            self._shut(pipe)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(argv: Sequence[str], *, limit: float = 3.0) -> Output | None:
    """Run a command to its end; None where it is missing, cannot start, or does not end within *limit* seconds."""
    try:
        child = Child(argv)
    except OSError:
        return None
    with selectors.DefaultSelector() as selector, child:
        child.register(selector, child.read)
        end_ns = child.started_ns + round(limit * 1e9)
        while not child.ended and not child.overflowing:
            left = (end_ns - time.monotonic_ns()) / 1e9
            if left <= 0:
                return None
            for key, _ in selector.select(left):
                key.data()
        return None if child.overflowing else child.output()


BACKOFFS = (1.0, 5.0, 30.0)
"""Seconds before a stream that died is started again: soon at first, then rarely enough to cost nothing."""

NEVER = 1 << 62
"""A due time that never comes."""

TAIL = 1 << 16
"""Bytes of a stream's output kept to explain its death."""


class Seat:
    """What every kind of source has in common: its newest reading and how long that stays fresh."""

    def __init__(self, name: str, gives: tuple[str, ...], period: float) -> None:
        self.name = name
        self.gives = gives
        self.detail = ""
        """What went wrong last, in the source's own words."""
        self.settled = False
        """It has answered, failed or run out of time once."""
        # Half a period of jitter, and a second for a busy machine: older than that is not "now".
        self._fresh_ns = round((1.5 * period + 1.0) * 1e9)
        self._found: Found | None = None
        self._read_ns = 0

    def current(self, name: str, now: int) -> tuple[float | str | Lack, float | None]:
        """Return the value or its lack, and the age in seconds of the reading it comes from."""
        if self._found is None:
            return Lack.STALE, None
        age_ns = max(0, now - self._read_ns)
        value = self._found.get(name, Lack.ABSENT)
        if age_ns > self._fresh_ns and value not in (Lack.ABSENT, Lack.DENIED):
            value = Lack.STALE
        return value, round(age_ns / 1e9, 6)

    def _keep(self, found: Found) -> None:
        self._found, self._read_ns, self.settled = found, time.monotonic_ns(), True

    def _lack(self, lack: Lack, detail: str) -> None:
        self._keep(lacking(self.gives, lack))
        self.detail = detail

    def start(self, now: int, selector: selectors.BaseSelector) -> None:
        """Begin whatever is due."""

    def expire(self, now: int) -> int:
        """End what has run out of time; return when to look again."""
        del now
        return NEVER

    def close(self) -> None:
        """Stop what was started."""

    @property
    def busy(self) -> bool:
        """Tell whether an answer is under way that a sample may wait for."""
        return False


class LocalSeat(Seat):
    """A source that answers at once."""

    def __init__(self, source: Local, interval: float) -> None:
        super().__init__(source.name, source.gives, interval)
        self._fresh_ns += round(source.hold * 1e9)
        self._source = source
        self.settled = True

    def read(self) -> None:
        """Read it now."""
        try:
            self._keep(self._source.read())
            self._read_ns -= self._source.held_ns
            self.detail = ""
        except PermissionError as error:
            self._lack(Lack.DENIED, str(error))
        except (OSError, NotImplementedError) as error:
            self._lack(Lack.ABSENT, str(error))
        except (ValueError, LookupError) as error:
            self._lack(Lack.PARSE_ERROR, str(error))


class _ChildSeat(Seat):
    _child: Child | None = None

    def _launch(self, argv: Sequence[str], selector: selectors.BaseSelector) -> bool:
        if shutil.which(argv[0]) is None:
            self._lack(Lack.ABSENT, f"{argv[0]}: not found on PATH")
            return False
        try:
            self._child = Child(argv)
        except PermissionError as error:
            self._lack(Lack.DENIED, str(error))
        except OSError as error:
            self._lack(Lack.ABSENT, str(error))
        else:
            self._child.register(selector, self._ready)
            return True
        return False

    def _ready(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Stop its process."""
        if self._child is not None:
            self._child.close()
            self._child = None


class ToolSeat(_ChildSeat):
    """A tool that is run again and again."""

    def __init__(self, tool: Tool, interval: float, gap: float) -> None:
        super().__init__(tool.name, tool.gives, max(tool.period, interval))
        self._tool = tool
        self._pause_ns = round(max(tool.period, gap) * 1e9)
        self._due_ns = 0

    @property
    def busy(self) -> bool:
        """Tell whether it is running."""
        return self._child is not None

    def start(self, now: int, selector: selectors.BaseSelector) -> None:
        """Run it if it is due and not still running."""
        if self._child is not None or now < self._due_ns:
            return
        argv = self._tool.argv()
        self._due_ns = now + self._pause_ns
        if argv is None:
            self._lack(Lack.ABSENT, "")
        elif not self._launch(argv, selector):
            self._due_ns = NEVER

    def expire(self, now: int) -> int:
        """Kill it when its time limit is over."""
        if self._child is None:
            return NEVER
        end = self._child.started_ns + round(self._tool.limit * 1e9)
        if now >= end:
            self.close()
            self.detail = f"{self.name}: no answer within {self._tool.limit:g} s"
            self.settled = True
            return NEVER
        return end

    def _ready(self) -> None:
        child = self._child
        if child is None:
            return
        child.read()
        if child.overflowing:
            self.close()
            self._lack(Lack.PARSE_ERROR, f"{self.name}: endless output")
        elif child.ended:
            output = child.output()
            self.close()
            found = lacking(self.gives, Lack.ABSENT) | self._tool.parse(output)
            self._keep(found)
            complaint = output.said.splitlines()[:1] if output.code else []
            self.detail = f"{self.name}: exit {output.code}: {''.join(complaint)}" if output.code else ""
            if not output.code and Lack.PARSE_ERROR in found.values():
                self.detail = f"{self.name}: unknown output"


class StreamSeat(_ChildSeat):
    """A stream that is followed, watched, and started again when it dies."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.name, stream.gives, PERIOD_STREAM)
        self._stream = stream
        self._due_ns = 0
        self._deaths = 0
        self._heard_ns = 0
        self._said = bytearray()
        self._decoder: Decoder = stream.decoder()

    def start(self, now: int, selector: selectors.BaseSelector) -> None:
        """Start it, or start it again when its pause is over."""
        if self._child is not None or now < self._due_ns:
            return
        argv = self._stream.argv()
        if argv is None:
            self._lack(Lack.ABSENT, f"{self.name}: not found on PATH")
        if argv is None or not self._launch(argv, selector):
            self._due_ns = NEVER
            return
        self._decoder, self._heard_ns = self._stream.decoder(), now
        self._said.clear()

    def expire(self, now: int) -> int:
        """Take a silent stream for hung; tell when it may next be silent too long, or is due again."""
        if self._child is None:
            return self._due_ns
        end = self._heard_ns + round(self._stream.silence * 1e9)
        if now >= end:
            self.close()
            self._pause(now, f"{self.name}: silent for {self._stream.silence:g} s")
            return self._due_ns
        return end

    def _ready(self) -> None:
        child = self._child
        if child is None:
            return
        child.read()
        chunk = bytes(child.out)
        child.out.clear()
        del child.err[:-TAIL]
        self._said = (self._said + chunk)[-TAIL:]
        readings = self._decoder.feed(chunk)
        if readings:
            self._keep(lacking(self.gives, Lack.ABSENT) | readings[-1])
            self._heard_ns, self._deaths, self.detail = time.monotonic_ns(), 0, ""
            self._said.clear()
        if child.ended:
            code, err = child.output().code, bytes(child.err)
            self.close()
            output = Output(code, bytes(self._said), err)
            said = one_line(output.said)[-200:] if not readings else ""
            self._dead(output, said)

    def _pause(self, now: int, detail: str) -> None:
        self._due_ns = now + round(BACKOFFS[min(self._deaths, len(BACKOFFS) - 1)] * 1e9)
        self._deaths += 1
        self.detail, self.settled = detail, True

    def _dead(self, output: Output, said: str) -> None:
        """Judge a death: for ever, or for now; one that never gave a reading has nothing that could be stale."""
        detail = f"{self.name}: ended with code {output.code}{f': {said}' if said else ''}"
        lack = self._stream.ended(output)
        self._pause(time.monotonic_ns(), detail)
        if lack is not None or self._found is None:
            self._lack(lack or Lack.ABSENT, detail)
        if lack is not None:
            self._due_ns = NEVER


def seat(source: Source, interval: float, gap: float) -> Seat:
    """Return a seat for *source* in a panel that is read every *interval* seconds."""
    if isinstance(source, Tool):
        return ToolSeat(source, interval, gap)
    return StreamSeat(source) if isinstance(source, Stream) else LocalSeat(source, interval)


_TELLING = (Lack.DENIED, Lack.PARSE_ERROR, Lack.STALE, Lack.ABSENT)
"""Which lack is reported when several sources lack a value: the one a person can do most about."""


class Panel:
    """Opens the sources, keeps their newest readings, and closes what it started.

    Times here are the machine's own: a tool takes real time even where the run's clock is virtual. There *gap* is the
    least real time between two runs of a tool, so that ten virtual minutes are not thousands of processes.
    """

    def __init__(self, sources: Sequence[Source], *, interval: float, gap: float = 0.0) -> None:
        self._seats = [seat(source, interval, gap) for source in sources]
        self._givers = {name: [one for one in self._seats if name in one.gives] for name in UNITS}
        self._selector = selectors.DefaultSelector()
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._woken = False
        self._selector.register(self._near, selectors.EVENT_READ, self._wake_up)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every tool and stream."""
        for one in self._seats:
            one.close()
        self._selector.close()
        self._near.close()
        self._far.close()

    def wake(self) -> None:
        """End a `wait` of another thread; harmless when the panel is closed."""
        with contextlib.suppress(OSError):
            self._far.send(b"\0")

    def _wake_up(self) -> None:
        self._near.recv(4096)
        self._woken = True

    def settle(self, *, streams: bool, limit: float = 3.0) -> None:
        """Wait until each tool, and where *streams* each stream, has answered, failed or run out of time once."""
        waited = [one for one in self._seats if streams or not isinstance(one, StreamSeat)]
        self._start()
        self._pump(limit, lambda: all(one.settled for one in waited))

    def refresh(self, grace: float) -> None:
        """Read what answers at once, start the tools that are due, and give them *grace* seconds.

        A tool that needs longer goes on; its answer belongs to the next sample, with its age.
        """
        self._start()
        for one in self._seats:
            if isinstance(one, LocalSeat):
                one.read()
        self._pump(grace, lambda: not any(one.busy for one in self._seats))

    def wait(self, seconds: float) -> None:
        """Follow the streams for *seconds*, or until `wake`."""
        self._pump(seconds, lambda: self._woken)
        self._woken = False

    def readings(self) -> dict[str, Reading]:
        """Return every value: the first source that has a fresh one, else the most telling lack."""
        now = time.monotonic_ns()
        return {name: self._reading(name, now) for name in UNITS}

    def details(self) -> Mapping[str, str]:
        """Return what went wrong with each source that failed, in its own words."""
        return {one.name: one.detail for one in self._seats if one.detail}

    def _reading(self, name: str, now: int) -> Reading:
        lacks: list[tuple[int, Reading]] = []
        for one in self._givers[name]:
            value, age = one.current(name, now)
            if not isinstance(value, Lack):
                return Reading(value, UNITS[name], one.name, "ok", age)
            lacks.append((_TELLING.index(value), Reading(None, UNITS[name], one.name, value.value, age)))
        if not lacks:
            return Reading(None, UNITS[name], "none", Lack.ABSENT.value)
        return min(lacks, key=lambda ranked: ranked[0])[1]

    def _start(self) -> None:
        now = time.monotonic_ns()
        for one in self._seats:
            one.start(now, self._selector)

    def _pump(self, seconds: float, done: Callable[[], bool]) -> None:
        """Take what the children print until *seconds* have passed or *done*; always look at least once."""
        end = time.monotonic_ns() + round(max(0.0, seconds) * 1e9)
        while True:
            now = time.monotonic_ns()
            again = min((one.expire(now) for one in self._seats), default=end)
            finished = done() or now >= end
            pause = 0.0 if finished else (min(end, max(now, again)) - now) / 1e9
            for key, _ in self._selector.select(pause):
                key.data()
            if finished:
                return
            for one in self._seats:
                if isinstance(one, StreamSeat):
                    one.start(time.monotonic_ns(), self._selector)
