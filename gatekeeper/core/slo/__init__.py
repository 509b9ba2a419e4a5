"""The SLO file: the system under test, its objectives and how they are proven; a file a table."""

from gatekeeper.core.slo.objective import Bound, MetricBound, Objective
from gatekeeper.core.slo.region_table import AXES, Region
from gatekeeper.core.slo.slo_file import (
    CONFIDENCE,
    Fallback,
    Host,
    Promote,
    Sampling,
    Slo,
    Step,
    Telemetry,
    Workload,
    parse,
)
from gatekeeper.core.slo.soak_table import CERTIFICATION_S, LONGEST_S, TIER_PREFIX, Background, Profile, Soak
from gatekeeper.core.slo.sweep_table import (
    ADAPTIVE,
    CHOSEN,
    CONDITIONS,
    DRAFT_LENGTHS,
    MOST_TOKENS,
    MOST_VALUES,
    ChosenKnobs,
    DraftLength,
    Knobs,
    Sweep,
)

__all__ = [
    "ADAPTIVE", "AXES", "CERTIFICATION_S", "CHOSEN", "CONDITIONS", "CONFIDENCE", "DRAFT_LENGTHS", "LONGEST_S",
    "MOST_TOKENS", "MOST_VALUES", "TIER_PREFIX", "Background", "Bound", "ChosenKnobs", "DraftLength", "Fallback",
    "Host", "Knobs", "MetricBound", "Objective", "Profile", "Promote", "Region", "Sampling", "Slo", "Soak", "Step",
    "Sweep", "Telemetry", "Workload", "parse",
]  # fmt: skip
