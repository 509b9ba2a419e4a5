"""The SLO file as a whole, and its smaller tables."""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gatekeeper.core.canary import Tier
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.slo.objective import Objective
from gatekeeper.core.slo.soak_table import Soak
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.slo.sweep_table import MOST_TOKENS, Sweep
from gatekeeper.core.toml_file import InputTable, Seconds, locate_error
from gatekeeper.core.toml_file import parse as parse_toml

CONFIDENCE = 0.95
"""The confidence of each one-sided bound, where an SLO file names no other."""
VISIBLE_HARM = 0.4
"""The share of answers, where an SLO file names no other: 24 canaries find as much at temperature 0."""

Step = Literal["shrink-draft", "lighter-draft", "autoregressive"]


class Host(InputTable):
    """The host that the SLO is for; on another host the verdict is unproven."""

    chip: str | None = Field(default=None, description="as the system names it, e.g. Apple M4")
    memory_gb: float | None = Field(default=None, gt=0)
    os: str | None = Field(default=None, description="prefix of the OS version")
    power: Literal["ac", "any"] = "any"
    ambient_c: float | None = Field(
        default=None,
        ge=-50,
        le=60,
        description="degrees Celsius of the room as you declare them; shown on the page, compared with nothing",
    )


class Sampling(InputTable):
    """How tokens are drawn."""

    temperature: float = Field(default=0.0, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    seed: int = 7
    max_tokens: int = Field(default=256, ge=1, le=MOST_TOKENS)
    thinking: bool | None = Field(
        default=None, description="reason before the answer; unset: the default of the model's template"
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
        description="lengthen each prompt to about this many tokens",
    )
    speculation: Literal["required", "optional"] = "required"


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
        if self.endpoint is not None and self.protocol != "grpc" and not re.match(r"(?i)https?://.", self.endpoint):
            raise ValueError(f"endpoint {self.endpoint} is not an http address\nfor example http://127.0.0.1:4318")
        return self


class Slo(InputTable):
    """The whole file."""

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    why: str = ""
    confidence: float = Field(default=CONFIDENCE, gt=0.5, lt=1)
    visible_harm: float = Field(
        default=VISIBLE_HARM,
        gt=0,
        le=1,
        description="share of answers that drafting harms, at which the tests for degenerate answers and, above "
        "temperature 0, for other words must find it: with fewer canaries they prove nothing",
    )
    host: Host = Host()
    subject: Subject
    max_duration: Seconds | None = Field(
        default=None, gt=0, description="end a command after this time; --resume continues it"
    )
    sampling: Sampling = Sampling()
    workload: tuple[Workload, ...] = Field(min_length=1, max_length=100)
    sweep: Sweep = Sweep()
    soak: Soak = Soak()
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
                raise locate_error(("workload", number, "name"), f"{message}\ngive each workload a name of its own")
        return workloads

    @model_validator(mode="after")
    def _names_exist(self) -> "Slo":
        names = [workload.name for workload in self.workload]
        for number, objective in enumerate(self.objective):
            for name in objective.workloads:
                if name not in names:
                    message = f"unknown workload '{name}'\n{did_you_mean(name, names)}"
                    raise locate_error(("objective", number, "workloads"), message)
        default = [self.sweep.default.draft] if self.sweep.default.draft else []
        drafts_by_place = [(["draft"], self.sweep.draft), (["default", "draft"], default)]
        for where, drafts in drafts_by_place:
            for draft in drafts:
                if draft not in self.subject.drafts:
                    hint = (
                        did_you_mean(draft, self.subject.drafts) if self.subject.drafts else "add it to subject.drafts"
                    )
                    raise locate_error(["sweep", *where], f"'{draft}' is not one of subject.drafts\n{hint}")
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


def parse(text: str, name: str) -> Slo:
    """Read an SLO file's *text*; raise InputError with *name*, line, key and the allowed values."""
    if not re.sub(r"(?m)#.*$", "", text).strip():
        hint = f"write one for this machine: gatekeeper init --force -o {name}"
        raise InputError(f"{name}: line 1: the file is empty", hint=hint)
    return parse_toml(text, name, Slo, strict=True)
