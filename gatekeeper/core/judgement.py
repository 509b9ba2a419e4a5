"""What a verdict is made of: outcomes, estimates, checks and findings."""

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Annotated, Literal, Self

from pydantic import PlainSerializer, PlainValidator, model_serializer

from gatekeeper.core.document import IF_ANY, UNWRITTEN
from gatekeeper.core.errors import RESTORE_HINT
from gatekeeper.core.metrics import BY_NAME

AGAINST_CERTIFIED = "against the certified run: "
"""The start of a reason: the bound is on this run over the certified run."""


class Outcome(IntEnum):
    """Outcome of a check, ordered best to worst, so the worst of many is simply their maximum."""

    PASS = 0
    UNPROVEN = 1
    FAIL = 2

    @property
    def word(self) -> str:
        """Return the word written to verdict.json."""
        return self.name.lower()

    @classmethod
    def of_word(cls, word: object) -> "Outcome":
        """Return the outcome that verdict.json writes as *word*; raise ValueError for another one."""
        for outcome in cls:
            if outcome.word == word:
                return outcome
        raise ValueError(f"must be pass, unproven or fail, not {word!r}")


OutcomeWord = Annotated[Outcome, PlainSerializer(lambda outcome: outcome.word), PlainValidator(Outcome.of_word)]
"""An outcome that a document has as its word."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of several outcomes; unproven if there are none."""
    return max(outcomes, default=Outcome.UNPROVEN)


def round_figure(value: float) -> float:
    """Round to six significant digits, so that a bound compares and prints alike on every machine."""
    return float(f"{value:.6g}") if math.isfinite(value) else value


Rounded = Annotated[float, PlainSerializer(round_figure)]
"""A number that a document has with six significant digits."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with one-sided bounds; `notes` are shown with it."""

    center: float
    lo: float
    hi: float
    n: int
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    """The confidence of each bound alone; None for a value that was counted."""
    scope: Literal["frozen", "population"] | None = None
    """What the bounds are about: these canaries, or prompts like them; None for a value that was counted."""
    population: "Estimate | None" = None
    """Beside bounds for these canaries: those for prompts like them, for information."""
    shows: str = ""
    """What it shows where it misses its bound, in plain words, which lead the reason; empty: its figures say it."""

    def round_figures(self) -> "Estimate":
        """Return the estimate at the precision it is compared and written with."""
        population = self.population.round_figures() if self.population is not None else None
        return replace(
            self,
            center=round_figure(self.center),
            lo=round_figure(self.lo),
            hi=round_figure(self.hi),
            population=population,
        )

    def as_change(self) -> "Estimate":
        """Return the relative change that this ratio is."""
        population = self.population.as_change() if self.population is not None else None
        return replace(self, center=self.center - 1, lo=self.lo - 1, hi=self.hi - 1, population=population)

    @model_serializer
    def _write(self) -> dict[str, object]:
        return figures("center", self)


def fact(value: float, n: int, *notes: str) -> Estimate:
    """Return a value that was counted, not estimated: lo = center = hi."""
    return Estimate(value, value, value, n, notes)


@dataclass(frozen=True, slots=True)
class Missing:
    """No estimate, and the reason."""

    because: str
    n: Annotated[int, UNWRITTEN] = 0


@dataclass(frozen=True, slots=True)
class StillChanging(Missing):
    """No estimate, because the value still changed at the end: more time shows where it settles."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the records of a run do not suffice for a verdict, and what to do about it."""

    because: str
    advice: str = RESTORE_HINT
    next: str = "gatekeeper certify {slo}"
    """The next command; `{slo}` stands for the path of the SLO file."""


def omit_none(**values: object) -> dict[str, object]:
    """Return those of the *values* that are not None: the keys that a document has only where there is something."""
    return {name: value for name, value in values.items() if value is not None}


