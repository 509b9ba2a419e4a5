"""The table of metrics an objective may name: a row states everything about a metric but how it is computed."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto
from typing import Any

from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.units import percent, show, show_range


class Sight(Flag):
    """What can be measured of a backend; an objective that needs more is refused before the run."""

    NOTHING = 0
    ARRIVALS = auto()
    """When the pieces of an answer came."""
    TOKEN_COUNT = auto()
    """How many tokens each answer has."""
    TEXT = auto()
    TOKEN_IDS = auto()
    ROUNDS = auto()
    """Drafted, accepted and rounds, counted by us."""
    CLAIMED_ROUNDS = auto()
    """Drafted and accepted, as the server claims."""
    MEMORY = auto()
    """The memory of the processes can be measured."""
    PLAIN = auto()
    """The backend can decode plainly as well as with a draft."""
    LOGITS = auto()
    """The target's logits can be read, in a pass that is not timed."""
    COLD = auto()
    """There is no prompt cache, or each answer reports how many of its prompt's tokens were cached."""
    FORCED = auto()
    """One untimed pass of the target over given tokens shows its own greedy token at each position."""
    PROMPT_TIME = auto()
    """Each answer says how long its prompt was read, apart from the first token."""


class Per(Enum):
    """The independent unit: what may be resampled. Tokens inside one answer are not independent."""

    ANSWER = "answer"
    PAIR = "pair"
    WINDOW = "window"
    HOST = "host sample"


@dataclass(frozen=True, slots=True)
class PassRate:
    """The right answers a difference of pass rates counts."""

    kind: str | None
    """Kind of expectation that is counted; None counts all."""
    figure: str
    """Name of the arm's own pass rate among the measured figures."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: how it is named in an SLO, what it means and what it takes to see it."""

    name: str
    unit: str
    higher_is_better: bool
    per: Per
    needs: Sight
    description: str
    base: str = ""
    """What is read from an answer; metrics with the same base differ only in their quantile."""
    quantile: float | None = None
    minimum: float | None = None
    """The smallest value it can take; a bound below it is a mistake."""
    maximum: float | None = None
    speed_ratio: bool = False
    """The candidate's speed over plain decoding's: unproven where plain decoding is unstable or drifts."""
    relative: bool = False
    """A share of plain decoding's value: printed in percent, and two of them are subtracted."""
    pass_rate: PassRate | None = None
    """The right answers it counts, where it is a difference of pass rates."""
    every_canary: bool = False
    """It needs every canary of the frozen set in both arms."""
    from_rounds: bool = False
    """It is counted from verify rounds: it has a meaning only while speculating."""
    counted: bool = False
    """Counted, not estimated, on a frozen set or in this run: lo = center = hi."""
    population: bool = True
    """Canaries carry it and stand for other prompts, so it can be bounded for those as well."""
    samples: tuple[str, ...] = ()
    """Of a host metric: the sampled values it can be computed from; any one of several suffices."""

    @property
    def host(self) -> bool:
        """Return whether it belongs to the run rather than to a workload."""
        return self.per is Per.HOST

    @property
    def against_plain(self) -> bool:
        """Return whether it compares the candidate with plain decoding, so that it applies to speculation only."""
        return self.per is Per.PAIR

    @property
    def default_when(self) -> str:
        """Return `speculating` for what has no meaning in plain decoding, else `always`."""
        return "speculating" if self.against_plain or self.from_rounds else "always"

    def show(self, value: float) -> str:
        """Print a value of it for a person: 1.31x for a ratio of speeds, +14 % for a relative change, 42 ms."""
        if self.speed_ratio:
            return f"{show(value, self.unit)}x"
        return percent(value, "+.3g") if self.relative else show(value, self.unit)

    def show_range(self, lo: float, hi: float) -> str:
        """Print an interval of its values; a counted one is a single value."""
        return self.show(lo) if lo == hi else show_range(self.show(lo), self.show(hi))

    def reject_impossible(self, bound: str, threshold: float) -> None:
        """Raise ValueError for a bound out of the range of this metric."""
        if self.minimum is not None and threshold < self.minimum:
            raise ValueError(f"{bound} = {threshold:g} is impossible: {self.name} is never below {self.minimum:g}")
        if self.maximum is not None and threshold > self.maximum:
            # 55 where 0.55 is meant: TOML has no per cent of its own.
            suggestion = (
                f'\nwrite {threshold / 100:g} or "{threshold:g} %"' if self.maximum == 1 < threshold <= 100 else ""
            )
            raise ValueError(
                f"{bound} = {threshold:g} is impossible: {self.name} is never above {self.maximum:g}{suggestion}"
            )


