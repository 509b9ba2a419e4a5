"""policy.toml: what may be deployed, as `certify` writes it and a person edits it.

Its tables are the routes, each with what the soak measured of it; `[watch]` and `[[guard]]`, what is watched while a
route speculates; `[proxy]`, how live requests are sorted into workloads; `[conditions]` and `[[launch]]`, under what it
was certified, and by which commands.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from gatekeeper.core.canary import OPTIONS, Canary
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.metrics import WATCHED
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import ChosenKnobs, MetricBound, Step
from gatekeeper.core.toml_file import InputTable, Seconds
from gatekeeper.core.toml_file import parse as parse_toml

_PLAIN: Setting = (("draft", None),)


class MeasuredValue(InputTable):
    """A value as the soak measured it, with its interval at the SLO's confidence."""

    center: float
    lo: float
    hi: float
    n: int = Field(ge=0)


class MeasuredRoute(InputTable):
    """What the soak measured of a route: the reference where production runs no plain decoding."""

    throughput_ratio: MeasuredValue | None = None
    decode_throughput: MeasuredValue | None = None
    acceptance_rate: MeasuredValue | None = None
    canary_pass_rate: MeasuredValue | None = None
    json_pass_rate: MeasuredValue | None = None
    tool_call_pass_rate: MeasuredValue | None = None


class LadderStep(ChosenKnobs):
    """One step of the fallback ladder, below the certified setting."""

    step: Step


