"""A soak profile: how the load arrives, and what else keeps the machine busy."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gatekeeper.core.units import ByteRate, Bytes, EventRate, Seconds

TIER = "tier:"
"""Begins a name of the mix that stands for every workload of a tier."""


class Background(BaseModel):
    """A reproducible desktop load beside the soak."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    memory: Bytes = Field(default=0.0, ge=0, description="memory held and touched")
    cpu: float = Field(default=0.0, ge=0, description="cores kept busy; 0.5 is half of one")
    disk_read: ByteRate = Field(default=0.0, ge=0, description="read from disk")


class Profile(BaseModel):
    """The content of soak/profiles/NAME.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_: Literal[1] = Field(alias="schema")
    name: str
    why: str = ""
    mix: dict[str, float] = Field(
        default={"*": 1.0}, description="weight per workload, or per tier:NAME; * is every other"
    )
    arrival: Literal["closed", "open"] = "closed"
    rate: EventRate | None = Field(default=None, gt=0, description="requests per second of an open profile")
    idle: Seconds = Field(default=0.0, ge=0, description="pause after each answer")
    background: Background = Background()

    @model_validator(mode="after")
    def _open_has_rate(self) -> "Profile":
        if (self.arrival == "open") != (self.rate is not None):
            raise ValueError('a rate belongs to arrival = "open", and only to it, e.g. rate = "0.5 /s"')
        if not self.mix or any(weight < 0 for weight in self.mix.values()) or not any(self.mix.values()):
            raise ValueError("mix needs at least one positive weight and no negative one")
        return self

    def weight(self, workload: str, tier: str) -> float:
        """Return the weight of a workload in the mix: its own, or else its tier's, or else the rest's."""
        return self.mix.get(workload, self.mix.get(f"{TIER}{tier}", self.mix.get("*", 0.0)))

    @property
    def tiers(self) -> tuple[str, ...]:
        """Return the tiers that the mix names."""
        return tuple(name.removeprefix(TIER) for name in self.mix if name.startswith(TIER))
