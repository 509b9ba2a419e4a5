"""Differences of two runs: which forbid a comparison, and which may explain a change."""

from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.slo import Slo

CAUSES = ("drafts", "slo", "versions.", "host.os", "host.os_build", "host.kernel")
"""Differences that may explain a change and still allow a comparison; any other makes the runs not comparable."""


def compare_inputs(first: Manifest, second: Manifest, first_slo: Slo, second_slo: Slo) -> tuple[list[str], list[str]]:
    """Return the differences that make two runs not comparable, and those that may explain a change."""
    names = differences(first, second)
    conditions = {
        "slo.soak.concurrency": (first_slo.soak.concurrency, second_slo.soak.concurrency),
        "slo.subject.prompt_cache": (first_slo.subject.prompt_cache, second_slo.subject.prompt_cache),
        "slo.subject.args": (first_slo.subject.args, second_slo.subject.args),
    }
    matter = [name for name in names if not _is_cause(name)]
    matter += [name for name, (before, after) in conditions.items() if before != after]
    return matter, [name for name in names if _is_cause(name)]


def _is_cause(name: str) -> bool:
    return any(name == cause or (cause.endswith(".") and name.startswith(cause)) for cause in CAUSES)


def concerns(name: str, workload: str) -> bool:
    """Return whether a difference concerns a workload; other canaries of another workload do not."""
    return not name.startswith("canaries.") or name == f"canaries.{workload}"