def figures(name: str, estimate: Estimate | Missing) -> dict[str, object]:
    """Return an estimate as verdict.json writes it, its centre under *name*; of a missing one, the reason."""
    if isinstance(estimate, Missing):
        return {name: None, "lo": None, "hi": None, "n": estimate.n, "because": estimate.because}
    near = estimate.round_figures()
    return {name: near.center, "lo": near.lo, "hi": near.hi, "n": near.n}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Both ends of an interval, None where one is not finite."""

    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One objective against what was measured."""

    metric: str
    bound: str
    """at_least | at_most"""
    threshold: float
    outcome: OutcomeWord
    """pass: the whole interval keeps the bound | fail: the whole interval breaks it | unproven"""
    center: float | None = None
    """The estimate, six significant digits; null: there is none."""
    lo: float | None = None
    """The lower end of its interval, one-sided at the SLO's confidence."""
    hi: float | None = None
    n: int = 0
    """Samples that the estimate rests on."""
    _: KW_ONLY
    unit: str
    """The unit of threshold, center, lo and hi: always a base unit."""
    because: str
    """The reason in words; may change between versions."""
    why: str
    """As the SLO says."""
    scope: Annotated[str | None, IF_ANY] = None
    """What the interval is about: these canaries (`frozen`) or prompts like them (`population`); None if counted."""
    population: Annotated[Bounds | None, IF_ANY] = None
    """Beside an interval for these canaries: the one for prompts like them, for information."""
    passed_with: Annotated[str | None, IF_ANY] = None
    """What the system needs in operation for this check to pass: `warm-up`; None where it needs nothing."""
    against: Annotated[str | None, IF_ANY] = None
    """`certified`: the bound is on this run over the certified run; None: on this run alone."""
    still_changing: Annotated[bool, UNWRITTEN] = False
    """What was measured still changed at the end of the soak."""

    @property
    def bare_reason(self) -> str:
        """Return the reason for a reader who sees beside it what the bound is relative to."""
        return self.because.removeprefix(AGAINST_CERTIFIED)


_WRONG, _FAILS, _MEMORY, _COOL, _LEAK = (
    BY_NAME[name].remedy
    for name in ("token_agreement", "error_rate", "memory_headroom", "throttle_time", "footprint_growth")
)
"""A finding about the same thing as a metric has the same remedy."""


