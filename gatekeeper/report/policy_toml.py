"""The text of policy.toml, with a comment that explains each kind of block."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from gatekeeper.core.metrics import WATCHED
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.units import show

HEAD = """\
# What may be deployed, and when it is turned off again. Written by gatekeeper certify.
# Numbers are in base units: seconds, bytes, shares; "10 min" and "8 GB" work too. To change something, edit a copy:
# `gatekeeper admit` refuses a run whose own policy was changed. `gatekeeper watch COPY --run RUN_DIR` reads the copy,
# and reads it again when it changes. A guard may be loosened there; a route that the run did not certify cannot be
# turned on.
"""
DEFAULT = "# A workload without a route uses plain decoding."
WATCH = """\
# Settings of `gatekeeper watch`. `duty` is the largest share of the time that its canary prompts may take; answers
# older than `window` are ignored. After `missing_for` without data a route is turned off. A route comes back, one
# ladder step at a time, after `quiet_for`, which doubles with each relapse up to `quiet_most`. `false_alarms` is the
# chance of a wrong step down per route over the life of this file. Where plain decoding cannot be measured, being
# slower than certified by up to `slack` is ignored."""
WATCHES = dict.fromkeys(("interval", "window", "missing_for", "quiet_for", "quiet_most"), "s")
CONDITIONS = """\
# What was true of every certified answer; the certificate holds under these conditions alone. `longest_prompt` and
# `max_tokens` are the context in tokens, `concurrency` counts requests in flight at once. Every request must carry the
# fields of `request`. `gatekeeper admit SLO.toml --run RUN_DIR --url URL` compares a running server with all this."""
LAUNCH = """\
# How a certified server was started: {port} is any free port, models have the SLO's names, keys are hidden. Start the
# deployed server in the same way."""
ROUTE = """\
# One workload: whether it may speculate, and with which setting. `ladder` lists the settings to try before plain
# decoding, one after another, when a guard is violated; they were not soaked. Without a ladder, plain decoding is next.
# `measured` is what the soak measured: the reference where plain decoding cannot be measured."""
WARM_UP = """\
# An obligation of whoever serves: the first token kept its bound only where a short request, whose answer is thrown
# away, went before the user's. Send one after each start, and before a user's request (when the user begins to type)
# that follows a pause of `warm_up_after` or longer."""
REGION = """\
# The requests for which it may speculate; others decode plainly. While one axis differs from `certified`, the others do
# not: up to `at_most`. While several differ: each up to `together_at_most`, where their corners were measured; without
# it, no two may. A request that does not say a value is outside."""
GUARD = """\
# One bound. Violated for longer than `for`, it moves its workloads one step down the ladder; a host guard moves all of
# them. `over` is the time range that is judged; after `missing_for` without data speculation is turned off. Only the
# host metrics of the SLO have guards; add others as needed (docs/watch.md, What is guarded)."""


def render(policy: Mapping[str, Any]) -> str:
    """Return the file's text, which parses to *policy*."""
    tables = ("default", "watch", "conditions", "launch", "route", *(("guard",) if policy["guard"] else ()))
    lines = [HEAD, *(_pair(key, value) for key, value in policy.items() if key not in tables)]
    lines += ["", DEFAULT, "[default]", *(_pair(key, value) for key, value in policy["default"].items())]
    lines += ["", WATCH, "[watch]", *(_pair(key, value, WATCHES.get(key)) for key, value in policy["watch"].items())]
    lines += ["", CONDITIONS, "[conditions]", *_lines(policy["conditions"])] if "conditions" in policy else []
    lines += ["", LAUNCH] if policy.get("launch") else []
    for one in policy.get("launch", ()):
        lines += ["[[launch]]", *_lines(one), ""]
    lines += ["", ROUTE, *(line for one in policy["route"] for line in _route(one))]
    lines += [GUARD, *(line for one in policy["guard"] for line in _guard(one))] if policy["guard"] else []
    return "\n".join(lines).rstrip() + "\n"


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pairs of a table, nested tables in one line each; empty ones are left out."""
    for key, value in table.items():
        if not isinstance(value, Mapping):
            yield _pair(key, value)
        elif value:
            yield f"{key} = {_inline(value)}"


def _route(route: Mapping[str, Any]) -> Iterator[str]:
    yield "[[route]]"
    tables = ("setting", "ladder", "measured", "region")
    units = {"warm_up_after": "s"}
    for key, value in route.items():
        if key == "warm_up":
            yield WARM_UP
        if key not in tables:
            yield _pair(key, value, units.get(key))
    yield "[route.setting]"
    yield from (_pair(key, value) for key, value in route["setting"].items())
    for lower in route.get("ladder", ()):
        yield "[[route.ladder]]"
        yield from (_pair(key, value) for key, value in lower.items())
    if "measured" in route:
        yield "[route.measured]"
        yield from (f"{name} = {_inline(figure)}" for name, figure in route["measured"].items())
    if "region" in route:
        yield REGION
        yield "[route.region]"
        yield from (f"{axis} = {_inline(bounds)}" for axis, bounds in route["region"].items())
    yield ""


def _guard(guard: Mapping[str, Any]) -> Iterator[str]:
    metric: Metric = WATCHED[guard["metric"]]
    units = {"at_least": metric.unit, "at_most": metric.unit, "for": "s", "over": "s", "missing_for": "s"}
    yield "[[guard]]"
    yield from (_pair(key, value, units.get(key)) for key, value in guard.items())
    yield ""


def _pair(key: str, value: Any, unit: str | None = None) -> str:
    line = tomli_w.dumps({key: value}).strip().replace("[\n    ", "[").replace(",\n]", "]").replace(",\n    ", ", ")
    readable = show(value, unit) if unit in {"s", "B"} else ""
    return f"{line}  # {readable}" if readable and readable != f"{value:g} {unit}" else line


def _inline(table: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(_pair(key, value) for key, value in table.items()) + " }"
