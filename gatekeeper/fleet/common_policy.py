"""One policy for many hosts: the routes that hold on all of them, and what each host pays for having one policy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.policy import Policy, Route
from gatekeeper.core.policy import parse as parse_policy
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.inputs import read_text
from gatekeeper.core.system.run_directory import POLICY
from gatekeeper.fleet.fleet_record import FleetCell

OWN_KEYS = {"workload", "speculation", "because", "setting", "ladder", "measured"}
"""Keys of a route that are a host's own, or written anew; every other key is a limit."""
STRICTEST = {
    "max_concurrency": min,
    "warm_up": max,
    "warm_up_after": min,
}
"""Which of two limits lies inside the other: a warm-up that one host needs is owed on all."""
CERTIFIED_SIZES = ("longest_prompt", "longest_format")
"""How large a certified request was, at most: known for all hosts only where each of them knows it."""
CERTIFIED_REQUESTS = ("models", "request")
"""For which requests a route was certified: what every host certified is certified for all."""


def write_common_policies(runs: Path, cells: Sequence[FleetCell]) -> dict[str, str]:
    """Write the common policy of each SLO of *cells* into *runs*; return its file, or why there is none, by SLO."""
    said = {}
    for slo in dict.fromkeys(cell.slo for cell in cells):
        file = runs / f"policy-{slo}.toml"
        file.unlink(missing_ok=True)  # that of an earlier fleet
        try:
            policy = merge_policies(slo, _read_policies([cell for cell in cells if cell.slo == slo]))
        except NoProofError as error:
            said[slo] = f"none, {error.message}"
        else:
            write_atomically(file, tomli_w.dumps(policy))
            said[slo] = str(file)
    return said


def _read_policies(cells: Sequence[FleetCell]) -> dict[str, Policy]:
    """Return the policy of each cell's run, by host; raise NoProofError where a run has none."""
    policies, unproven = {}, []
    for cell in cells:
        policy = _read_policy(cell)
        if policy is None:
            unproven.append(cell.name)
        else:
            policies[cell.host] = policy
    if unproven:
        raise NoProofError(Reason.UNPROVEN, f"not proven: {', '.join(unproven)}", hint="certify these cells first")
    return policies


def _read_policy(cell: FleetCell) -> Policy | None:
    """Return the policy of a cell's run; None where its verdict allows none, or there is no verdict."""
    if cell.result is None or not cell.result.outcome:
        return None
    file = Path(cell.result.run, POLICY)
    try:
        return parse_policy(read_text(file, "policy"), str(file))
    except InputError:
        return None


def merge_policies(slo: str, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Return the routes of *slo* that every host proved, as policy.toml writes them, and who pays for the others.

    A route speculates only where each host was promoted with the same setting: another host's setting was not soaked.
    """
    first = next(iter(policies.values()))
    is_demo = any(policy.grade == "demo" for policy in policies.values())
    return {
        "schema": first.schema_,
        "slo": slo,
        "grade": "demo" if is_demo else "certification",
        "hosts": list(policies),
        "expires": min(policy.expires for policy in policies.values()).isoformat(),
        "default": {"speculation": False},
        "route": [_merge_routes(route.workload, policies) for route in first.route],
    }


def _merge_routes(workload: str, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Return the common route of a *workload*."""
    routes = {host: policy.route_of(workload) for host, policy in policies.items()}
    promoted = {host: route for host, route in routes.items() if route.speculation}
    limits = dict[str, Any]()
    because = ""
    if len(promoted) < len(routes):
        because = f"not promoted on {', '.join(sorted(routes.keys() - promoted.keys()))}"
    elif any(route.setting != next(iter(promoted.values())).setting for route in promoted.values()):
        because = "the hosts were promoted with different settings"
    else:
        limits, differing = _merge_limits(policies, list(promoted.values()))
        because = f"the hosts were certified with different {', '.join(differing)}" if differing else ""
    if because:
        gains = {host: route.measured.throughput_ratio for host, route in promoted.items()}
        cost = {
            host: f"decodes plainly; its own policy gains {gain.center:.2f}x"
            for host, gain in gains.items()
            if gain is not None
        }
        route = {"workload": workload, "speculation": False, "because": because, "setting": {}}
        return route | ({"cost": cost} if cost else {})
    setting = next(iter(promoted.values())).setting.model_dump(mode="json", exclude_none=True)
    route = {"workload": workload, "speculation": True, "because": "promoted on every host", "setting": setting}
    return route | limits


def _merge_limits(policies: Mapping[str, Policy], routes: Sequence[Route]) -> tuple[dict[str, Any], list[str]]:
    """Return the strictest limits of the *routes* of one workload, and the keys for which none is the stricter one."""
    written = [route.model_dump(mode="json", exclude=OWN_KEYS, exclude_none=True) for route in routes]
    for of_host, route, policy in zip(written, routes, policies.values(), strict=True):
        of_host["max_concurrency"] = policy.max_concurrency(route.workload)
    limits, differing = dict[str, Any](), list[str]()
    for key in dict.fromkeys(key for of_host in written for key in of_host):
        values = [of_host[key] for of_host in written if key in of_host]
        everywhere = len(values) == len(written)
        if key in STRICTEST:
            limits[key] = STRICTEST[key](values)
        elif key in CERTIFIED_SIZES:
            # Without it a proxy drafts for no request, which is what is known of the host that does not tell.
            limits |= {key: min(values)} if everywhere else {}
        elif key in CERTIFIED_REQUESTS:
            limits[key] = [item for item in values[0] if everywhere and all(item in value for value in values)]
        elif everywhere and all(value == values[0] for value in values):
            limits[key] = values[0]
        else:
            differing.append(key)
    return {key: limit for key, limit in limits.items() if limit is not False}, differing
