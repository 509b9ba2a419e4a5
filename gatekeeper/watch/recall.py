"""Recall: where each route stands after a restart, or after its ladder was edited."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from gatekeeper.terms.records import Setting
from gatekeeper.verdict import vigil
from gatekeeper.verdict.vigil import Rules, Standing

SNAPSHOTS = frozenset({"begun", "policy", "state"})
"""Entries that tell where every route stands; what came before them need not be known."""
CHANGE = "change"

Standings = dict[str, Standing]
Known = dict[str, tuple[Standing, tuple[Setting, ...]]]
"""By workload: where its route stands, and the ladder that its rung counts on."""


def snapshot(verdict_sha256: str, standings: Mapping[str, Standing], rules: Mapping[str, Rules]) -> dict[str, Any]:
    """Return where every route stands, with the ladder that its rung counts on."""
    routes = [
        {"standing": asdict(standing), "rungs": [dict(rung) for rung in rules[name].rungs]}
        for name, standing in standings.items()
    ]
    return {"verdict_sha256": verdict_sha256, "routes": routes}


def known(entries: Iterable[Mapping[str, Any]], verdict_sha256: str) -> Known:
    """Return what *entries*, oldest first, tell of this certificate's routes; what can not be read is passed over."""
    known: Known = {}
    for entry in entries:
        if entry["kind"] in SNAPSHOTS:
            known = _told(entry) if entry.get("verdict_sha256") == verdict_sha256 else {}
        elif entry["kind"] == CHANGE:
            _follow(entry, known)
    return known


def restored(known: Known, rules: Mapping[str, Rules]) -> Standings:
    """Return where each route stands: one that nothing is *known* of begins as certified."""
    return {name: moved(*known[name], one) if name in known else Standing(name) for name, one in rules.items()}


def _told(entry: Mapping[str, Any]) -> Known:
    names = {field.name for field in fields(Standing)}
    found = {}
    for route in entry.get("routes") or ():
        try:
            standing = Standing(**{key: value for key, value in route["standing"].items() if key in names})
            rungs = tuple(tuple(sorted(rung.items())) for rung in route["rungs"])
        except (KeyError, TypeError, AttributeError):
            continue
        found[standing.workload] = standing, rungs
    return found


def _follow(entry: Mapping[str, Any], known: Known) -> None:
    try:
        change = vigil.change_of(entry)
    except ValueError:
        return
    if change.workload in known:
        standing, rungs = known[change.workload]
        known[change.workload] = vigil.after(standing, change), rungs


def moved(standing: Standing, before: tuple[Setting, ...], rules: Rules) -> Standing:
    """Return a standing on an edited ladder: the same setting where it is still a rung, else plain decoding.

    So an edit never turns anything on; it opens a way up.
    """
    setting = before[standing.rung] if 0 <= standing.rung < len(before) else None
    rung = rules.rungs.index(setting) if setting in rules.rungs else rules.plain
    return standing if rung == standing.rung else replace(standing, rung=rung)
