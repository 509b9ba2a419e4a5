"""The speed of plain decoding that a plan assumes before anything is measured: a chip's bandwidth over the weights."""

from gatekeeper.analysis.plan.sizes_by_name import bytes_read, has_experts
from gatekeeper.core.manifest import Model
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show_bytes

BANDWIDTH = {
    "Apple M1": 68e9, "Apple M1 Pro": 200e9, "Apple M1 Max": 400e9, "Apple M1 Ultra": 800e9,
    "Apple M2": 100e9, "Apple M2 Pro": 200e9, "Apple M2 Max": 400e9, "Apple M2 Ultra": 800e9,
    "Apple M3": 100e9, "Apple M3 Pro": 150e9, "Apple M3 Max": 300e9, "Apple M3 Ultra": 819e9,
    "Apple M4": 120e9, "Apple M4 Pro": 273e9, "Apple M4 Max": 410e9,
    "Apple M5": 153e9, "Apple M5 Pro": 307e9, "Apple M5 Max": 460e9,
}  # fmt: skip
"""Memory bandwidth in bytes per second, as Apple's specifications say; of two variants the slower one."""
OTHER_BANDWIDTH = 100e9
"""Of a host that the SLO does not name, or that is not in the table."""
DECODING_SHARE = 0.85
"""The part of the bandwidth at which decoding reads the weights: an assumption."""
EXPERTS_S = 0.0067
"""What a token of a mixture of experts takes besides its bytes: so much on an M2 Max and on an M3 Ultra, 40 layers."""
SPEEDS = (1.0, 500.0)
"""The slowest and the fastest speed of plain decoding that is derived from a size, in tok/s."""
UNKNOWN_SPEED = 30.0
"""Tokens a second where not even the model's size is known."""


def assumed_speed(slo: Slo, target: Model | None) -> tuple[float, str]:
    """Return the assumed speed of plain decoding in tok/s, and where it comes from: bandwidth over weights."""
    name = slo.subject.target
    size = bytes_read(name, float(target.bytes) if target is not None else None)
    if not size:
        return UNKNOWN_SPEED, " (a guess; --assume sets it)"
    bandwidth = DECODING_SHARE * BANDWIDTH.get(slo.host.chip or "", OTHER_BANDWIDTH)
    source = "its weights" if target is not None else "the weights its name tells"
    low, high = SPEEDS
    routed = EXPERTS_S if has_experts(name) else 0.0
    speed = max(low, min(high, 1 / (size / bandwidth + routed)))
    return speed, f" ({show_bytes(bandwidth)}/s over {source}, {show_bytes(size)})"
