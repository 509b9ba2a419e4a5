"""The bounds of a certified region, as policy.toml has them."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.analysis.verdict.certified_region import CertifiedRegion
from gatekeeper.core.policy import AxisBounds, RouteRegion


def bounds_of(region: CertifiedRegion) -> dict[str, dict[str, float]]:
    """Return the bounds of each axis."""
    return stored_bounds({"axes": [axis.document() for axis in region.axes]})


def route_region(region: CertifiedRegion) -> RouteRegion:
    """Return the bounds of all axes, as a route has them."""
    return RouteRegion.model_validate(bounds_of(region))


def stored_bounds(region: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the bounds of each axis of a region that was read from verdict.json."""
    return {axis["axis"]: {key: axis[key] for key in AxisBounds.model_fields if key in axis} for axis in region["axes"]}