_TIMES = Sight.ARRIVALS
_SPEED = Sight.ARRIVALS | Sight.TOKEN_COUNT
_WHOLE = Sight.TOKEN_COUNT | Sight.PLAIN
"""Of whole answers, which a server that does not stream shows as well."""
_PAIRED_TEXT = Sight.TEXT | Sight.PLAIN


def _speed_ratio(name: str, needs: Sight, description: str) -> Metric:
    return Metric(name, "1", True, Per.PAIR, needs, description, minimum=0.0, speed_ratio=True)


def _median(name: str, unit: str, needs: Sight, description: str, *, higher: bool = True, **more: Any) -> Metric:
    full_description = f"{description}; median over answers"
    return Metric(name, unit, higher, Per.ANSWER, needs, full_description, base=name, quantile=0.5, minimum=0.0, **more)


def _latency(base: str, quantile: float, needs: Sight, description: str) -> Metric:
    share = percent(quantile)
    name, full_description = f"{base}_p{share.removesuffix(' %')}", f"{share} quantile {description}"
    return Metric(name, "s", False, Per.ANSWER, needs, full_description, base=base, quantile=quantile, minimum=0.0)


def _itl(quantile: float) -> Metric:
    description = (
        "of the token-normalised inter-token latency, pooled over answers: "
        "a burst of m tokens after a gap g counts m times g/m; an answer's first burst is left out"
    )
    return _latency("itl", quantile, _SPEED, description)


def _share(name: str, per: Per, needs: Sight, description: str, *, higher: bool = True, **more: Any) -> Metric:
    limits: dict[str, Any] = {"minimum": 0.0, "maximum": 1.0} | more
    return Metric(name, "1", higher, per, needs, description, counted=True, **limits)


def _pass_delta(name: str, kind: str | None, figure: str, description: str) -> Metric:
    rate = PassRate(kind, figure)
    return _share(name, Per.PAIR, _PAIRED_TEXT, description, minimum=-1.0, pass_rate=rate, every_canary=True)


def _host(
    name: str, unit: str, samples: str, description: str, *, higher: bool = False, minimum: float | None = 0.0
) -> Metric:
    return Metric(
        name,
        unit,
        higher,
        Per.HOST,
        Sight.NOTHING,
        description,
        minimum=minimum,
        counted=True,
        population=False,
        samples=tuple(samples.split()),
    )


