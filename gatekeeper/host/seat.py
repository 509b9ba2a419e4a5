"""A seat: one source at work, what it last said, and when."""

import selectors
import shutil
import time
from collections.abc import Sequence

from gatekeeper.host.child import Child
from gatekeeper.host.source import PERIOD_STREAM, Decoder, Local, Output, Source, Stream, Tool, lacking
from gatekeeper.host.values import Found, Lack

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
            said = " ".join(output.said.split())[-200:] if not readings else ""
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