class CertifiedRequest(InputTable):
    """What one or more certified canaries asked for, beside the sampling; a field that is left out was not sent.

    Of tools only their presence counts, of a response format and of a choice of a tool the type.
    """

    thinking: bool | None = Field(default=None, description="as it was sent to the model's template")
    tools: bool = Field(default=False, description="it offered tools; which ones does not count")
    response_format: dict[str, Any] | None = Field(default=None, description="its type; schemas are left out")
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: tuple[str, ...] | None = None
    guided_grammar: str | None = None
    tool_choice: str | dict[str, Any] | None = Field(default=None, description="a tool's name is left out")
    stop: str | tuple[str, ...] | None = None
    logit_bias: dict[str, float] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None

    @classmethod
    def of_canary(cls, canary: Canary, *, thinking: bool | None) -> "CertifiedRequest":
        """Return what the request of a canary asks for; *thinking* is what it is sent with."""
        options = {name: shape_of(name, value) for name, value in canary.options.items()}
        sent = {name: value for name, value in options.items() if value is not None}
        return cls(thinking=thinking, tools=bool(canary.tools), **sent)

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that it set, as a canary has them."""
        values = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value is not None}


def shape_of(name: str, value: Any) -> Any:
    """Return what of a field's value is compared; None where it is the same as no such field.

    A schema, a tool and a tool's name may be others than the certified ones: which they are was no part of the
    certificate, that there is one was.
    """
    if name == "tools":
        return True if value else None
    if name in {"stop", "logit_bias"} and value in ([], {}, ()):
        return None
    if name == "stop" and isinstance(value, str):
        return [value]
    if name in {"json_schema", "guided_json"} and value is not None:  # the schema itself
        return {}
    return _shape_of_table(name, value) if isinstance(value, Mapping) else value


def _shape_of_table(name: str, table: Mapping[str, Any]) -> Any:
    """Return what of a table is compared: the type of a choice or a format, and that there is a schema."""
    if name == "tool_choice":
        return {"type": table.get("type")}
    if name == "format":  # Ollama's: the schema itself
        return {}
    if name == "structured_outputs":
        return {key: {} if key == "json" else value for key, value in table.items()}
    if name == "response_format":
        schema: dict[str, Any] = {"json_schema": {"schema": {}}, "type": table.get("type")}
        shape = {key: schema.get(key, {}) for key in table}
        return None if shape == {"type": "text"} else shape
    return table


class Route(InputTable):
    """What the policy says for one workload."""

    workload: str = Field(min_length=1)
    speculation: bool
    because: str = ""
    setting: ChosenKnobs = ChosenKnobs()
    longest_prompt: int | None = Field(default=None, ge=1, description="tokens of the longest certified prompt")
    longest_format: int | None = Field(
        default=None, ge=1, description="bytes of the longest certified response format, as JSON"
    )
    models: tuple[str, ...] = Field(default=(), description="names of the certified model in requests")
    warm_up: bool = Field(
        default=False,
        description="the first token kept its bound with a warm-up only: who serves sends a short request after each "
        "start, and before a user's request after a pause",
    )
    warm_up_after: Seconds | None = Field(default=None, gt=0, description="the shortest pause that needs one")
    max_concurrency: int | None = Field(
        default=None, ge=1, description="requests in flight up to which it may speculate"
    )
    ladder: tuple[LadderStep, ...] = Field(
        default=(), description="steps below the setting; plain decoding follows the last one"
    )
    request: tuple[CertifiedRequest, ...] = Field(
        default=(), description="what the certified requests asked for: a proxy drafts for no other ones"
    )
    measured: MeasuredRoute = MeasuredRoute()

    @model_validator(mode="after")
    def _drafts(self) -> "Route":
        if self.speculation and self.setting.draft is None:
            raise ValueError(f"route '{self.workload}' has speculation = true and no draft\nset setting.draft")
        if any(lower.draft is None for lower in self.ladder):
            raise ValueError("a ladder step without a draft is plain decoding, which ends every ladder\nremove it")
        return self

    @property
    def steps(self) -> tuple[Setting, ...]:
        """Return the settings from the certified one down; the last one is plain decoding."""
        if not self.speculation:
            return (_PLAIN,)
        return (*(setting_of(step) for step in (self.setting, *self.ladder)), _PLAIN)


def setting_of(knobs: ChosenKnobs) -> Setting:
    """Return the knobs that are set, as the setting of a request."""
    written = knobs.model_dump(include=set(ChosenKnobs.model_fields), exclude_none=True)
    return tuple(sorted(written.items()))


class Guard(MetricBound):
    """One bound to watch while a route speculates; violated for longer than `for`, the route goes one step down."""

    METRICS: ClassVar[Mapping[str, Metric]] = WATCHED
    UNKNOWN: ClassVar[str] = "guards cannot watch the metric"

    for_: Seconds = Field(alias="for", ge=0, description="how long the bound must be violated")
    over: Seconds | None = Field(default=None, gt=0, description="the time span that is judged; default [watch] window")
    missing_for: Seconds | None = Field(
        default=None, gt=0, description="how long data may be missing; default [watch] missing_for"
    )
    why: str = ""

    @model_validator(mode="after")
    def _possible(self) -> "Guard":
        if self.bound != ("at_least" if self.of.higher_is_better else "at_most"):
            wrong, right = self.bound, "at_most" if self.bound == "at_least" else "at_least"
            better = "higher" if self.of.higher_is_better else "lower"
            raise ValueError(f"{self.metric} is better when {better}, so {wrong} is no guard\nwrite {right}")
        self.check_possible("host")
        return self

    @property
    def name(self) -> str:
        """Return a name that is unique among the guards of a workload."""
        return f"{self.metric} {self.bound} {self.threshold:g}"


class Watch(InputTable):
    """How often `gatekeeper watch` measures, and how slowly it turns speculation on again."""

    interval: Seconds = Field(default=60.0, ge=0.001, description="time between two measurements")
    duty: float = Field(default=0.02, gt=0, le=0.5, description="largest share of the time spent on canaries")
    canaries: int = Field(default=4, ge=1, description="canaries sent per measurement and workload, at most")
    window: Seconds = Field(default=86400.0, gt=0, description="older answers are not judged")
    missing_for: Seconds = Field(default=3600.0, gt=0, description="without data for longer, speculation is turned off")
    quiet_for: Seconds = Field(
        default=3600.0, gt=0, description="time without violations before one step up; doubled after each relapse"
    )
    quiet_most: Seconds = Field(default=86400.0, gt=0, description="longest quiet_for after doubling")
    false_alarms: float = Field(
        default=0.05, ge=1e-6, lt=0.5, description="chance of a wrong step down per route over the policy's life"
    )
    slack: float = Field(
        default=0.15, ge=0, lt=1, description="a slowdown up to this share is ignored where there is no plain decoding"
    )
    on_change: tuple[tuple[str, ...], ...] = Field(default=(), description="commands to run when a route changes")

    @field_validator("on_change")
    @classmethod
    def _not_empty(cls, commands: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if any(not command or not command[0] for command in commands):
            raise ValueError(
                'each command must be a list that starts with a program\nwrite [["/path/to/program", "word"]]'
            )
        return commands

    @model_validator(mode="after")
    def _check_order(self) -> "Watch":
        if self.quiet_most < self.quiet_for:
            raise ValueError("quiet_most is shorter than quiet_for")
        if self.missing_for < self.interval:
            raise ValueError("missing_for is shorter than interval: every measurement would find its data missing")
        return self


_DIGEST = r"^[0-9a-f]{16,64}$"


def _check_digest(value: object) -> object:
    """Return a digest in lower case; refuse another text without showing it: it may be the key itself."""
    if isinstance(value, str) and re.match(_DIGEST, value.lower()) is None:
        raise ValueError('not 16 to 64 hexadecimal digits of a SHA-256\nprintf %s "$TEXT" | shasum -a 256')
    return value.lower() if isinstance(value, str) else value


Digest = Annotated[str, Field(pattern=_DIGEST), BeforeValidator(_check_digest)]
"""The first 16 to 64 hexadecimal digits of a SHA-256."""
WORKLOAD_HEADER = "x-gatekeeper-workload"
"""The header of a request that names its workload, which wins over every rule; the proxy's answers carry it, too."""
RESPONSE_FORMATS = ("text", "json_object", "json_schema", "grammar")