ALL: tuple[Metric, ...] = (
    _speed_ratio(
        "throughput_ratio",
        _SPEED | Sight.PLAIN,
        "decode tokens per second, speculative over plain, paired per canary; geometric mean",
    ),
    _speed_ratio(
        "answer_throughput_ratio",
        _WHOLE,
        "output tokens over (end - sent), speculative over plain, paired per canary; geometric mean",
    ),
    _speed_ratio(
        "system_throughput_ratio", _WHOLE, "tokens over wall time at soak.concurrency, speculative over plain"
    ),
    _median("decode_throughput", "tok/s", _SPEED, "tokens after the first arrival over the time since it"),
    _median(
        "prefill_throughput",
        "tok/s",
        Sight.PROMPT_TIME | Sight.TOKEN_COUNT | Sight.COLD,
        "prompt tokens over the time to read them, by the server's own clock",
    ),
    _median("ttft", "s", _TIMES | Sight.COLD, "time from the request to its first non-empty content", higher=False),
    Metric(
        "ttft_delta",
        "1",
        False,
        Per.PAIR,
        _TIMES | Sight.PLAIN | Sight.COLD,
        "relative change of the time to first token, paired per canary; geometric mean",
        relative=True,
    ),
    _median("acceptance_rate", "1", Sight.ROUNDS, "accepted over drafted tokens", from_rounds=True, maximum=1.0),
    _median(
        "acceptance_length",
        "tok",
        Sight.ROUNDS,
        "tokens per verify round, including the target's own",
        from_rounds=True,
    ),
    _share(
        "acceptance_window_min",
        Per.WINDOW,
        Sight.ROUNDS,
        "worst stretch of three consecutive windows, by the best acceptance in it",
        from_rounds=True,
        population=False,
    ),
    _itl(0.50),
    _itl(0.95),
    _itl(0.99),
    _latency("round_gap", 0.95, _TIMES, "of the gaps between bursts, as a reader sees them"),
    _latency("stall", 0.95, _TIMES, "over answers of each answer's longest gap"),
    _latency("tpot", 0.95, _SPEED, "over answers of the mean time per output token after the first"),
    _pass_delta(
        "task_pass_delta",
        None,
        "canary_pass_rate",
        "share of canaries passed, speculative minus plain, on the frozen set",
    ),
    _pass_delta("json_pass_delta", "json", "json_pass_rate", "the same for canaries with a JSON schema"),
    _pass_delta(
        "tool_call_pass_delta", "tool", "tool_call_pass_rate", "the same for canaries with expected tool calls"
    ),
    _share(
        "token_agreement",
        Per.PAIR,
        _PAIRED_TEXT,
        "share of canaries whose greedy tokens equal plain decoding's, or diverge at a near-tie of its logits",
        every_canary=True,
    ),
    _share(
        "warm_cache_agreement",
        Per.PAIR,
        _PAIRED_TEXT,
        "share of canaries whose greedy answers equal plain decoding's with the prompt cache on, as deployed, "
        "when they are repeated and in a later turn",
    ),
    _share(
        "shared_prefix_agreement",
        Per.PAIR,
        _PAIRED_TEXT,
        "the same after another user's conversation that begins with the same prompt",
    ),
    _share(
        "model_switch_agreement",
        Per.PAIR,
        _PAIRED_TEXT,
        "the same after a request to another model of the same server, which `other_model` in [subject] names",
    ),
    _share(
        "first_tokens_p_value",
        Per.PAIR,
        _PAIRED_TEXT,
        "p-value that both arms sample their first tokens from one distribution; a permutation test",
        population=False,
    ),
    _share("error_rate", Per.ANSWER, Sight.NOTHING, "share of answers that failed", higher=False),
    _share(
        "speculation_engaged",
        Per.ANSWER,
        Sight.NOTHING,
        "share of the speculative answers in which the draft proposed tokens",
        from_rounds=True,
    ),
    _share(
        "truncation_rate",
        Per.PAIR,
        Sight.NOTHING,
        "share of canaries whose answer is cut short although plain decoding completes it",
        higher=False,
    ),
    _host(
        "memory_headroom",
        "B",
        "memory_headroom",
        "lowest 10 s median of the memory that is available without swapping",
        higher=True,
    ),
    _host(
        "memory_pressure_critical", "s", "memory_pressure_level", "longest continuous run of critical memory pressure"
    ),
    _host(
        "throttle_time",
        "s",
        "thermal_level throttle_total throttle_events",
        "total time in which the host was thermally throttled",
    ),
    _host("swapin_bytes", "B", "swapin_bytes", "bytes swapped in during the soak"),
    _host("swapout_bytes", "B", "swapout_bytes", "bytes swapped out during the soak"),
    _host("swap_growth", "B", "swap_used", "growth of swap over the soak; 0 if it ever fell"),
    _host(
        "footprint_peak",
        "B",
        "subject_footprint",
        "largest memory footprint of the process tree of the system under test",
    ),
    _host(
        "footprint_growth",
        "B/s",
        "subject_footprint",
        "slope of that footprint over the soak (Theil-Sen)",
        minimum=None,
    ),
    _host("fan_variation", "rpm", "fan_speed", "range of the fan speed over the soak; informational unless named"),
    _host("power_mean", "W", "package_power", "mean package power over the soak; informational unless named"),
    _host("energy_per_token", "J", "package_power", "package energy per output token; informational unless named"),
    _host(
        "system_power_mean",
        "W",
        "system_power",
        "mean power of the whole machine over the soak; informational unless named",
    ),
    _host(
        "system_energy_per_token",
        "J",
        "system_power",
        "energy of the whole machine per output token; informational unless named",
    ),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in ALL}


