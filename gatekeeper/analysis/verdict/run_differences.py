"""Differences of two runs: which forbid a comparison, and which may explain a change."""

from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.slo import Slo

CAUSES = ("drafts", "slo", "versions.", "host.os", "host.os_build", "host.kernel")
"""Differences that may explain a change and still allow a comparison; any other makes the runs not comparable."""


def compare_inputs(mine: Manifest, other: Manifest, mine_slo: Slo, other_slo: Slo) -> tuple[list[str], list[str]]:
    """Return the differences that make two runs not comparable, and those that may explain a change."""
    found = differences(mine, other)
    conditions = {
        "slo.soak.concurrency": (mine_slo.soak.concurrency, other_slo.soak.concurrency),
        "slo.subject.prompt_cache": (mine_slo.subject.prompt_cache, other_slo.subject.prompt_cache),
        "slo.subject.args": (mine_slo.subject.args, other_slo.subject.args),
    }
    matter = [name for name in found if not _is_cause(name)]
    matter += [name for name, (before, after) in conditions.items() if before != after]
    return matter, [name for name in found if _is_cause(name)]


def _is_cause(name: str) -> bool:
    return any(name == cause or (cause.endswith(".") and name.startswith(cause)) for cause in CAUSES)


def concerns(name: str, workload: str) -> bool:
    """Return whether a difference concerns a workload; other canaries of another workload do not."""
    return not name.startswith("canaries.") or name == f"canaries.{workload}"
