"""The answer of a fleet: fleet.json, from the verdicts of its cells, and whether hosts of one chip differ.

Two hosts are compared by the logs of their ratios, workload by workload, as any two runs are (`run_to_run.apart`): an
error in twenty is allowed over all pairs together. Settings that differ are named and not compared. Of many hosts each
is compared with the one in the middle: their pairs would be too many to read, and their bounds too wide.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from gatekeeper.analysis.stats import run_to_run
from gatekeeper.core.errors import ExitCode, GatekeeperError, InputError
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.policy import AxisBounds, Policy
from gatekeeper.core.policy import parse as parse_policy
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.inputs import load_manifest
from gatekeeper.core.verdict import Estimate
from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.task import Done

FILE = "fleet.json"
LIMITS = ("warm_up", "warm_up_after", "longest_prompt", "max_concurrency")
"""What a route's policy asks of whoever serves, besides its setting."""
SHOWN_MOST = 100
"""Characters of a difference that is shown with both values."""
NOT_COMPARED = ("host.booted_at", "host.uptime_s", "host.load_average", "host.heavy_processes")
WORST_FIRST = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN, ExitCode.OK)
"""How bad an exit code is for the fleet: an error of ours first, then a failed objective, then no proof."""
PAIRED_MOST = 6
"""Hosts of one chip that are compared pair by pair."""


def exit_code(codes: Iterable[int]) -> int:
    """Return the worst of the cells' exit codes; without a cell nothing is proven."""
    found = set(codes)
    return next((int(code) for code in WORST_FIRST if code in found), int(ExitCode.UNPROVEN))


def cell_document(cell: Cell, done: Done | None) -> dict[str, Any]:
    """Return what fleet.json says of one cell; None is a cell that has not ended."""
    known = cell.document() | {"name": cell.name}
    if cell.excluded:
        return known | {"state": "excluded"}
    if done is None:
        return known | {"state": "open"}
    found = known | {"state": "done", **{key: value for key, value in done.document().items() if key != "cell"}}
    if done.run:
        with suppress(OSError, ParseError, InputError):
            found |= _measured(Path(done.run), cell.confidence)
    return found


def _measured(run: Path, confidence: float) -> dict[str, Any]:
    verdict = json_object((run / "verdict.json").read_bytes())
    manifest = load_manifest((run / "manifest.json").read_bytes())
    host = {key: manifest.host.get(key) for key in ("chip", "memory_bytes", "os", "os_build", "power_source")}
    policy = _policy(run)
    return {
        "grade": verdict["grade"],
        "expires": policy.expires.isoformat() if policy is not None else None,
        "host_facts": host,
        "workloads": {
            one["name"]: {
                "outcome": one["outcome"],
                "setting": one["setting"],
                "required": one["speculation"] == "required",
                "because": one["because"],
                "ratio": next((ratio for name in SPEED_RATIOS if (ratio := one["measured"].get(name))), None),
                "confidence": confidence,
                "limits": _limits(policy, one["name"]),
                **({"region": _bounds(one["region"])} if one.get("region") else {}),
            }
            for one in verdict["workloads"]
        },
    }


def _policy(run: Path) -> Policy | None:
    """Return the policy of a run; None where its verdict allowed none."""
    try:
        return parse_policy((run / "policy.toml").read_text("utf-8"), "policy.toml")
    except (OSError, UnicodeDecodeError, InputError):
        return None


def _limits(policy: Policy | None, workload: str) -> dict[str, Any]:
    found = policy.route_of(workload).model_dump(include=set(LIMITS)) if policy is not None else {}
    return {key: found[key] for key in LIMITS if found.get(key)}


