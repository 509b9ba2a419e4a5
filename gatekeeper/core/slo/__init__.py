"""The SLO file: the system under test, its objectives and how they are proven; a file a table."""

from gatekeeper.core.slo.objective import MetricBound, Objective
from gatekeeper.core.slo.slo_file import CONFIDENCE, Host, Slo, Step, Telemetry, Workload, parse
from gatekeeper.core.slo.soak_table import Profile, Soak
from gatekeeper.core.slo.sweep_table import (
    CHOSEN,
    CONDITIONS,
    DRAFT_LENGTHS,
    MOST_TOKENS,
    ChosenKnobs,
    Knobs,
    process_name,
)

__all__ = [
    "CHOSEN", "CONDITIONS", "CONFIDENCE", "DRAFT_LENGTHS", "MOST_TOKENS",
    "ChosenKnobs", "Host", "Knobs", "MetricBound", "Objective", "Profile", "Slo", "Soak", "Step",
    "Telemetry", "Workload", "parse", "process_name",
]  # fmt: skip
