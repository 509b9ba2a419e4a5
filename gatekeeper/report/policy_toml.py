"""The text of policy.toml, with a comment that explains each kind of block."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import tomli_w

from gatekeeper.core.metrics import WATCHED
from gatekeeper.core.policy import Guard, Policy, Route, setting_of
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
# How a certified server was started, in the folder of the SLO file: {port} is any free port, `python` is one that has
# the server, keys are hidden. Start the deployed server in the same way."""
ROUTE = """\
# One workload: whether it may speculate, and with which setting. `ladder` lists the settings to try before plain
# decoding, one after another, when a guard is violated; they were not soaked. Without a ladder, plain decoding is next.
# `measured` is what the soak measured: the reference where plain decoding cannot be measured. `models` are the names of
# the model in requests. Each `request` is what certified requests asked for: a proxy drafts only for requests with the
# sampling of [conditions], with all fields of one `request`, and with no other (gatekeeper explain reference/proxy)."""
WARM_UP = """\
# An obligation of whoever serves: the first token kept its bound only where a short request, whose answer is thrown
# away, went before the user's. Send one after each start, and before a user's request (when the user begins to type)
# that follows a pause of `warm_up_after` or longer."""
GUARD = """\
# One bound. Violated for longer than `for`, it moves its workloads one step down the ladder; a host guard moves all of
# them. `over` is the time range that is judged; after `missing_for` without data speculation is turned off. Only the
# host metrics of the SLO have guards; add others as needed (gatekeeper explain reference/watch)."""


def render(policy: Policy) -> str:
    """Return the file's text, which parses to *policy*."""
    document = policy.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"watch": {"on_change"}, "proxy": True}
    )
    lines = [HEAD, *(_pair(key, value) for key, value in document.items() if not isinstance(value, dict | list))]
    lines += [] if policy.guard else ["guard = []"]
    lines += ["", DEFAULT, "[default]", *_lines(document["default"])]
    lines += ["", WATCH, "[watch]", *_lines(document["watch"], WATCHES)]
    lines += ["", CONDITIONS, "[conditions]", *_lines(document["conditions"])]
    lines += ["", LAUNCH] if policy.launch else []
    for launch in document["launch"]:
        lines += ["[[launch]]", *_lines(launch), ""]
    lines += ["", ROUTE, *(line for route in policy.route for line in _route(route))]
    lines += [GUARD, *(line for guard in policy.guard for line in _guard(guard))] if policy.guard else []
    return "\n".join(lines).rstrip() + "\n"


def _lines(table: Mapping[str, object], units: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Yield the pairs of a table, nested tables in one line each; empty tables and lists are left out."""
    for key, value in table.items():
        if value not in ({}, []):
            yield f"{key} = {_inline(value)}" if isinstance(value, Mapping) else _pair(key, value, units.get(key))


def _route(route: Route) -> Iterator[str]:
    yield "[[route]]"
    document = route.model_dump(mode="json", exclude_defaults=True)
    for key, value in document.items():
        if key == "warm_up":
            yield WARM_UP
        if key not in {"setting", "ladder", "request", "measured"}:
            yield _pair(key, value, "s" if key == "warm_up_after" else None)
    yield "[route.setting]"
    yield from _lines(dict(setting_of(route.setting)))
    for step in route.ladder:
        yield "[[route.ladder]]"
        yield from _lines({"step": step.step, **dict(setting_of(step))})
    for request in document.get("request", ()):
        yield "[[route.request]]"
        yield from _lines(request)
    if "measured" in document:
        yield "[route.measured]"
        yield from _lines(document["measured"])
    yield ""


def _guard(guard: Guard) -> Iterator[str]:
    bound, unit = guard.bound, WATCHED[guard.metric].unit
    order = ("metric", bound, "for", "over", "missing_for", "why", "workloads")
    document = guard.model_dump(mode="json", by_alias=True, exclude_none=True)
    yield "[[guard]]"
    yield from _lines(
        {key: document[key] for key in order if key in document},
        {bound: unit, "for": "s", "over": "s", "missing_for": "s"},
    )
    yield ""


def _pair(key: str, value: Any, unit: str | None = None) -> str:
    line = tomli_w.dumps({key: value}).strip().replace("[\n    ", "[").replace(",\n]", "]").replace(",\n    ", ", ")
    readable = show(value, unit) if unit in {"s", "B"} else ""
    return f"{line}  # {readable}" if readable and readable != f"{value:g} {unit}" else line


def _inline(table: Mapping[str, object]) -> str:
    """Return a table in one line, with the tables in it."""
    pairs = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs.append(f"{_pair(key, 0).removesuffix('0')}{_inline(value)}")
        else:
            pairs.append(_pair(key, value))
    return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