class ProxyRule(InputTable):
    """A request that has every property named here belongs to `workload`; the first rule that fits decides."""

    workload: str = Field(min_length=1)
    path: str | None = Field(default=None, description="path of the request; * and ? are wildcards")
    model: str | None = Field(default=None, description="`model` of the request; * and ? are wildcards")
    api_key_sha256: Digest | None = Field(default=None, description="digest of the key in the Authorization header")
    tools: bool | None = Field(default=None, description="whether the request offers tools")
    thinking: bool | None = Field(
        default=None, description="what the request says of thinking; one that says nothing fits neither"
    )
    penalties: bool | None = Field(default=None, description="whether the request sets a penalty that changes answers")
    response_format: Literal["text", "json_object", "json_schema", "grammar"] | None = None
    prompt_chars_at_least: int | None = Field(default=None, ge=1, description="characters of all messages")
    prompt_chars_at_most: int | None = Field(default=None, ge=0)
    system_sha256: Digest | None = Field(default=None, description="digest of the first system message's text")

    @model_validator(mode="after")
    def _has_condition(self) -> "ProxyRule":
        if not self.model_fields_set - {"workload"}:
            raise ValueError(
                "a rule without a condition fits every request\nname the workload of all others as `default` of [proxy]"
            )
        return self


class Proxy(InputTable):
    """How `gatekeeper proxy` sorts requests into workloads, and how it proves the benefit on them."""

    default: str | None = Field(
        default=None, description="workload of a request that no rule fits [default: none, plain decoding]"
    )
    holdout: float = Field(
        default=0.02, ge=0.01, le=0.05, description="share of the speculating conversations that is decoded plainly"
    )
    speedup_at_least: float = Field(
        default=1.0,
        gt=0,
        description="a speed over plain decoding's proven lower turns a route down",
    )
    resume_at: float = Field(
        default=0.75, gt=0, lt=1, description="share of max_concurrency at which requests speculate again"
    )
    resume_after: Seconds = Field(default=5.0, ge=0, description="time for which it must have been that low")
    rule: tuple[ProxyRule, ...] = ()


def digest(text: str) -> str:
    """Return the digest that a rule compares with."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class CertifiedSampling(InputTable):
    """How the certified answers were sampled; a value that is left out was the server's default."""

    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    thinking: bool | None = None