def _bounds(region: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of each axis of a region, as policy.toml has them."""
    return {one["axis"]: {key: one[key] for key in AxisBounds.model_fields if key in one} for one in region["axes"]}


def document(cells: Sequence[Mapping[str, Any]], started: str, ended: str | None) -> dict[str, Any]:
    """Return fleet.json; hosts of one chip are compared once the fleet has ended."""
    finished = [one for one in cells if one["state"] == "done"]
    taken = [one for one in cells if one["state"] != "excluded"]
    codes = [one["exit_code"] for one in finished]
    if len(finished) < len(taken):
        codes.append(int(ExitCode.UNPROVEN))
    return {
        "schema": 1,
        "started": started,
        "ended": ended,
        "exit_code": exit_code(codes),
        "cells": list(cells),
        "alike": alike(finished) if ended is not None else [],
    }


def alike(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the hosts of one chip that certified the same SLO: what differs between them, and whether results do."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in cells:
        if one.get("host_facts") and one["host_facts"]["chip"] is not None:
            groups.setdefault((one["slo"], one["host_facts"]["chip"]), []).append(one)
    pairs = [pair for group in groups.values() for pair in _pairs(group)]
    manifests = cache(_manifest)
    count = sum(len(a["workloads"].keys() & b["workloads"].keys()) for a, b in pairs)
    return [
        {
            "slo": a["slo"],
            "chip": a["host_facts"]["chip"],
            "hosts": [a["host"], b["host"]],
            "differences": _differences(manifests(a["run"]), manifests(b["run"])),
            "workloads": {
                name: contrast(a["workloads"][name], b["workloads"][name], count)
                for name in a["workloads"]
                if name in b["workloads"]
            },
        }
        for a, b in pairs
    ]


def _pairs(group: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return which hosts are compared: all pairs of a few, or each of many with the host in the middle."""
    if len(group) <= PAIRED_MOST:
        return list(combinations(group, 2))
    ranked = sorted((one for one in group if _level(one) is not None), key=lambda one: _level(one) or 0.0)
    middle = ranked[len(ranked) // 2] if ranked else group[0]
    return [(middle, one) for one in group if one is not middle]


def _level(cell: Mapping[str, Any]) -> float | None:
    """Return the mean of the logs of a cell's ratios; None where one is missing."""
    ratios = [one["ratio"] for one in cell["workloads"].values()]
    known = [math.log(one["center"]) for one in ratios if _usable(one)]
    return sum(known) / len(known) if known and len(known) == len(ratios) else None


def _manifest(run: str) -> Manifest | None:
    try:
        return load_manifest((Path(run) / "manifest.json").read_bytes())
    except (OSError, GatekeeperError):
        return None


def _differences(first: Manifest | None, second: Manifest | None) -> list[str]:
    if first is None or second is None:
        return ["a manifest cannot be read"]
    return [_words(name, first, second) for name in differences(first, second) if name not in NOT_COMPARED]


def _words(name: str, mine: Manifest, other: Manifest) -> str:
    part, _, key = name.partition(".")
    before, after = ((getattr(one, part) or {}).get(key) if key else None for one in (mine, other))
    shown = bool(key) and all(isinstance(one, str | int | float | None) for one in (before, after))
    words = f"{name}: {before} and {after}"
    return words if shown and len(words) <= SHOWN_MOST else name  # digests tell a reader nothing


def contrast(mine: Mapping[str, Any], other: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Say whether two hosts differ in the ratio of a workload: differ | no difference shown | not compared."""
    first, second = mine["ratio"], other["ratio"]
    if mine["setting"] != other["setting"]:
        return {"says": "not compared", "because": "their settings differ"}
    if not _usable(first) or not _usable(second):
        return {"says": "not compared", "because": "a ratio is missing"}
    assert first is not None
    assert second is not None
    estimates = [
        Estimate(ratio["center"], ratio["lo"], ratio["hi"], ratio["n"], confidence=workload["confidence"])
        for ratio, workload in ((first, mine), (second, other))
    ]
    apart = run_to_run.apart(estimates[0], estimates[1], count, math.log)
    return {
        "says": run_to_run.NO_DIFFERENCE if apart.lo <= 0 <= apart.hi else "differ",
        "quotient": math.exp(apart.center),
        "lo": math.exp(apart.lo),
        "hi": math.exp(apart.hi),
    }


def _usable(ratio: Mapping[str, Any] | None) -> bool:
    return ratio is not None and ratio.get("center") is not None and 0 < ratio["lo"] <= ratio["hi"]


def write(folder: Path, found: Mapping[str, Any]) -> None:
    """Write fleet.json whole, or not at all; while the fleet runs in one line, which takes a sixth of the time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ended = found["ended"] is not None
        text = json.dumps(found, indent=1 if ended else None, ensure_ascii=False) + "\n"
        write_atomically(folder / FILE, text, sync=ended)
    except OSError as error:
        message = f"cannot write {folder / FILE}: {error.strerror}"
        raise GatekeeperError(message, hint="free some disk space, or use another --runs") from error


def read(folder: Path) -> dict[str, Any] | None:
    """Return the fleet.json of *folder*; None where there is none."""
    try:
        found = json_object((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ParseError) as error:
        raise InputError(f"cannot read {folder / FILE}: {error}", hint="move the file away to start anew") from error
    return found
