"""One page of each kind, of the runs that older versions wrote."""

import math
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from gatekeeper.analysis.verdict.cached_contexts import CachedContext
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.judgement import Estimate, Missing, Outcome
from gatekeeper.deploy import compare, history
from gatekeeper.fleet.cell_task import CellResult, CellWorkload
from gatekeeper.fleet.fleet_document import fleet_document
from gatekeeper.fleet.fleet_record import FleetRecord
from gatekeeper.live import proxy_page
from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.live_evidence import Observation
from gatekeeper.live.live_records import EndedRequest
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.proxy_page import LiveDay
from gatekeeper.live.request_routes import RequestDecision, RequestRoutes
from gatekeeper.report.commands.compare_document import compared_document
from gatekeeper.report.commands.history_document import history_document
from gatekeeper.report.html import page
from gatekeeper.report.html.document_page import render_page
from gatekeeper.run.stored.stored_page import load_live_page, load_page_data
from gatekeeper.run.stored.stored_policy import stored_policy
from tests.builders.fleet import make_fleet_cell
from tests.builders.page_data import PAGE

GOLDEN = Path(__file__).parents[1] / "golden" / "runs"
SECOND, NOW = 10**9, datetime(2026, 1, 1, tzinfo=UTC)
SORTED = (*["json default"] * 16, "tools rule 1", "random rule 2", "unknown header")
"""Workloads of live requests, and what sorted them there."""


def run_page(name: str) -> str:
    """Return the report of a golden run."""
    return page.render(load_page_data(GOLDEN / name))


def warm_cache_page() -> str:
    """Return the report of a run with turns on a warm cache: short contexts gain, in long ones most turns failed."""
    short = CachedContext(
        least=162, most=488, conversations=8, turns=24, failed=0, outcome=Outcome.PASS,
        ratio=Estimate(1.88, 1.73, 2.04, 8), first_token=Estimate(0.04, 0.01, 0.07, 8),
        ttft={"candidate": 0.052, "plain": 0.05}, acceptance=Estimate(0.71, 0.6, 0.8, 8),
    )  # fmt: skip
    long = replace(
        short, least=651, most=977, failed=20, outcome=Outcome.UNPROVEN, ratio=Missing("20 of 24 pairs are lost"),
        first_token=Missing("too few conversations"), ttft={}, acceptance=Missing("no answer has a value for it"),
    )  # fmt: skip
    json, *others = PAGE.verdict.workloads
    json = replace(json, measured=replace(json.measured, contexts=(short, long)))
    return page.render(replace(PAGE, verdict=replace(PAGE.verdict, workloads=(json, *others))))


def live_page() -> str:
    """Return the page of a run that is in its sweep."""
    with TemporaryDirectory() as folder:
        run = Path(shutil.copytree(GOLDEN / "promoted", Path(folder) / "run"))
        for path in (run / name for name in ("soak-1.jsonl", "warm_cache-1.jsonl", "verdict.json")):
            path.unlink(missing_ok=True)
        for path in run.glob("*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            if path.name == "events.jsonl":
                lines = list(takewhile(lambda line: '"soak-1"' not in line, lines))
            elif path.name != "host.jsonl":
                lines = lines[: int(0.7 * len(lines))]
            path.write_text("".join(lines))
        return page.render(load_live_page(run))


def fleet() -> FleetRecord:
    """Return a fleet in which a run was promoted, one failed, one gave no verdict, and one has not ended."""
    workload = CellWorkload(name="json", outcome="promoted", because="faster", ratio=(1.5, 1.4, 1.6))
    promoted = CellResult(exit_code=0, outcome="promoted", workloads=(workload,), run=str(GOLDEN / "promoted"))
    slow = CellWorkload(name="json", outcome="failed", because="slower", ratio=None)
    failed = CellResult(exit_code=1, outcome="failed", workloads=(slow,), run=str(GOLDEN / "failed"))
    lost = CellResult(exit_code=3, error="no route to host studio", hint="ssh studio must work")
    cells = (
        make_fleet_cell("chat@studio", result=promoted),
        make_fleet_cell("chat@mini", result=failed),
        make_fleet_cell("code@studio", result=lost),
        make_fleet_cell("code@mini"),
        make_fleet_cell("code@air", excluded=("8 GB of memory, 16 GB needed",)),
    )
    policies = {"chat": "runs/fleet/policy-chat.toml", "code": "none, not proven: code@studio"}
    return FleetRecord(started="2026-01-01T00:00:00Z", cells=cells, policies=policies)


def proxied(hours: float = 9, requests: int = 1200) -> tuple[RequestRoutes, LiveDay, int]:
    """Return the routes of a proxy, what its requests were, and the time: `tools` has too few to prove anything."""
    policy = stored_policy(GOLDEN / "promoted")
    assert policy is not None
    end = round(hours * 3600 * SECOND)
    routes, day, draws = RequestRoutes(now_ns=lambda: end), LiveDay(0), random.Random(7)
    overlay = [OverlayRoute(part.workload, part.speculation, part.because, part.steps[0]) for part in policy.route]
    routes.publish(policy, overlay, {}, 10 * end, dialect_of("mlx-server"))
    for number in range(requests):
        now_ns = number * end // requests
        workload, _, rule = draws.choice(SORTED).partition(" ")
        arm = "holdout" if number % 21 == 0 else "speculative"
        drafted = arm == "speculative" and workload in {"json", "tools"}
        speed = 45 * (1.7 if drafted else 1) * math.exp(draws.gauss(0, 0.2))
        decision = RequestDecision(workload, rule, drafted, "made", arm)
        meter = AnswerMeter(now_ns, first_ns=now_ns + SECOND, last_ns=now_ns + SECOND + round(99 / speed * SECOND))
        day.add(
            EndedRequest(
                "POST", NOW, meter, LiveRequest("/v1/chat/completions"), decision,
                target="speculative" if drafted else "plain", tokens=None if number % 9 == 0 else 100,
            ),
            now_ns,
        )  # fmt: skip
        if workload in {"json", "tools"}:
            ttft = 0.2 * math.exp(draws.gauss(0, 0.1))
            routes.evidence.add(Observation(workload, arm, 1, str(number), 400, True, speed, ttft, False), now_ns)
    return routes, day, end


PAGES: Mapping[str, Callable[[], str]] = {
    kind: cache(render)
    for kind, render in {
        "promoted": lambda: run_page("promoted"),
        "failed": lambda: run_page("failed"),
        "unproven": lambda: run_page("unproven"),
        "graded-back": lambda: run_page("graded_back"),
        "warm_cache": warm_cache_page,
        "live": live_page,
        "proxy": lambda: proxy_page.render(*proxied()),
        "fleet": lambda: render_page(fleet_document(fleet())),
        "history": lambda: render_page(history_document(history.history(GOLDEN))),
        "comparison": lambda: render_page(
            compared_document(compare.compare([GOLDEN / "promoted", GOLDEN / "promoted"]))
        ),
    }.items()
}
"""Each is rendered once, whatever tests look at it."""
