"""The table `[soak]` of an SLO file, and the soak profile that it names: how long, and under which load."""

from typing import Literal

from pydantic import Field, model_validator

from gatekeeper.core.reasons import CERTIFICATION, CERTIFICATION_S
from gatekeeper.core.toml_file import ByteRate, Bytes, EventRate, InputTable, Seconds

LONGEST_S = 30 * 86400.0
"""Seconds of the longest soak, and of the longest time inside one."""
TIER_PREFIX = "tier:"
"""Prefix of a name in the mix that stands for every workload of a tier."""


class Soak(InputTable):
    """How long and under which load the choice is proven."""

    duration: Seconds = Field(default=CERTIFICATION_S, gt=0, le=LONGEST_S)
    max_duration: Seconds = Field(default=3600.0, gt=0, le=LONGEST_S)
    until: Literal["decided", "duration"] | None = Field(
        default=None,
        description="decided: continue up to max_duration while a required workload is open "
        f"(default from {CERTIFICATION})",
    )
    window: Seconds | None = Field(
        default=None, ge=0.001, le=LONGEST_S, description="acceptance windows; default duration / 5"
    )
    profile: str = "steady"
    concurrency: int = Field(default=1, ge=1, le=64)
    baseline_share: float = Field(default=0.2, gt=0, le=0.5)
    baseline_drift: float = Field(default=0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _check_order(self) -> "Soak":
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
