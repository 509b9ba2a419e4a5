"""The host: its telemetry and facts, the lock that lets one run measure at a time, and the background load."""

from gatekeeper.host.host_facts import device, facts, wired_limit
from gatekeeper.host.host_lock import hold_host, lock_holder, this_owner
from gatekeeper.host.macos.pmset import idle_sleep_seconds, keep_awake
from gatekeeper.host.other_programs import OtherPrograms, memory_holders, other_programs, processor_use, used_between
from gatekeeper.host.sampling.capabilities import METRIC_VALUES, metric_hint, survey
from gatekeeper.host.sampling.sampler import SAMPLE_INTERVAL_S, Sampler, write_samples
from gatekeeper.host.simulated_load import apply_load

__all__ = [
    "METRIC_VALUES",
    "SAMPLE_INTERVAL_S",
    "OtherPrograms",
    "Sampler",
    "apply_load",
    "device",
    "facts",
    "hold_host",
    "idle_sleep_seconds",
    "keep_awake",
    "lock_holder",
    "memory_holders",
    "metric_hint",
    "other_programs",
    "processor_use",
    "survey",
    "this_owner",
    "used_between",
    "wired_limit",
    "write_samples",
]  # fmt: skip
