"""The comparison: what two runs say of the same thing, and whether they may be compared at all."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.terms.manifest import Manifest, differences
from gatekeeper.terms.outcome import rounded
from gatekeeper.terms.slo import Slo

METRICS = ("throughput_ratio", "answer_throughput_ratio", "acceptance_rate", "ttft_delta", "decode_throughput")
"""The figures every workload has, whether promised or not."""
DELTAS = frozenset({"ttft_delta"})
"""Already relative: two of them are subtracted, others divided."""
CAUSES = ("drafts", "slo", "versions.", "host.os", "host.os_build", "host.kernel")
"""What somebody may have changed on purpose, to see what it does; every other difference makes another experiment."""


def parted(mine: Manifest, other: Manifest, mine_slo: Slo, other_slo: Slo) -> tuple[list[str], list[str]]:
    """Name what makes two runs not comparable, and what differs beside that and may be the cause of a difference."""
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
    """Tell whether a difference concerns a workload: other canaries of another one do not."""
    return not name.startswith("canaries.") or name == f"canaries.{workload}"


def contrast(metric: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """Lay two intervals side by side; only disjoint ones are called a difference.

    Each bound holds at the runs' confidence, so this errs to "no difference shown".
    """
    out: dict[str, Any] = {"metric": metric, "a": before, "b": after, "change": None}
    if not before or not after:
        return out | {"says": "not measured in " + ("either" if not (before or after) else "A" if not before else "B")}
    if metric in DELTAS:
        out["change"] = rounded(after["center"] - before["center"])
    elif before["center"]:
        out["change"] = rounded(after["center"] / before["center"] - 1)
    if after["lo"] > before["hi"]:
        return out | {"says": "higher"}
    return out | {"says": "lower" if after["hi"] < before["lo"] else "no difference shown"}
