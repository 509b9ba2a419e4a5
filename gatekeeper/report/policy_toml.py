"""The text of policy.toml: laid out to be read and edited, with a word on what each block is."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from gatekeeper.core.metrics import Metric
from gatekeeper.core.policy import WATCHED
from gatekeeper.core.units import show

HEAD = """\
# What may be deployed, and what turns it off again. Written by gatekeeper certify.
# Numbers are in base units: seconds, bytes, shares; "10 min" and "8 GB" are understood too. To change something edit a
# copy: `gatekeeper admit` refuses a run whose own policy was touched. `gatekeeper watch COPY --run RUN_DIR` reads it,
# also while it runs. A guard may be loosened there; a route can not be turned on that the run did not certify.
"""
DEFAULT = "# A workload without a route decodes plainly."
WATCH = """\
# How `gatekeeper watch` looks. `duty` is the largest share of the time its canaries may take; answers older than
# `window` are forgotten; without evidence for `missing_for` a route is off; it comes back, rung by rung, after
# `quiet_for`, doubled by each relapse up to `quiet_most`. `false_alarms` is the chance of a wrong step down per route
# over the life of this file; without plain decoding at hand, being slower by `slack` is no evidence."""
WATCHES = dict.fromkeys(("interval", "window", "missing_for", "quiet_for", "quiet_most"), "s")
ROUTE = """\
# One workload: whether it may speculate, and how. `ladder` is what is tried before plain decoding when a guard is
# crossed; it was not soaked, and without it plain decoding is next. `measured` is what the soak saw: the reference
# where there is no plain decoding to compare with."""
GUARD = """\
# One bound each: crossed for so long (`for`), its workloads go down a rung; all of them where it is the host's.
# `over` is the stretch that is judged, `missing_for` how long its evidence may be missing before speculation is off.
# Of the host only what the SLO promises is guarded; add what should be (METHODOLOGY.md, What is guarded)."""


def render(policy: Mapping[str, Any]) -> str:
    """Return the file's text; what it parses to is *policy*."""
    tables = ("default", "watch", "route", *(("guard",) if policy["guard"] else ()))
    lines = [HEAD, *(_pair(key, value) for key, value in policy.items() if key not in tables)]
    lines += ["", DEFAULT, "[default]", *(_pair(key, value) for key, value in policy["default"].items())]
    lines += ["", WATCH, "[watch]", *(_pair(key, value, WATCHES.get(key)) for key, value in policy["watch"].items())]
    lines += ["", ROUTE, *(line for one in policy["route"] for line in _route(one))]
    lines += [GUARD, *(line for one in policy["guard"] for line in _guard(one))] if policy["guard"] else []
    return "\n".join(lines).rstrip() + "\n"


def _route(route: Mapping[str, Any]) -> Iterator[str]:
    yield "[[route]]"
    tables = ("setting", "ladder", "measured")
    yield from (_pair(key, value) for key, value in route.items() if key not in tables)
    yield "[route.setting]"
    yield from (_pair(key, value) for key, value in route["setting"].items())
    for lower in route.get("ladder", ()):
        yield "[[route.ladder]]"
        yield from (_pair(key, value) for key, value in lower.items())
    if "measured" in route:
        yield "[route.measured]"
        yield from (f"{name} = {_inline(figure)}" for name, figure in route["measured"].items())
    yield ""


def _guard(guard: Mapping[str, Any]) -> Iterator[str]:
    metric: Metric = WATCHED[guard["metric"]]
    units = {"at_least": metric.unit, "at_most": metric.unit, "for": "s", "over": "s", "missing_for": "s"}
    yield "[[guard]]"
    yield from (_pair(key, value, units.get(key)) for key, value in guard.items())
    yield ""


def _pair(key: str, value: Any, unit: str | None = None) -> str:
    written = tomli_w.dumps({key: value}).strip().replace("[\n    ", "[").replace(",\n]", "]").replace(",\n    ", ", ")
    spoken = show(value, unit) if unit in {"s", "B"} else ""
    return f"{written}  # {spoken}" if spoken and spoken != f"{value:g} {unit}" else written


def _inline(table: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(_pair(key, value) for key, value in table.items()) + " }"
