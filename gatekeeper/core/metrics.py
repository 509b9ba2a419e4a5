"""The one list of metrics an objective may name: unit, direction, unit of analysis, what it needs to see."""

from dataclasses import dataclass
from enum import Enum, Flag, auto


class Sight(Flag):
    """What a backend lets us see; an objective that needs more is refused before the run."""

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
    """The subject's processes are ours to measure."""
    PLAIN = auto()
    """Plain decoding can be had beside speculation."""
    LOGITS = auto()
    """The target's logits can be read, in a pass that is not timed."""
    COLD = auto()
    """Prompts meet no prompt cache, or each answer tells how much of its prompt was cached."""


class Per(Enum):
    """The independent unit: what may be resampled. Tokens inside one answer are not independent."""

    ANSWER = "answer"
    PAIR = "pair"
    WINDOW = "window"
    HOST = "host sample"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: how it is named in an SLO, what it means and what it takes to see it."""

    name: str
    unit: str
    higher_is_better: bool
    per: Per
    needs: Sight
    says: str
    against_plain: bool = False
    """A comparison of the candidate with plain decoding: it applies to speculating settings only."""
    speculative: bool = False
    """It has a meaning only while speculating."""
    quantile: float | None = None
    least: float | None = None
    """The smallest value it can take; a bound below it is a mistake."""
    most: float | None = None
    census: bool = False
    """A fact of a frozen set or of this run: lo = center = hi."""
    population: bool = True
    """Canaries carry it, and stand for other prompts: it can be bounded for those as well. Else it is of this run."""

    @property
    def host(self) -> bool:
        """Tell whether it belongs to the run rather than to a workload."""
        return self.per is Per.HOST

    @property
    def default_when(self) -> str:
        """Return `speculating` for what has no meaning in plain decoding, else `always`."""
        return "speculating" if self.against_plain or self.speculative else "always"

    def refuse(self, bound: str, threshold: float) -> None:
        """Raise ValueError for a bound that lies where no value of this metric can."""
        if self.least is not None and threshold < self.least:
            raise ValueError(f"{bound} = {threshold:g} is impossible: {self.name} is never below {self.least:g}")
        if self.most is not None and threshold > self.most:
            raise ValueError(f"{bound} = {threshold:g} is impossible: {self.name} is never above {self.most:g}")


_TIMES = Sight.ARRIVALS
_SPEED = Sight.ARRIVALS | Sight.TOKEN_COUNT
_PAIRED = _SPEED | Sight.PLAIN
_PAIRED_WHOLE = Sight.TOKEN_COUNT | Sight.PLAIN
"""Of whole answers, which a server that does not stream shows as well."""
_PAIRED_TEXT = Sight.TEXT | Sight.PLAIN


def _answers(name: str, unit: str, *, higher: bool, needs: Sight, says: str, **more: float | bool) -> Metric:
    return Metric(name, unit, higher, Per.ANSWER, needs, says, least=0.0, **more)  # type: ignore[arg-type]


def _pairs(name: str, *, higher: bool, needs: Sight, says: str, **more: float | bool | None) -> Metric:
    return Metric(name, "1", higher, Per.PAIR, needs, says, against_plain=True, **more)  # type: ignore[arg-type]


def _host(name: str, unit: str, *, higher: bool = False, says: str, least: float | None = 0.0) -> Metric:
    return Metric(name, unit, higher, Per.HOST, Sight.NOTHING, says, least=least, census=True, population=False)


def _itl(name: str, quantile: float) -> Metric:
    says = (
        f"{quantile:.0%} quantile of the token-normalised inter-token latency, pooled over answers: "
        "a burst of m tokens after a gap g counts m times g/m; an answer's first burst is left out"
    )
    return _answers(name, "s", higher=False, needs=_SPEED, says=says, quantile=quantile)


ALL: tuple[Metric, ...] = (
    _pairs(
        "throughput_ratio",
        higher=True,
        needs=_PAIRED,
        least=0.0,
        says="decode tokens per second, candidate over plain, paired per canary; geometric mean",
    ),
    _pairs(
        "answer_throughput_ratio",
        higher=True,
        needs=_PAIRED_WHOLE,
        least=0.0,
        says="output tokens over (end - sent), candidate over plain, paired per canary; geometric mean",
    ),
    _pairs(
        "system_throughput_ratio",
        higher=True,
        needs=_PAIRED_WHOLE,
        least=0.0,
        says="tokens over wall time at the promised concurrency, candidate over plain",
    ),
    _answers(
        "decode_throughput",
        "tok/s",
        higher=True,
        needs=_SPEED,
        quantile=0.5,
        says="tokens after the first arrival over the time since it; median over answers",
    ),
    _answers(
        "prefill_throughput",
        "tok/s",
        higher=True,
        needs=_SPEED | Sight.COLD,
        quantile=0.5,
        says="prompt tokens over the time to first token; median over answers",
    ),
    _answers(
        "ttft",
        "s",
        higher=False,
        needs=_TIMES | Sight.COLD,
        quantile=0.5,
        says="time from the request to its first non-empty content; median over answers",
    ),
    _pairs(
        "ttft_delta", higher=False, needs=_TIMES | Sight.PLAIN | Sight.COLD, says="relative change of the median TTFT"
    ),
    _answers(
        "acceptance_rate",
        "1",
        higher=True,
        needs=Sight.ROUNDS,
        quantile=0.5,
        speculative=True,
        most=1.0,
        says="accepted over drafted tokens; median over answers",
    ),
    _answers(
        "acceptance_length",
        "tok",
        higher=True,
        needs=Sight.ROUNDS,
        quantile=0.5,
        speculative=True,
        says="tokens per verify round, the target's own included; median over answers",
    ),
    Metric(
        "acceptance_window_min",
        "1",
        higher_is_better=True,
        per=Per.WINDOW,
        needs=Sight.ROUNDS,
        says="smallest, over three consecutive windows, of the largest acceptance of the three",
        speculative=True,
        least=0.0,
        most=1.0,
        census=True,
        population=False,
    ),
    _itl("itl_p50", 0.50),
    _itl("itl_p95", 0.95),
    _itl("itl_p99", 0.99),
    _answers(
        "round_gap_p95",
        "s",
        higher=False,
        needs=_TIMES,
        quantile=0.95,
        says="95% quantile of the gaps between bursts, as a reader sees them",
    ),
    _answers(
        "stall_p95",
        "s",
        higher=False,
        needs=_TIMES,
        quantile=0.95,
        says="95% quantile over answers of each answer's longest gap",
    ),
    _answers(
        "tpot_p95",
        "s",
        higher=False,
        needs=_SPEED,
        quantile=0.95,
        says="95% quantile over answers of the mean time per output token after the first",
    ),
    _pairs(
        "task_pass_delta",
        higher=True,
        needs=_PAIRED_TEXT,
        census=True,
        least=-1.0,
        most=1.0,
        says="share of canaries passed, candidate minus plain, on the frozen set",
    ),
    _pairs(
        "json_pass_delta",
        higher=True,
        needs=_PAIRED_TEXT,
        census=True,
        least=-1.0,
        most=1.0,
        says="the same for canaries with a JSON schema",
    ),
    _pairs(
        "tool_call_pass_delta",
        higher=True,
        needs=_PAIRED_TEXT,
        census=True,
        least=-1.0,
        most=1.0,
        says="the same for canaries with expected tool calls",
    ),
    _pairs(
        "token_agreement",
        higher=True,
        needs=_PAIRED_TEXT,
        census=True,
        least=0.0,
        most=1.0,
        says="share of canaries whose greedy tokens equal plain decoding's, or part at a near-tie of its logits",
    ),
    _pairs(
        "warm_cache_agreement",
        higher=True,
        needs=_PAIRED_TEXT,
        census=True,
        least=0.0,
        most=1.0,
        says="share of canaries whose greedy answers, repeated and in a later turn, equal plain decoding's "
        "with the prompt cache on, as deployed",
    ),
    _pairs(
        "first_tokens_p_value",
        higher=True,
        needs=_PAIRED_TEXT,
        census=True,
        least=0.0,
        most=1.0,
        population=False,
        says="p-value that both arms sample their first tokens from one distribution; a permutation test",
    ),
    Metric(
        "error_rate",
        "1",
        higher_is_better=False,
        per=Per.ANSWER,
        needs=Sight.NOTHING,
        says="share of answers that failed",
        least=0.0,
        most=1.0,
        census=True,
    ),
    Metric(
        "speculation_engaged",
        "1",
        higher_is_better=True,
        per=Per.ANSWER,
        needs=Sight.NOTHING,
        says="share of the candidate's answers in which the draft was seen to propose tokens",
        speculative=True,
        least=0.0,
        most=1.0,
        census=True,
    ),
    _pairs(
        "truncation_rate",
        higher=False,
        needs=Sight.NOTHING,
        census=True,
        least=0.0,
        most=1.0,
        says="share of canaries whose answer is cut short although plain decoding completes it",
    ),
    _host("memory_headroom", "B", higher=True, says="lowest 10 s median of the memory to be had without swapping"),
    _host("memory_pressure_critical", "s", says="longest continuous run of critical memory pressure"),
    _host("throttle_time", "s", says="total time in which the host was thermally throttled"),
    _host("swapin_bytes", "B", says="bytes swapped in during the soak"),
    _host("swapout_bytes", "B", says="bytes swapped out during the soak"),
    _host("swap_growth", "B", says="how much swap grew over the soak; 0 if it ever fell"),
    _host("footprint_peak", "B", says="largest memory footprint of the subject's process tree"),
    _host("footprint_growth", "B/s", least=None, says="slope of the subject's footprint over the soak (Theil-Sen)"),
    _host("fan_variation", "rpm", says="range of the fan speed over the soak; informational unless named"),
    _host("power_mean", "W", says="mean package power over the soak; informational unless named"),
    _host("energy_per_token", "J", says="package energy per output token; informational unless named"),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in ALL}

RATIOS = frozenset({"throughput_ratio", "answer_throughput_ratio", "system_throughput_ratio"})
"""Speed of the candidate against plain decoding; the soak's sentinels guard them against drift."""

PASS_DELTAS = {"task_pass_delta": None, "json_pass_delta": "json", "tool_call_pass_delta": "tool"}
"""Pass-rate metrics and the kind of expectation each one counts; None counts all."""
