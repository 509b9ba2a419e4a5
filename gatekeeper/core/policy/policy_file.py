"""policy.toml as a whole; under what it was certified, and by which commands (`[conditions]`, `[[launch]]`)."""

from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.policy.proxy_table import Proxy
from gatekeeper.core.policy.route import Route
from gatekeeper.core.policy.watch_table import Guard, Watch
from gatekeeper.core.toml_file import InputTable
from gatekeeper.core.toml_file import parse as parse_toml


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
    issued: AwareDatetime
    expires: AwareDatetime
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

    def expired(self, now: datetime) -> bool:
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
