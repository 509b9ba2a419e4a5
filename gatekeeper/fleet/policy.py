"""One policy for many hosts: the routes that hold on all of them, and what each host pays for having one policy."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gatekeeper.core.errors import ExitCode, InputError, NoProofError
from gatekeeper.core.reasons import Reason
from gatekeeper.core.text import describe_setting

PLAIN = {"draft": None}


def common(fleet: Mapping[str, Any], slo: str, hosts: Sequence[str] = ()) -> dict[str, Any]:
    """Return the routes of *slo* that every host proved, as policy.toml writes them, and who pays for the others.

    A route speculates only where each host was promoted with the same setting: another host's setting was not soaked.
    """
    cells = [one for one in fleet["cells"] if one["slo"] == slo and one["state"] != "excluded"]
    if not cells:
        known = ", ".join(sorted({str(one["slo"]) for one in fleet["cells"]}))
        raise InputError(f"the fleet has no SLO '{slo}'", hint=f"it has {known}")
    missing = sorted(set(hosts) - {str(one["host"]) for one in cells})
    if missing:
        raise InputError(f"{slo} was not certified on {', '.join(missing)}", hint="fleet plan says why")
    cells = [one for one in cells if not hosts or one["host"] in hosts]
    open_ones = [one["name"] for one in cells if one["state"] != "done" or one["exit_code"] not in _PROVEN]
    if open_ones:
        message = f"not proven: {', '.join(open_ones)}"
        raise NoProofError(Reason.UNPROVEN, message, hint="certify these cells first, or leave their hosts out: --only")
    expiries = [one["expires"] for one in cells if one.get("expires")]
    demos = [one["name"] for one in cells if one["grade"] == "demo"]
    routes = [_route(name, cells) for name in cells[0]["workloads"]]
    return {
        "schema": 1 + any("region" in one for one in routes),
        "slo": slo,
        "grade": "demo" if demos else "certification",
        "hosts": [one["host"] for one in cells],
        **({"expires": min(expiries, key=datetime.fromisoformat)} if expiries else {}),
        "default": {"speculation": False},
        "route": routes,
    }


_PROVEN = (int(ExitCode.OK), int(ExitCode.OBJECTIVE_FAILED))


def _route(name: str, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = {str(one["host"]): one["workloads"][name] for one in cells}
    promoted = {host: one for host, one in found.items() if one["outcome"] == "promoted"}
    settings = {describe_setting(one["setting"]) for one in promoted.values()}
    if len(promoted) == len(found) and len(settings) == 1:
        (setting, *_) = (one["setting"] for one in promoted.values())
        region = _narrowest([one.get("region", {}) for one in promoted.values()])
        on = {"workload": name, "speculation": True, "because": "promoted on every host", "setting": setting}
        on |= _strictest([one.get("limits", {}) for one in promoted.values()])
        return on | ({"region": region} if region else {})
    if len(promoted) < len(found):
        others = ", ".join(sorted(found.keys() - promoted.keys()))
        because = f"not promoted on {others}"
    else:
        because = f"the hosts were promoted with different settings: {'; '.join(sorted(settings))}"
    cost = {host: one["ratio"]["center"] for host, one in promoted.items() if one["ratio"]}
    paid = {"cost": {host: f"decodes plainly; its own policy gains {ratio:.2f}x" for host, ratio in cost.items()}}
    return {"workload": name, "speculation": False, "because": because, "setting": {}} | (paid if cost else {})


def _strictest(limits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what keeps the limits of every host: a warm-up that one of them needs, and the least of each number."""
    return {
        key: min(one[key] for one in limits if key in one)
        for key in dict.fromkeys(key for one in limits for key in one)
    }


def _narrowest(regions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what lies inside the region of every host; the hosts of one SLO have the same axes."""
    found = {}
    for axis in regions[0]:
        bounds = [one[axis] for one in regions]
        found[axis] = {
            key: _NARROWEST[key](one[key] for one in bounds) for key in bounds[0] if all(key in one for one in bounds)
        }
    boxed = all("together_at_most" in one for one in found.values())
    return {
        axis: {key: value for key, value in one.items() if boxed or not key.startswith("together")}
        for axis, one in found.items()
    }


_NARROWEST: dict[str, Any] = {
    "certified": min,
    "at_least": max,
    "at_most": min,
    "together_at_least": max,
    "together_at_most": min,
    "tokens_per_byte": max,
}
