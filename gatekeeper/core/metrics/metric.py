"""What a metric is: its name, unit, direction, what it takes to see it, its formula, and what to do where it fails."""

from dataclasses import dataclass
from enum import Enum, Flag, auto

from gatekeeper.core.units import percent, show, show_interval, show_times


class Sight(Flag):
    """What can be measured of a backend; an objective that needs more is refused before the run.

    JSON has the names of its members, sentences have their `words`.
    """

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
    REPLAY = auto()
    """Each answer says what was drafted in each round, and the target can read it again round by round."""
    WIDTHS = auto()
    """The target can read a plain answer in passes of one token and of several, which shows its numerics."""
    LOGPROBS = auto()
    """A plain answer can have the log-probabilities of the likeliest tokens, and a beginning read as a prompt too."""
    VERIFIED = auto()
    """A drafted answer can have the log-probabilities of the likeliest tokens in the passes that verified it."""

    @property
    def words(self) -> str:
        """Write what is seen for a sentence: how many tokens an answer has."""
        return ", ".join(_SIGHT_WORDS[flag] for flag in self)


_SIGHT_WORDS = {
    Sight.ARRIVALS: "when each piece of an answer arrives",
    Sight.TOKEN_COUNT: "how many tokens an answer has",
    Sight.TEXT: "the text of answers",
    Sight.TOKEN_IDS: "the tokens of answers",
    Sight.ROUNDS: "drafted and accepted tokens that can be counted",
    Sight.CLAIMED_ROUNDS: "counts of drafted and accepted tokens",
    Sight.MEMORY: "the memory of its processes",
    Sight.PLAIN: "plain decoding beside drafting",
    Sight.LOGITS: "the target's logits",
    Sight.COLD: "how much of a prompt came from a cache",
    Sight.FORCED: "the target's own tokens over a given answer",
    Sight.PROMPT_TIME: "how long a prompt was read",
    Sight.REPLAY: "what each round drafted",
    Sight.WIDTHS: "the numerics of wider passes",
    Sight.LOGPROBS: "log-probabilities of plain answers",
    Sight.VERIFIED: "log-probabilities of drafted answers",
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: how it is named in an SLO, what it means, how it is computed and what it takes to see it."""

    name: str
    unit: str
    higher_is_better: bool
    per: Per
    needs: Sight
    """What shows it."""
    description: str
    formula: str
    remedy: str
    """What to do where an objective on it fails."""
    or_needs: Sight | None = None
    """What shows it as well."""
    aliases: tuple[str, ...] = ()
    """What people call it, where that is not like its name."""
    base: str = ""
    """What is read from an answer; metrics with the same base differ only in their quantile."""
    quantile: float | None = None
    minimum: float | None = None
    """The smallest value it can take; a bound below it is a mistake."""
    maximum: float | None = None
    speed_ratio: bool = False
    """The candidate's speed over plain decoding's: unproven where that is unstable, or the ratio still changes."""
    relative: bool = False
    """A share of plain decoding's value: printed in percent, and two of them are subtracted."""
    pass_rate: PassRate | None = None
    """The right answers it counts, where it is a difference of pass rates."""
    every_canary: bool = False
    """It needs every canary of the frozen set in both arms."""
    from_rounds: bool = False
    """It is counted from verify rounds: it has a meaning only while speculating."""
    of_plain: bool = False
    """It is read from the plain arm alone, also where a draft is judged."""
    counted: bool = False
    """Counted, not estimated, on a frozen set or in this run: lo = center = hi."""
    population: bool = True
    """Canaries carry it and stand for other prompts, so it can be bounded for those as well."""
    watched: bool = False
    """A guard of `gatekeeper watch` may name it."""
    measured_by: str = ""
    """The follow-up of a soak that an objective on it needs, where the soak itself does not show it."""
    samples: tuple[str, ...] = ()
    """The sampled values of the host it can be computed from; any one of several suffices."""

    def find_missing_sight(self, sight: Sight) -> Sight:
        """Return what a backend lacks to show it; nothing where it shows it in one of two ways."""
        shown = self.or_needs is not None and not self.or_needs & ~sight
        return Sight.NOTHING if shown else self.needs & ~sight

    @property
    def host(self) -> bool:
        """Return whether it belongs to the run rather than to a workload."""
        return self.per is Per.HOST

    @property
    def against_plain(self) -> bool:
        """Return whether it compares the candidate with plain decoding, so that it applies to speculation only."""
        return self.per is Per.PAIR

    @property
    def run_to_run(self) -> bool:
        """Return whether two runs can be compared in it.

        It is a ratio inside its own run, or counts no time at all; or it is the speed of the plain arm, a loss of which
        every such ratio hides.
        """
        if self.measured_by:
            return False  # by a few answers, whose scatter from run to run is unknown
        counts_rounds = self.from_rounds and self.per is Per.ANSWER and not self.counted
        return self.speed_ratio or self.relative or self.pass_rate is not None or counts_rounds or self.of_plain

    @property
    def default_when(self) -> str:
        """Return `speculating` for what has no meaning in plain decoding, else `always`."""
        return "speculating" if self.against_plain or self.from_rounds else "always"

    def show(self, value: float) -> str:
        """Print a value of it for a person: 1.31x for a ratio of speeds, +14 % for a relative change, 42 ms."""
        if self.speed_ratio:
            return f"{show(value, self.unit)}x"
        return percent(value, "+.3g") if self.relative else show(value, self.unit)

    def show_interval(self, center: float, lo: float | None, hi: float | None) -> str:
        """Print a measured value with its bounds: 2.12x [2.08, 2.16], +14 % [+11, +17]; a counted one alone."""
        write = show_times if self.speed_ratio else self.show
        return show_interval(*("?" if end is None else write(end) for end in (center, lo, hi)))

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
