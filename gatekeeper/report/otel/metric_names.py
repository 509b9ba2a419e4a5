"""The names, units and buckets of exported metrics, in one place, because the GenAI conventions still change."""

from dataclasses import dataclass
from typing import Literal

OPERATION = "chat"

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(float(4**power) for power in range(14))


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram's name, unit and upper bounds."""

    name: str
    unit: str
    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter's name and unit."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """How the tokens of one direction are counted."""

    histogram: Histogram
    attributes: tuple[tuple[str, str], ...] = ()
    usage: Counter | None = None
    """A counter with the same tokens, by modality: canaries are text."""


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The metrics of a request, by what they measure."""

    duration: Histogram
    first_chunk: Histogram
    output_chunk: Histogram
    input_tokens: Tokens
    output_tokens: Tokens
    first_token: Histogram = Histogram("gen_ai.server.time_to_first_token", "s", FIRST_TOKEN_SECONDS)
    output_token: Histogram = Histogram("gen_ai.server.time_per_output_token", "s", TOKEN_SECONDS)


def request_metrics(*, latest: bool) -> RequestMetrics:
    """Return the names of semantic conventions 1.41, or the *latest* ones, which no release holds yet."""
    stem = "gen_ai.client.inference" if latest else "gen_ai.client.operation"
    return RequestMetrics(
        Histogram(f"{stem}.duration", "s", SECONDS),
        Histogram(f"{stem}.time_to_first_chunk", "s", SECONDS),
        Histogram(f"{stem}.time_per_output_chunk", "s", SECONDS),
        _tokens("input", latest=latest),
        _tokens("output", latest=latest),
    )


def _tokens(kind: str, *, latest: bool) -> Tokens:
    if not latest:
        return Tokens(Histogram("gen_ai.client.token.usage", "{token}", TOKENS), (("gen_ai.token.type", kind),))
    stem = "gen_ai.client.inference"
    histogram = Histogram(f"{stem}.operation.{kind}_tokens", "{token}", TOKENS)
    return Tokens(histogram, usage=Counter(f"{stem}.usage.{kind}_tokens", "{token}"))


_UNITS = {
    "rounds": "{round}",
    "drafted": "{token}",
    "accepted": "{token}",
    "draft_forwards": "{forward}",
    "rollbacks": "{round}",
}
SPECULATION = {name: Counter(f"gatekeeper.speculative.{name}", unit) for name, unit in _UNITS.items()}
"""The counters of speculative decoding, which no convention covers."""


@dataclass(frozen=True, slots=True)
class HostMetric:
    """The metric of a host value."""

    name: str
    unit: str
    kind: Literal["gauge", "level"] = "gauge"
    """level: the conventions call it an UpDownCounter, which OTLP sends as a sum that may fall."""
    attributes: tuple[tuple[str, str], ...] = ()


_NAMED = {
    "memory_total": HostMetric("system.memory.limit", "By", "level"),
    "memory_wired": HostMetric("system.memory.usage", "By", "level", (("system.memory.state", "wired"),)),
    "memory_compressed": HostMetric("system.memory.usage", "By", "level", (("system.memory.state", "compressed"),)),
    "swap_used": HostMetric("system.paging.usage", "By", "level", (("system.paging.state", "used"),)),
    "subject_footprint": HostMetric("process.memory.usage", "By", "level", (("gatekeeper.process", "subject"),)),
    "fan_speed": HostMetric("hw.fan.speed", "rpm", "gauge", (("hw.id", "fan"),)),
    "gpu_power": HostMetric("hw.power", "W", "gauge", (("hw.id", "gpu"), ("hw.type", "gpu"))),
    "cpu_power": HostMetric("hw.power", "W", "gauge", (("hw.id", "cpu"), ("hw.type", "cpu"))),
    "system_power": HostMetric("hw.host.power", "W", "gauge", (("hw.id", "host"),)),
    "gpu_active": HostMetric("hw.gpu.utilization", "1", "gauge", (("hw.id", "gpu"),)),
}
"""Values of a host sample that a convention covers. `subject_footprint` is the memory of a whole process tree."""


def host_metric(value: str, unit: str) -> HostMetric:
    """Return the metric of a host value; one that no convention covers keeps our name."""
    return _NAMED.get(value) or HostMetric(f"gatekeeper.host.{value}", {"B": "By"}.get(unit, unit))
