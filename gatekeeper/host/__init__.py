"""The host: what it says of itself while a subject is measured, and what is held still meanwhile."""

from gatekeeper.host.capabilities import NEEDS, lacks, remedy, survey
from gatekeeper.host.conditions import conditions, keep_awake, sleeps_after
from gatekeeper.host.host_lock import OWNER, occupant, occupied, this_owner
from gatekeeper.host.live import document, watch
from gatekeeper.host.load import background
from gatekeeper.host.platforms import PLATFORMS
from gatekeeper.host.sampler import SAMPLE_INTERVAL_S, Sampler

__all__ = [
    "NEEDS",
    "OWNER",
    "PLATFORMS",
    "SAMPLE_INTERVAL_S",
    "Sampler",
    "background",
    "conditions",
    "document",
    "keep_awake",
    "lacks",
    "occupant",
    "occupied",
    "remedy",
    "sleeps_after",
    "survey",
    "this_owner",
    "watch",
]
