"""The routes: what is taken out of a policy and put back was not forgotten meanwhile."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gatekeeper.core.clock import Instant
from gatekeeper.core.policy import Policy
from gatekeeper.live.overlay import PublishedRoutes
from gatekeeper.live.routes import LoggedRoutes, Routes, read_log
from tests.builders.watch import CONDITIONS

NOW = Instant(0, datetime(2026, 1, 1, tzinfo=UTC))
VERDICT = "0" * 64


def policy(*workloads: str) -> Policy:
    setting = {"draft": "heavy", "num_draft_tokens": 4}
    return Policy.model_validate(
        {
            "schema": 1,
            "slo": "m4",
            "grade": "demo",
            "manifest_sha256": VERDICT,
            "verdict_sha256": VERDICT,
            "issued": "2026-01-01T00:00:00Z",
            "expires": "2026-02-01T00:00:00Z",
            "conditions": CONDITIONS,
            "route": [{"workload": workload, "speculation": True, "setting": setting} for workload in workloads],
        }
    )


def routes(*workloads: str) -> Routes:
    return Routes(policy(*workloads), switched=False, now=NOW)


def restarted(before: Routes, *workloads: str) -> Routes:
    """Return the routes of a watch that continues from the log of another."""
    entry: dict[str, Any] = {"kind": "begun", **before.snapshot(VERDICT)}
    again = routes(*workloads)
    again.restore(read_log([entry], VERDICT), PublishedRoutes(), NOW)
    return again


def test_a_route_that_is_taken_out_is_a_change() -> None:
    """A route without its block decodes plainly, which the log and the commands get like any other step."""
    watched_routes = routes("json", "chat")

    changes = watched_routes.edit(policy("chat"), NOW)

    assert [("json", "off")] == [(change.workload, change.kind) for change in changes]
    assert "the policy was edited" in changes[0].because


@pytest.mark.parametrize("between", [("chat",), ("json", "chat")])
def test_a_route_that_is_put_back_has_to_earn_its_way(between: tuple[str, ...]) -> None:
    """Taken out and put back, at once or over restarts, a route is not simply as certified again."""
    watched_routes = routes("json", "chat")
    watched_routes.edit(policy("chat"), NOW)
    again = restarted(watched_routes, *between)
    changes = again.edit(policy("json", "chat"), NOW)

    assert "try" not in {change.kind for change in changes}
    assert [False, True] == [again.overlay_route(name).speculation for name in ("json", "chat")]


def test_what_bars_a_route_outlives_its_block() -> None:
    """Another model, once seen, bars a route until another certificate, its block taken out for a while or not."""
    watched_routes = routes("json", "chat")
    for name in ("json", "chat"):
        watched_routes.bar(name, "another model answers", NOW)
    watched_routes.edit(policy("chat"), NOW)
    again = restarted(restarted(watched_routes, "chat"), "json", "chat")

    assert ["another model answers"] * 2 == [standing.barred for standing in again.standings.values()]
    assert [] == again.watched


def test_a_log_of_another_certificate_says_nothing() -> None:
    """What was turned off under another verdict is not known here."""
    before = routes("json")
    before.bar("json", "another model answers", NOW)

    assert LoggedRoutes() == read_log([{"kind": "begun", **before.snapshot("1" * 64)}], VERDICT)
