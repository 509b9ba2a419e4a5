"""The SLO file: the system under test, its objectives and how they are proven; and the soak profile it names."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gatekeeper.core.canary import Tier
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.metrics import BY_NAME, RUN_TO_RUN, suggest_metric
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.subject import Address, InputTable, Subject
from gatekeeper.core.toml_file import located
from gatekeeper.core.toml_file import parse as parse_toml
from gatekeeper.core.units import UNITS_OF, ByteRate, Bytes, EventRate, Quantity, Seconds
from gatekeeper.core.units import parse as parse_quantity

CERTIFICATION_S = 600.0
"""Seconds; a shorter soak is a demo."""
CONFIDENCE = 0.95
"""Of each one-sided bound, where an SLO file names no other."""

Step = Literal["shrink-draft", "lighter-draft", "autoregressive"]
Bound = Literal["at_least", "at_most"]

CHOSEN = ("draft", "num_draft_tokens", "block_size", "window", "draft_n_min", "draft_p_min")
"""Knobs the sweep chooses a value for."""
CONDITIONS = ("temperature", "max_tokens", "thinking", "concurrency")
"""Knobs that are swept in both arms and reported, never chosen."""
AXES = ("temperature", "context", "concurrency", "max_tokens")
"""What a certified region may extend over; the last three are limits, which cover everything below them."""
DRAFT_LENGTHS = ("num_draft_tokens", "block_size")
"""Knobs that set the draft length, for the step `shrink-draft`."""
ADAPTIVE = "adaptive"
"""The value of a draft length that the server chooses by itself, round by round."""
LONGEST_S = 30 * 86400.0
"""Seconds of the longest soak, and of the longest time inside one."""
MOST_TOKENS = 10_000_000
"""The largest value of a knob that counts tokens; no model reads as many."""
MOST_VALUES = 100
"""Of one knob in a sweep."""
DraftLength = Annotated[int, Field(ge=1, le=MOST_TOKENS)] | Literal["adaptive"]
TIER_PREFIX = "tier:"
"""Prefix of a name in the mix that stands for every workload of a tier."""


class Host(InputTable):
    """The host that the SLO is for; on another host the verdict is unproven."""

    chip: str | None = Field(default=None, description="as the system names it, e.g. Apple M4")
    memory_gb: float | None = Field(default=None, gt=0)
    os: str | None = Field(default=None, description="prefix of the OS version")
    power: Literal["ac", "any"] = "any"


class Sampling(InputTable):
    """How tokens are drawn."""

    temperature: float = Field(default=0.0, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int = 7
    max_tokens: int = Field(default=256, ge=1, le=MOST_TOKENS)
    thinking: bool | None = Field(
        default=None, description="reason before the answer; unset: the default of the model's template"
    )
    distribution_check: bool = Field(
        default=False, description="above temperature 0: test whether both arms sample the first tokens alike"
    )


class Workload(InputTable):
    """One class of prompts, with a verdict of its own."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    tier: Tier = "short"
    canaries: str = Field(min_length=1, description="name of a canary set, e.g. json, or a file relative to this one")
    first: int | None = Field(default=None, ge=1, description="use only the first N canaries of the file")
    context: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="lengthen each prompt to about this many tokens, with text made from a seed",
    )
    speculation: Literal["required", "optional"] = "required"


class ChosenKnobs(InputTable):
    """One value of each knob that the sweep chooses; without a draft it is plain decoding."""

    draft: str | None = None
    num_draft_tokens: DraftLength | None = None
    block_size: DraftLength | None = None
    window: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    draft_n_min: int | None = Field(default=None, ge=0, le=MOST_TOKENS)
    draft_p_min: float | None = Field(default=None, ge=0, le=1)


class Knobs(ChosenKnobs):
    """One value of each knob."""

    temperature: float | None = Field(default=None, ge=0, le=100)
    max_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    thinking: bool | None = None
    concurrency: int | None = Field(default=None, ge=1, le=64)


