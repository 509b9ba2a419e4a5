"""What a watch continues from: its log and the overlay on disk. What cannot be read of them is not "as certified"."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from gatekeeper.core import parse
from gatekeeper.core.records import Setting
from gatekeeper.core.system import files
from gatekeeper.live.route_moves import RouteChange, RouteRules, Standing, after_change, step_of
from gatekeeper.live.watch_log import DAMAGED, STATE

CHANGE = "change"
SNAPSHOTS = frozenset({"begun", "policy", STATE})
"""Kinds of entries that hold the state of every route; earlier entries are not needed."""


@dataclass(frozen=True, slots=True)
class LoggedRoutes:
    """What a log says of the routes of one certificate."""

    routes: Mapping[str, tuple[Standing, tuple[Setting, ...]]] = field(default_factory=dict)
    """By workload: its standing, and the ladder that the step refers to."""
    damage: str | None = None
    """What cannot be read, and may have turned a route off; None if nothing."""


@dataclass(frozen=True, slots=True)
class PublishedRoutes:
    """What the overlay on disk says of the routes of one certificate."""

    routes: Mapping[str, tuple[Setting | None, str]] = field(default_factory=dict)
    """By workload: the setting that it may speculate with, None for plain decoding; and why."""
    damage: str | None = None


def snapshot(verdict_sha256: str, standings: Mapping[str, Standing], rules: Mapping[str, RouteRules]) -> dict[str, Any]:
    """Return the standing of every route, with the ladder that its step refers to."""
    routes = [
        {"standing": standing.document(), "steps": [dict(setting) for setting in rules[name].ladder]}
        for name, standing in standings.items()
    ]
    return {"verdict_sha256": verdict_sha256, "routes": routes}


def read_log(entries: Iterable[Mapping[str, Any]], verdict_sha256: str, *, is_new: bool = False) -> LoggedRoutes:
    """Return what *entries*, oldest first, say of this certificate; a log that *is_new* cannot say anything."""
    routes: dict[str, tuple[Standing, tuple[Setting, ...]]] = {}
    damage = None if is_new else "the log holds no state"
    for number, entry in enumerate(entries, start=1):
        try:
            if entry["kind"] in SNAPSHOTS:
                routes, damage = _routes_in(entry, verdict_sha256), None
            elif entry["kind"] == CHANGE:
                _apply_change(entry, routes)
            readable = entry["kind"] != DAMAGED
        except (ValueError, KeyError, TypeError, AttributeError):
            readable = False
        if not readable:
            damage = damage or f"line {number} of the log is damaged"
    return LoggedRoutes(routes, damage)


def _routes_in(entry: Mapping[str, Any], verdict_sha256: str) -> dict[str, tuple[Standing, tuple[Setting, ...]]]:
    """Return the routes of a snapshot; none if it is of another certificate. Raise for one that is damaged."""
    if not isinstance(entry["verdict_sha256"], str):
        raise TypeError("verdict_sha256 is not text")
    if entry["verdict_sha256"] != verdict_sha256:
        return {}
    routes = {}
    for route in entry["routes"]:
        standing = Standing.model_validate(route["standing"])
        routes[standing.workload] = standing, tuple(tuple(sorted(setting.items())) for setting in route["steps"])
    return routes


def _apply_change(entry: Mapping[str, Any], routes: dict[str, tuple[Standing, tuple[Setting, ...]]]) -> None:
    change = RouteChange.model_validate(entry)
    if change.workload in routes:
        standing, ladder = routes[change.workload]
        routes[change.workload] = after_change(standing, change), ladder


class _Route(BaseModel):
    workload: str
    speculation: bool = Field(strict=True)
    because: str
    setting: dict[str, Any]


class _Overlay(BaseModel):
    schema_: Literal[1, 2] = Field(alias="schema")
    verdict_sha256: str
    route: list[_Route]


def read_overlay(path: Path, verdict_sha256: str) -> PublishedRoutes:
    """Return what the overlay at *path* says of this certificate; one that is missing or of another says nothing."""
    try:
        overlay = _Overlay.model_validate(parse.toml_table(files.read_regular(path).decode()))
    except FileNotFoundError:
        return PublishedRoutes()
    except (OSError, ValueError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        reason = f"{first['loc'][0]}: {first['msg']}" if first else getattr(error, "strerror", None) or str(error)
        return PublishedRoutes(damage=f"the overlay {path} cannot be read: {reason}")
    if overlay.verdict_sha256 != verdict_sha256:
        return PublishedRoutes()
    return PublishedRoutes(
        {
            route.workload: (tuple(sorted(route.setting.items())) if route.speculation else None, route.because)
            for route in overlay.route
        }
    )


def restored_standing(
    name: str, rules: RouteRules, logged: LoggedRoutes, published: PublishedRoutes, at: str
) -> Standing:
    """Return where the route *name* continues: at the lower of the steps in its log and in the overlay.

    Off if neither can be read: a damaged log needs the overlay, and a log that does not know the route needs an overlay
    that is missing, of another certificate, or sound. On an edited ladder a step is that of the same setting.
    """
    logged_route = logged.routes.get(name)
    logged_standing = on_ladder(*logged_route, rules) if logged_route is not None else Standing(workload=name)
    setting, because = published.routes.get(name, (None, ""))
    if name in published.routes:
        step = rules.plain if setting is None else _published_step(setting, rules)
    elif logged.damage is not None or (logged_route is None and published.damage is not None):
        step, because = rules.plain, f"{logged.damage or published.damage}: off until every guard is kept again"
    else:
        return logged_standing
    if step <= logged_standing.step:
        return logged_standing
    return logged_standing.model_copy(update={"step": step, "trying": False, "because": because, "at": at})


def _published_step(setting: Setting, rules: RouteRules) -> int:
    """Return the step of a setting as the overlay writes one: without the knobs that have no value."""
    written = [tuple((knob, value) for knob, value in step if value is not None) for step in rules.ladder]
    return written.index(setting) if setting in written else rules.plain


def on_ladder(standing: Standing, before: tuple[Setting, ...], rules: RouteRules) -> Standing:
    """Return a standing on an edited ladder: the same setting if it is still a step, else plain decoding.

    So an edit never turns speculation on; it only allows a later step up.
    """
    setting = before[standing.step] if 0 <= standing.step < len(before) else None
    return standing.model_copy(update={"step": step_of(setting, rules)})