class FindingKind(StrEnum):
    """Each kind of finding: its word in verdict.json, what was seen, and what to do."""

    means: str
    remedy: str

    def __new__(cls, word: str, means: str, remedy: str) -> Self:
        """Return the word, with what it means and what to do."""
        kind = str.__new__(cls, word)
        kind._value_, kind.means, kind.remedy = word, means, remedy
        return kind

    # fmt: off
    ACCEPTANCE_COLLAPSED = (
        "acceptance_collapsed", "from some answer on the draft's tokens are hardly accepted any more",
        "find out what the drafter loses over time; a restart of the server may restore it",
    )
    DRAFTED_FAILED = ("drafted_failed", "all answers with the draft failed, or most of the sweep's", _FAILS)
    ANSWERS_DIFFER = ("answers_differ", "greedy answers have other words than plain decoding's", _WRONG)
    BACKGROUND_BUSY = (
        "background_busy", "background jobs of the system used the processor", "wait until they have finished",
    )
    BUNDLED_FIRST_PIECE = (
        "bundled_first_piece", "answers begin with several pieces sent as one",
        "find out what holds the beginning of an answer back",
    )
    BUSY_MACHINE = (
        "busy_machine", "other programs used the processor, which widens intervals",
        "close them, or measure later",
    )
    CARRIED_OVER = (
        "carried_over", "acceptance depends on the request before",
        "find out what the drafter keeps of a request, such as an n-gram cache, and switch it off or serve it apart",
    )
    CLOCK_SET = ("clock_set", "the time of day was set back during the soak", "leave the clock alone during a run")
    CONTRADICTION = (
        "contradiction", "counts, texts and times of the same answers contradict each other",
        "do not rely on this server's counts; report to its developers what differs",
    )
    COUNTER_BACKWARDS = ("counter_backwards", "a counter of the host fell", "run the soak again")
    COUNTER_LIE = (
        "counter_lie",
        "counts of drafted and accepted tokens cannot be true",
        "do not rely on the server's counters; report them to its developers",
    )
    DAMAGED_RECORDS = (
        "damaged_records", "lines of a record file were damaged; they are left out", "check the disk; run again",
    )
    DRAFTING_NOT_SHOWN = (
        "drafting_not_shown",
        "the server does not show whether it drafts",
        "see what it shows: gatekeeper explain servers",
    )
    FIRST_ANSWER_FAILED = ("first_answer_failed", "the short request before the run failed", _FAILS)
    GPU_RESET = ("gpu_reset", "the GPU was reset during the soak", "update the system; run the soak again")
    HOST_RESTARTED = ("host_restarted", "the host was restarted or updated during the soak", "run the soak again")
    HOST_SLEPT = (
        "host_slept", "the host slept during the soak", "keep the lid open and prevent sleep, then run the soak again",
    )
    LENGTH_MISMATCH = (
        "length_mismatch", "answers of the two arms differ in length", "check for truncated answers or early stops",
    )
    LENGTH_SHIFT = (
        "length_shift", "above temperature 0, answers are longer or shorter than plain decoding's",
        "compare the sampling, the stop tokens and the chat template of both arms",
    )
    LOG_PROBABILITIES_NOT_SHOWN = (
        "log_probabilities_not_shown", "the server tells no log-probabilities, which its kind does",
        "see what it shows: gatekeeper explain servers",
    )
    LOW_POWER_MODE = (
        "low_power_mode", "the speeds apply to low-power mode only", "switch it off for the deployed mode",
    )
    MEMORY_EXHAUSTION = (
        "memory_exhaustion", "memory would be used up before the certificate expires", _LEAK,
    )
    MODEL_SWAPPED = (
        "model_swapped", "answers of one arm came from different models", "keep one model loaded in the server",
    )
    OOM_KILL = ("oom_kill", "processes were killed for lack of memory", _MEMORY)
    ON_BATTERY = ("on_battery", "the host ran on battery", 'connect the charger, or set power = "any"')
    ORDER_EFFECT = (
        "order_effect",
        "one arm is faster right after the other's answer to the same prompt",
        "switch off what one arm keeps from the other's answer",
    )
    OTHER_MODEL = ("other_model", "the two arms are served by different models", "serve the same target in both arms")
    PLAIN_SWINGS = (
        "plain_swings", "plain decoding was at times a quarter faster than at others",
        "cool the host and close other programs; speeds of their own apply to neither time",
    )
    POWER_LOST = (
        "power_lost", "the power source changed during the soak", "connect the charger, then run the soak again",
    )
    POWER_MODE_CHANGED = (
        "power_mode_changed", "the power mode changed during the soak", "keep one power mode and run the soak again",
    )
    QUANTISATION_MISMATCH = (
        "quantisation_mismatch", "draft and target are quantised differently", "try a draft quantised like the target",
    )
    REPLAYED = (
        "replayed",
        "repeats are answered faster in one arm only, as from a cache",
        "switch the server's answer cache off",
    )
    SILENT_SPECULATION = (
        "silent_speculation", "a draft is set, and proposes nothing", "check the server's log and both vocabularies",
    )
    SWAPPED_IN = ("swapped_in", "memory was read from swap, and none written", _MEMORY)
    SWAPPED_OUT = ("swapped_out", "memory was written to swap", _MEMORY)
    THERMAL_CONTRADICTION = ("thermal_contradiction", "no sensor reports throttling, but the GPU slowed down", _COOL)
    THERMALLY_DEGRADED = ("thermally_degraded", "the thermal level was 1 in some samples", _COOL)
    THERMALLY_THROTTLED = (
        "thermally_throttled", "the thermal level was 2 or more, or 1 on a Mac without a fan", _COOL
    )
    TRANSLATED = ("translated", "gatekeeper runs under Rosetta", "install a native Python")
    UNSTABLE_ARM = (
        "unstable_arm",
        "plain decoding is too unsteady to compare with",
        "close other programs, cool the host, and run again",
    )
    VIRTUAL_MAC = ("virtual_mac", "a virtual Mac: its sensors show no real machine", "certify on the physical machine")
    VIRTUAL_MACHINE = (
        "virtual_machine", "other guests share the processor, and sensors are missing", "certify on a physical machine",
    )
    VOCABULARY_PADDING = ("vocabulary_padding", "the vocabularies differ in padding alone", "")
    WARM_CACHE_CHANGES_ANSWERS = (
        "warm_cache_changes_answers",
        "greedy answers change with the prompt cache on, as deployed",
        "deploy with the prompt cache off, or decode plainly",
    )
    WARM_PROMPT = (
        "warm_prompt", "prompts were cached although the cache should be off", "switch the server's prompt cache off",
    )
    # fmt: on


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem a reader must know: what was seen, where, and what to do."""

    kind: str
    """A word that `gatekeeper explain` explains."""
    about: str
    detail: str
    advice: str = ""
    voids: Annotated[frozenset[str], UNWRITTEN] = field(default=frozenset(), compare=False)
    """Metrics that are unproven because of it."""

    @property
    def means(self) -> str:
        """Return what its kind says of the run."""
        return next((kind.means for kind in FindingKind if kind == self.kind), self.kind)
