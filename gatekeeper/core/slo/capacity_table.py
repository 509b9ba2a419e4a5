"""The table `[capacity]` of an SLO file: up to how many streams the latency objectives are tried."""

from pydantic import Field

from gatekeeper.core.quantity_fields import Seconds
from gatekeeper.core.toml_file import InputTable


class Capacity(InputTable):
    """How many streams keep the latency objectives: what is tried to find out."""

    streams: int | None = Field(default=None, ge=1, le=64, description="the most requests in flight that are tried")
    answers: int = Field(
        default=0, ge=0, le=10_000, description="least answers of a probe that decides; 0: as few as prove it"
    )
    max_duration: Seconds = Field(
        default=120.0, ge=0, le=86_400, description="longest time of probes that only narrow an interval"
    )
