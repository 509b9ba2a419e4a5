"""One policy for many hosts: the routes that hold on all of them, and what each host pays for having one policy."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason
from gatekeeper.core.text import describe_setting
from gatekeeper.fleet.fleet_cell import CellWorkload, FleetCell
from gatekeeper.fleet.fleet_json import Fleet

_PROVEN = (ExitCode.OK, ExitCode.OBJECTIVE_FAILED)
_OF_PROMPTS = ("longest_prompt", "tokens_per_byte")


def common_policy(fleet: Fleet, slo: str, hosts: Sequence[str] = ()) -> dict[str, Any]:
    """Return the routes of *slo* that every host proved, as policy.toml writes them, and who pays for the others.

    A route speculates only where each host was promoted with the same setting: another host's setting was not soaked.
    """
    cells = [cell for cell in fleet.included if cell.cell.slo == slo]
    if not cells:
        names = ", ".join(sorted({cell.cell.slo for cell in fleet.cells}))
        raise InputError(f"the fleet has no SLO '{slo}'", hint=f"it has {names}")
    missing = sorted(set(hosts) - {cell.cell.host for cell in cells})
    if missing:
        raise InputError(f"{slo} was not certified on {', '.join(missing)}", hint="fleet plan says why")
    cells = [cell for cell in cells if not hosts or cell.cell.host in hosts]
    verdicts = {cell.cell.host: cell.verdict for cell in cells if cell.verdict is not None and _is_proven(cell)}
    if len(verdicts) < len(cells):
        message = f"not proven: {', '.join(cell.name for cell in cells if cell.cell.host not in verdicts)}"
        raise NoProofError(Reason.UNPROVEN, message, hint="certify these cells first, or leave their hosts out: --only")
    expiries = [verdict.expires for verdict in verdicts.values() if verdict.expires]
    is_demo = any(verdict.grade == "demo" for verdict in verdicts.values())
    routes = [
        _route(name, {host: verdict.workloads[name] for host, verdict in verdicts.items()})
        for name in cells[0].workloads
    ]
    return {
        "schema": 1,
        "slo": slo,
        "grade": "demo" if is_demo else "certification",
        "hosts": list(verdicts),
        **({"expires": min(expiries, key=datetime.fromisoformat)} if expiries else {}),
        "default": {"speculation": False},
        "route": routes,
    }


def _is_proven(cell: FleetCell) -> bool:
    return cell.done is not None and cell.done.exit_code in _PROVEN


def _route(name: str, workloads: Mapping[str, CellWorkload]) -> dict[str, Any]:
    """Return the route of the workload *name*, which each host has its own result of."""
    promoted = {host: workload for host, workload in workloads.items() if workload.outcome == "promoted"}
    settings = {describe_setting(workload.setting) for workload in promoted.values()}
    if len(promoted) == len(workloads) and len(settings) == 1:
        setting = next(iter(promoted.values())).setting
        route = {"workload": name, "speculation": True, "because": "promoted on every host", "setting": setting}
        return route | _strictest([workload.limits for workload in promoted.values()])
    if len(promoted) < len(workloads):
        because = f"not promoted on {', '.join(sorted(workloads.keys() - promoted.keys()))}"
    else:
        because = f"the hosts were promoted with different settings: {'; '.join(sorted(settings))}"
    route = {"workload": name, "speculation": False, "because": because, "setting": {}}
    ratios = {host: ratio for host, workload in promoted.items() if (ratio := workload.speed_up) is not None}
    cost = {host: f"decodes plainly; its own policy gains {ratio.center:.2f}x" for host, ratio in ratios.items()}
    return route | ({"cost": cost} if cost else {})


def _strictest(limits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what keeps the limits of every host: a warm-up that one of them needs, and the strictest of each number.

    How long a prompt may be is known where every host knows it: a route without it speculates for none.
    """
    strictest = {}
    for key in dict.fromkeys(key for of_host in limits for key in of_host):
        values = [of_host[key] for of_host in limits if key in of_host]
        if key in _OF_PROMPTS and len(values) < len(limits):
            continue
        strictest[key] = max(values) if key == "tokens_per_byte" else min(values)
    return strictest
