"""The requests of the last day, by workload and part of an hour: how many, how fast, and what could not be counted."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from gatekeeper.live.ended_request import EndedRequest

PART_S = 900.0
"""Seconds that one point of a chart stands for."""
PARTS = 96
"""A day of them."""
HOUR_S = 3600.0
DRAFTED, PLAIN = "speculative", "plain"
"""The servers that answer, as records name them."""


@dataclass(slots=True)
class DecodedTokens:
    """The answers of one server in a stretch of time, as far as their tokens and their decoding were timed."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def tok_s(self) -> float | None:
        """Return the tokens per second of decoding, over all tokens; None without a timed answer."""
        return self.tokens / self.seconds if self.seconds else None


@dataclass(slots=True)
class DayPart:
    """What ended in one stretch of time."""

    begun_ns: int
    requests: int = 0
    uncounted: int = 0
    """Whole answers that came without token counts."""
    decoding: dict[str, DecodedTokens] = field(
        default_factory=lambda: {DRAFTED: DecodedTokens(), PLAIN: DecodedTokens()}
    )


class WorkloadDay:
    """The last day of one workload, oldest part first."""

    def __init__(self) -> None:
        self.parts: deque[DayPart] = deque(maxlen=PARTS)
        self.rules = Counter[str]()
        """Requests since the start by what sorted them into it: a rule, the header, or the default."""

    def add(self, ended: EndedRequest, now_ns: int) -> None:
        """Count a request that has ended."""
        if not self.parts or now_ns - self.parts[-1].begun_ns >= PART_S * 1e9:
            self.parts.append(DayPart(now_ns))
        part = self.parts[-1]
        part.requests += 1
        self.rules[ended.decision.rule] += 1
        decode_s = ended.meter.decode_s
        if ended.tokens is None and ended.fault is None:
            part.uncounted += 1
        elif ended.tokens and decode_s and ended.target in part.decoding:
            decoding = part.decoding[ended.target]
            decoding.tokens, decoding.seconds = decoding.tokens + ended.tokens - 1, decoding.seconds + decode_s

    def within(self, seconds: float, now_ns: int) -> list[DayPart]:
        """Return the parts that began in the last *seconds*."""
        return [part for part in self.parts if now_ns - part.begun_ns < seconds * 1e9]


class LiveDay:
    """The last day of all workloads, those without a route included; it is filled and read in one event loop."""

    def __init__(self, now_ns: int) -> None:
        """Begin at *now_ns*, monotonic nanoseconds."""
        self.begun_ns = now_ns
        self.workloads: dict[str, WorkloadDay] = {}

    def add(self, ended: EndedRequest, now_ns: int) -> None:
        """Count a request that has ended."""
        self.workloads.setdefault(ended.decision.workload, WorkloadDay()).add(ended, now_ns)

    def seconds(self, now_ns: int) -> float:
        """Return for how long requests were counted, up to a day."""
        return min((now_ns - self.begun_ns) / 1e9, PARTS * PART_S)

    def of(self, workload: str, now_ns: int) -> list[DayPart]:
        """Return the parts of the last day of a workload; none where it had no request."""
        day = self.workloads.get(workload)
        return day.within(PARTS * PART_S, now_ns) if day is not None else []


def requests(parts: Iterable[DayPart]) -> int:
    """Count the requests of some parts."""
    return sum(part.requests for part in parts)


def decoding(parts: Iterable[DayPart], server: str) -> DecodedTokens:
    """Add up what one server decoded in some parts."""
    decoded = [part.decoding[server] for part in parts]
    return DecodedTokens(sum(part.tokens for part in decoded), sum(part.seconds for part in decoded))