class Conditions(InputTable):
    """What was true of every certified answer: the certificate holds under these conditions alone."""

    backend: str
    target: str
    prompt_cache: Literal["off", "on", "unknown"]
    concurrency: int = Field(ge=1, description="requests in flight at once, at most")
    longest_prompt: int | None = Field(default=None, ge=1, description="tokens of the longest certified prompt")
    max_tokens: int = Field(ge=1, description="tokens of the longest answer that a request may ask for")
    sampling: CertifiedSampling = CertifiedSampling()
    request: dict[str, Any] = Field(default={}, description="fields that every request must carry")
    url: Address | None = Field(default=None, description="the running server that was certified")


class Launch(InputTable):
    """How one certified server was started: with this command the certificate holds."""

    workloads: tuple[str, ...] = ()
    speculation: bool
    command: tuple[str, ...] = Field(min_length=1, description="models by their names in the SLO, the port as {port}")
    environment: dict[str, str] = Field(default={}, description="variables that change how the server decodes")


WrittenTime = Annotated[AwareDatetime, PlainSerializer(stamp, when_used="json")]
"""A time that the file has as text."""


class Default(InputTable):
    """What applies to a workload without a route."""

    speculation: Literal[False] = False


class Policy(InputTable):
    """The whole file."""

    schema_: Literal[1] = Field(alias="schema")
    slo: str = Field(min_length=1)
    grade: Literal["certification", "demo"]
    manifest_sha256: str
    verdict_sha256: str
    issued: WrittenTime
    expires: WrittenTime
    default: Default = Default()
    watch: Watch = Watch()
    conditions: Conditions
    launch: tuple[Launch, ...] = ()
    route: tuple[Route, ...] = Field(min_length=1)
    guard: tuple[Guard, ...] = ()
    proxy: Proxy = Proxy()

    @model_validator(mode="after")
    def _names_exist(self) -> "Policy":
        names = [route.workload for route in self.route]
        if len(set(names)) != len(names):
            raise ValueError("two routes have the same workload")
        for number, guard in enumerate(self.guard, start=1):
            for name in guard.workloads:
                if name not in names:
                    raise ValueError(f"guard[{number}].workloads: no route '{name}'\n{did_you_mean(name, names)}")
        sorted_into = {
            f"proxy.rule[{number}].workload": rule.workload for number, rule in enumerate(self.proxy.rule, 1)
        }
        sorted_into |= {"proxy.default": self.proxy.default} if self.proxy.default is not None else {}
        for key, name in sorted_into.items():
            if name not in names:
                raise ValueError(f"{key}: no route '{name}'\n{did_you_mean(name, names)}")
        return self

    def route_of(self, workload: str) -> Route:
        """Return the route of *workload*; a workload without one decodes plainly."""
        route = next((route for route in self.route if route.workload == workload), None)
        return route or Route(workload=workload, speculation=False, because="no route in policy.toml")

    def guards_of(self, workload: str) -> tuple[Guard, ...]:
        """Return the guards of *workload*, and those of the host."""
        return tuple(guard for guard in self.guard if guard.applies_to(workload))

    def max_concurrency(self, workload: str) -> int:
        """Return up to how many requests in flight a workload may speculate: its own figure, else the certified one."""
        return self.route_of(workload).max_concurrency or self.conditions.concurrency

    def has_expired(self, now: datetime) -> bool:
        """Return whether the policy has expired."""
        return now >= self.expires

    @property
    def lifetime(self) -> float:
        """Return the seconds between issue and expiry."""
        return max(0.0, (self.expires - self.issued).total_seconds())

    def differing_tables(self, other: "Policy") -> list[str]:
        """Return the keys and tables in which two policies differ; stamps are rounded, so lifetimes are compared."""
        stamps = {"issued", "expires"}
        own, others = self.model_dump(by_alias=True, exclude=stamps), other.model_dump(by_alias=True, exclude=stamps)
        expires = ["expires"] if abs(self.lifetime - other.lifetime) > 1 else []
        return [*(name for name in own if own[name] != others[name]), *expires]


def parse(text: str, name: str) -> Policy:
    """Read a policy's *text*; raise InputError with *name*, line, key and the allowed values."""
    return parse_toml(text, name, Policy)