def shown_as(metric: Metric, against: str | None) -> Metric:
    """Return how a value of *metric* is shown: against another run it is the ratio of the two, 0.98x, or a difference.

    Differences are those of relative changes and of pass rates.
    """
    if against is None or metric.relative or metric.pass_rate:
        return metric
    return replace(BY_NAME["throughput_ratio"], higher_is_better=metric.higher_is_better)


PASS_RATES: dict[str, PassRate] = {metric.name: metric.pass_rate for metric in ALL if metric.pass_rate}
"""The pass rate that each difference of pass rates compares."""

MEASURED = (
    "throughput_ratio",
    "answer_throughput_ratio",
    "acceptance_rate",
    "ttft_delta",
    "decode_throughput",
    "ttft",
    "itl_p50",
    "itl_p95",
    "itl_p99",
)
"""Metrics that every workload's verdict shows, objective or not, where there are enough answers to bound them."""

RUN_TO_RUN = (
    *(metric.name for metric in ALL if metric.speed_ratio),
    "ttft_delta",
    "acceptance_rate",
    "acceptance_length",
    *PASS_RATES,
)
"""Metrics that two runs can be compared in: each is a ratio inside its own run, or counts no time at all."""

OTHER_NAMES = {
    "acceptance": "acceptance_rate",
    "errors": "error_rate",
    "failures": "error_rate",
    "free_memory": "memory_headroom",
    "inter_token_latency": "itl_p95",
    "itl": "itl_p95",
    "latency": "itl_p95",
    "memory": "memory_headroom",
    "memory_pressure": "memory_pressure_critical",
    "p95": "itl_p95",
    "p99": "itl_p99",
    "peak_memory": "footprint_peak",
    "peak_rss": "footprint_peak",
    "quality": "task_pass_delta",
    "rss": "footprint_peak",
    "speed": "decode_throughput",
    "speed_up": "throughput_ratio",
    "speedup": "throughput_ratio",
    "swap": "swap_growth",
    "swapins": "swapin_bytes",
    "swapouts": "swapout_bytes",
    "throttling": "throttle_time",
    "throughput": "decode_throughput",
    "time_to_first_token": "ttft",
    "tokens_per_second": "decode_throughput",
    "tps": "decode_throughput",
}
"""What people call a metric, where it is not like its name."""


def suggest_metric(name: str, names: Collection[str]) -> str:
    """Return a hint for an unknown metric."""
    metric = OTHER_NAMES.get(name.casefold().replace("-", "_").replace(" ", "_"))
    if metric in names and metric is not None:
        return f"did you mean '{metric}': {BY_NAME[metric].description}?"
    hint = did_you_mean(name.casefold(), names)
    every = len(names) == len(BY_NAME) and not hint.startswith("did you mean")
    return "gatekeeper metrics lists them all" if every else hint