class Sweep(InputTable):
    """Which knobs are swept, over which values."""

    design: Literal["one-at-a-time", "grid"] = "one-at-a-time"
    repeats: int = Field(default=3, ge=1, le=1000)
    max_runs: int = Field(default=200, ge=1, le=10_000)
    budget: int = Field(default=400, ge=1, le=100_000, description="answers per arm and workload, at most")
    stop: Literal["early", "never"] = Field(
        default="early", description="early: stop testing a setting once its answers decide"
    )
    warmups: int = Field(default=1, ge=0, le=1000, description="unmeasured answers before each block")
    draft: tuple[str, ...] = ()
    num_draft_tokens: tuple[int | Literal["adaptive"], ...] = ()
    block_size: tuple[int | Literal["adaptive"], ...] = ()
    window: tuple[int, ...] = ()
    draft_n_min: tuple[int, ...] = ()
    draft_p_min: tuple[float, ...] = ()
    temperature: tuple[float, ...] = ()
    max_tokens: tuple[int, ...] = ()
    thinking: tuple[bool, ...] = ()
    concurrency: tuple[int, ...] = ()
    default: Knobs = Knobs()

    @field_validator(*CHOSEN, *CONDITIONS, mode="before")
    @classmethod
    def _listed(cls, values: object) -> object:
        """Take one value for a list of it."""
        return values if isinstance(values, tuple | list | dict) else (values,)

    @field_validator(*CHOSEN, *CONDITIONS)
    @classmethod
    def _sane(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError("a value is listed twice\nremove one of them")
        if len(values) > MOST_VALUES:
            raise ValueError(f"{len(values)} values; a sweep takes up to {MOST_VALUES} of a knob\nremove some")
        for value in values:
            if not isinstance(value, bool | str) and not 0 <= value <= MOST_TOKENS:
                raise ValueError(f"{value} is {'negative' if value < 0 else f'more than {MOST_TOKENS}'}\nremove it")
        return values

    @field_validator("num_draft_tokens", "block_size", "concurrency", "max_tokens", "window")
    @classmethod
    def _positive(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if 0 in values:
            raise ValueError("must be greater than 0\nremove it: plain decoding is always measured as well")
        return values

    def values(self, knob: str) -> tuple[Any, ...]:
        """Return the values of *knob* to sweep; empty if it is not swept."""
        values: tuple[Any, ...] = getattr(self, knob)
        return values


class Region(InputTable):
    """Where around the certified point the setting is proven too: the axes, and the values to probe on each."""

    temperature: tuple[float, ...] = Field(default=(), description="values on both sides of the certified one")
    context: tuple[int, ...] = Field(default=(), description="tokens of a prompt; shorter canaries are lengthened")
    concurrency: tuple[int, ...] = Field(default=(), description="requests in flight at once")
    max_tokens: tuple[int, ...] = Field(default=(), description="limits of an answer's tokens")
    monotone: tuple[Literal["temperature", "context", "concurrency", "max_tokens"], ...] = Field(
        default=(), description="axes declared to get worse with each value away from the certified one: bisected"
    )
    canaries: int = Field(default=24, ge=8, le=1000, description="canaries of each workload at each point, at most")
    repeats: int = Field(default=2, ge=1, le=100, description="answers per arm to each of them, at most")

    @field_validator(*AXES)
    @classmethod
    def _ordered(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(after <= before for before, after in pairwise(values)):
            raise ValueError("the values must rise from one to the next\nsort them, and remove what is listed twice")
        if len(values) > MOST_VALUES:
            raise ValueError(f"{len(values)} values; an axis takes up to {MOST_VALUES}\nremove some")
        return values

    @model_validator(mode="after")
    def _within_limits(self) -> "Region":
        lowest = {"temperature": 0.0, "context": 1, "concurrency": 1, "max_tokens": 1}
        highest = {"temperature": 100.0, "context": 1_000_000, "concurrency": 64, "max_tokens": MOST_TOKENS}
        for axis in AXES:
            for value in self.values(axis):
                if not lowest[axis] <= value <= highest[axis]:
                    message = f"{value:g} is not from {lowest[axis]:g} to {highest[axis]:g}\nremove it"
                    raise located((axis,), message)
        for number, axis in enumerate(self.monotone):
            if not self.values(axis) or axis in self.monotone[:number]:
                raise located(("monotone",), f"'{axis}' is no axis with values, or is listed twice\nremove it")
        return self

    def values(self, axis: str) -> tuple[float, ...]:
        """Return the values to probe on *axis*, rising; empty if the region does not extend over it."""
        values: tuple[float, ...] = getattr(self, axis)
        return values

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the axes that it names."""
        return tuple(axis for axis in AXES if self.values(axis))


class Soak(InputTable):
    """How long and under which load the choice is proven."""

    duration: Seconds = Field(default=600.0, gt=0, le=LONGEST_S)
    max_duration: Seconds = Field(default=3600.0, gt=0, le=LONGEST_S)
    until: Literal["decided", "duration"] | None = Field(
        default=None,
        description="decided: continue up to max_duration while a required workload is open; the default from 600 s on",
    )
    window: Seconds | None = Field(
        default=None, ge=0.001, le=LONGEST_S, description="acceptance windows; default duration / 5"
    )
    profile: str = "steady"
    concurrency: int = Field(default=1, ge=1, le=64)
    sentinel_share: float = Field(default=0.2, gt=0, le=0.5)
    sentinel_drift: float = Field(default=0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _ordered(self) -> "Soak":
        if "max_duration" not in self.model_fields_set and self.max_duration < self.duration:
            object.__setattr__(self, "max_duration", self.duration)
        if self.max_duration < self.duration:
            raise ValueError("max_duration is shorter than duration\nset max_duration to duration or more")
        return self

    @property
    def ends(self) -> Literal["decided", "duration"]:
        """Return when it ends; without `until`, a soak too short for a certificate stays as short as it is."""
        return self.until or ("decided" if self.duration >= CERTIFICATION_S else "duration")

    @property
    def window_s(self) -> float:
        """Return the length of an acceptance window in seconds."""
        return self.window if self.window is not None else self.duration / 5


class Fallback(InputTable):
    """The fallback ladder: the steps a workload goes down when an objective fails."""

    ladder: tuple[Step, ...] = ("shrink-draft", "lighter-draft", "autoregressive")

    @field_validator("ladder")
    @classmethod
    def _each_once(cls, ladder: tuple[Step, ...]) -> tuple[Step, ...]:
        if len(set(ladder)) != len(ladder):
            raise ValueError("a step is listed twice")
        if "autoregressive" in ladder and ladder[-1] != "autoregressive":
            raise ValueError("autoregressive must be the last step: nothing follows plain decoding")
        return ladder


class Promote(InputTable):
    """How long a certificate is valid."""

    valid_for: Seconds = Field(default=30 * 86400.0, gt=0, le=3650 * 86400.0)


class Telemetry(InputTable):
    """Where OpenTelemetry data is sent, and how much of it."""

    endpoint: Address | None = Field(
        default=None, min_length=1, description="a collector, e.g. http://127.0.0.1:4318; unset: the OTEL_* variables"
    )
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    headers_env: str | None = Field(
        default=None, min_length=1, description="name of the environment variable with name=value,name=value"
    )
    rounds: bool = Field(default=False, description="every verify round as an event of its request's span")
    timeout: Seconds = Field(default=10.0, gt=0, le=120, description="longest time one export may take")

    @model_validator(mode="after")
    def _somewhere(self) -> "Telemetry":
        if self.endpoint is None and self.model_fields_set & {"protocol", "headers_env"}:
            raise ValueError("protocol and headers_env need an endpoint\nset endpoint, or remove them")
        return self


class MetricBound(InputTable):
    """One bound on a metric, for some workloads or for all: an objective, or a guard."""

    METRICS: ClassVar[Mapping[str, Metric]] = BY_NAME
    UNKNOWN: ClassVar[str] = "unknown metric"

    metric: str
    at_least: Quantity | None = None
    at_most: Quantity | None = None
    workloads: tuple[str, ...] = ()

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric not in cls.METRICS:
            raise ValueError(f"{cls.UNKNOWN} '{metric}'\n{suggest_metric(metric, cls.METRICS)}")
        return metric

    @field_validator("at_least", "at_most", mode="before")
    @classmethod
    def _in_its_unit(cls, written: object, validation: ValidationInfo) -> object:
        metric = cls.METRICS.get(validation.data.get("metric", ""))
        return parse_quantity(written, UNITS_OF[metric.unit]) if metric and isinstance(written, str) else written

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            kind = type(self).__name__.lower()
            problem, hint = "both are set", "remove one; a range takes two of them with one bound each"
            if self.at_least is None:
                bound = "at_least" if self.of.higher_is_better else "at_most"
                problem, hint = (
                    "neither is set",
                    f"add {bound} = …, the {'least' if bound == 'at_least' else 'most'} allowed",
                )
            raise ValueError(f"{kind} on '{self.metric}': set exactly one of at_least, at_most: {problem}\n{hint}")
        return self

    def check_possible(self, owner: str) -> None:
        """Raise ValueError for a bound out of the metric's range, and for workloads on a metric of the *owner*."""
        self.of.reject_impossible(self.bound, self.threshold)
        if self.of.host and self.workloads:
            raise ValueError(f"{self.metric} is measured for the whole {owner}, not per workload\nremove `workloads`")

    @property
    def of(self) -> Metric:
        """Return the metric that is bounded."""
        return self.METRICS[self.metric]

    @property
    def bound(self) -> Bound:
        """Return `at_least` or `at_most`."""
        return "at_least" if self.at_least is not None else "at_most"

    @property
    def threshold(self) -> float:
        """Return the bound in base units."""
        value = self.at_least if self.at_least is not None else self.at_most
        return float(value) if value is not None else 0.0

    def applies_to(self, workload: str) -> bool:
        """Return whether it applies to *workload*; without names it applies to all."""
        return not self.workloads or workload in self.workloads


class Objective(MetricBound):
    """One objective: a metric, one bound, and the reason for it."""

    when: Literal["speculating", "always"] | None = None
    scope: Literal["frozen", "population"] = "frozen"
    source: Literal["ours", "claims", "timing"] = Field(
        default="ours",
        alias="from",
        description="whose count of rounds: ours; claims: the server's; timing: inferred from gaps between arrivals",
    )
    or_with: Literal["warm-up"] | None = Field(
        default=None,
        description="of ttft_delta: it also passes if a warmed drafting request keeps the bound against plain decoding "
        "after a pause; policy.toml then requires the warm-up",
    )
    against: Literal["certified"] | None = Field(
        default=None,
        description="certified: the bound is on this run over the last certified run of the SLO, on the same canaries",
    )
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _possible(self) -> "Objective":
        if self.against is not None:
            self._check_comparable()
            return self
        self.check_possible("run")
        if self.source == "timing" and not self.metric.startswith("acceptance_"):
            raise ValueError(f"{self.metric} is no acceptance, which timing can show\nremove `from`")
        if self.scope == "population" and not self.of.population:
            raise ValueError(f"{self.metric} describes this run, not a population of prompts\nremove `scope`")
        if self.when == "always" and self.of.default_when == "speculating":
            raise ValueError(f"{self.metric} is not defined for plain decoding\nremove `when`")
        if self.or_with is not None and (self.metric, self.bound) != ("ttft_delta", "at_most"):
            raise ValueError(
                "a warm-up is another way to keep at_most on ttft_delta, and of nothing else\nremove `or_with`"
            )
        return self

    def _check_comparable(self) -> None:
        """Raise ValueError for an objective against the certified run that two runs cannot show."""
        if self.metric not in RUN_TO_RUN:
            hint = f"one of {', '.join(RUN_TO_RUN)}; absolute times need both versions in one run: gatekeeper versus"
            raise ValueError(f"{self.metric} cannot be compared with the certified run\n{hint}")
        if self.scope != "frozen" or self.source == "timing" or self.or_with is not None or self.when == "always":
            raise ValueError(
                'against = "certified" compares the canaries of two runs while speculating\n'
                'remove `scope`, `from = "timing"`, `or_with` and `when`'
            )
        if self.of.pass_rate is not None:
            self.check_possible("run")
        elif not self.of.relative and self.threshold <= 0:
            raise ValueError(
                "this bound is a ratio of two runs and must be greater than 0\nfor example at_least = 0.97"
            )

    @property
    def beyond_canaries(self) -> bool:
        """Return whether an estimate must hold for prompts like the canaries: settings compete in no count."""
        return self.scope == "population" and not self.of.counted

    @property
    def applies_when(self) -> str:
        """Return `speculating` or `always`."""
        return self.when or self.of.default_when


class Slo(InputTable):
    """The whole file."""

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    why: str = ""
    confidence: float = Field(default=CONFIDENCE, gt=0.5, lt=1)
    host: Host = Host()
    subject: Subject
    max_duration: Seconds | None = Field(
        default=None, gt=0, description="end a command after this time, whatever the system does; --resume continues it"
    )
    sampling: Sampling = Sampling()
    workload: tuple[Workload, ...] = Field(min_length=1, max_length=100)
    sweep: Sweep = Sweep()
    soak: Soak = Soak()
    region: Region = Region()
    fallback: Fallback = Fallback()
    promote: Promote = Promote()
    telemetry: Telemetry = Telemetry()
    objective: tuple[Objective, ...] = Field(min_length=1, max_length=1000)

    @field_validator("workload")
    @classmethod
    def _distinct(cls, workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
        first: dict[str, int] = {}
        for number, workload in enumerate(workloads):
            if (earlier := first.setdefault(workload.name, number)) != number:
                clash = f"'{workload.name}' is the name of workload[{earlier + 1}] already"
                message = f"{clash}: two workloads have the same name"
                raise located(("workload", number, "name"), f"{message}\ngive each workload a name of its own")
        return workloads

    @model_validator(mode="after")
    def _names_exist(self) -> "Slo":
        names = [workload.name for workload in self.workload]
        for number, objective in enumerate(self.objective):
            for name in objective.workloads:
                if name not in names:
                    message = f"unknown workload '{name}'\n{did_you_mean(name, names)}"
                    raise located(("objective", number, "workloads"), message)
        default = [self.sweep.default.draft] if self.sweep.default.draft else []
        drafts_by_place = [(["draft"], self.sweep.draft), (["default", "draft"], default)]
        for where, drafts in drafts_by_place:
            for draft in drafts:
                if draft not in self.subject.drafts:
                    hint = (
                        did_you_mean(draft, self.subject.drafts) if self.subject.drafts else "add it to subject.drafts"
                    )
                    raise located(["sweep", *where], f"'{draft}' is not one of subject.drafts\n{hint}")
        return self

    def objectives_for(self, workload: str, *, speculating: bool) -> tuple[Objective, ...]:
        """Return the objectives that apply to *workload* while it speculates or not.

        Those on the host and those against the certified run are not among them.
        """
        return tuple(
            objective
            for objective in self.objective
            if not objective.of.host
            and objective.against is None
            and objective.applies_to(workload)
            and (speculating or objective.applies_when == "always")
        )

    def against_certified(self, workload: str) -> tuple[Objective, ...]:
        """Return the objectives of a speculating *workload* against the certified run."""
        return tuple(
            objective
            for objective in self.objective
            if objective.against is not None and objective.applies_to(workload)
        )

    @property
    def host_objectives(self) -> tuple[Objective, ...]:
        """Return the objectives on the host."""
        return tuple(objective for objective in self.objective if objective.of.host)


class Background(InputTable):
    """A reproducible desktop load during the soak."""

    memory: Bytes = Field(default=0.0, ge=0, description="memory to allocate and touch")
    cpu: float = Field(default=0.0, ge=0, le=10_000, description="cores to keep busy; 0.5 is half a core")
    disk_read: ByteRate = Field(default=0.0, ge=0, description="rate of reads from disk")


class Profile(InputTable):
    """The content of soak/profiles/NAME.toml."""

    schema_: Literal[1] = Field(alias="schema")
    name: str
    why: str = ""
    mix: dict[str, float] = Field(
        default={"*": 1.0}, description="weight per workload or per tier:NAME; * stands for all others"
    )
    arrival: Literal["closed", "open"] = "closed"
    rate: EventRate | None = Field(default=None, gt=0, le=1e6, description="requests per second of an open profile")
    idle: Seconds = Field(default=0.0, ge=0, le=LONGEST_S, description="pause after each answer")
    background: Background = Background()

    @model_validator(mode="after")
    def _open_has_rate(self) -> "Profile":
        if (self.arrival == "open") != (self.rate is not None):
            raise ValueError('set rate together with arrival = "open", and only then, e.g. rate = "0.5 /s"')
        if not self.mix or any(weight < 0 for weight in self.mix.values()) or not any(self.mix.values()):
            raise ValueError("mix needs at least one positive weight and no negative weights")
        return self

    def weight(self, workload: str, tier: str) -> float:
        """Return the weight of a workload in the mix: its own, or else its tier's, or else the rest's."""
        return self.mix.get(workload, self.mix.get(f"{TIER_PREFIX}{tier}", self.mix.get("*", 0.0)))

    @property
    def tiers(self) -> tuple[str, ...]:
        """Return the tiers that the mix names."""
        return tuple(name.removeprefix(TIER_PREFIX) for name in self.mix if name.startswith(TIER_PREFIX))


def parse(text: str, name: str, *, stored: bool = False) -> Slo:
    """Read an SLO file's *text*; raise InputError with *name*, line, key and the allowed values.

    A *stored* copy was read when its run began: an older gatekeeper took text for a number.
    """
    if not re.sub(r"(?m)#.*$", "", text).strip():
        raise InputError(
            f"{name}: line 1: the file is empty", hint=f"write one for this machine: gatekeeper init --force -o {name}"
        )
    return parse_toml(text, name, Slo, strict=not stored)
