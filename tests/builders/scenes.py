"""Scenes made by hand: whole runs that end in each outcome, to be rendered without a run directory."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.conclude import conclude
from gatekeeper.core.records import Event, HostSample, Reading
from gatekeeper.core.verdict import Verdict
from gatekeeper.report.data.page import PageData, page_data
from tests.builders.case import LOSING, SOAK_S, WINNING, Made, bare, with_soak
from tests.builders.slo import SECOND, objective

GOLDEN = Path(__file__).parents[1] / "report" / "golden"
MIXED = {"easy": WINNING, "hard": LOSING}
PROMISES = (
    objective("throughput_ratio", at_least=1.1),
    objective("ttft", at_most=0.2, why="a person waits for it | <now>"),
    objective("memory_headroom", at_least=10e9),
)
POLICY = 'schema = 1\nslo = "made"\n\n[[route]]\nworkload = "easy"\nspeculation = true\n'
MANIFEST: dict[str, Any] = {
    "schema": 1,
    "slo": {"name": "made.toml", "sha256": "a" * 64, "count": None},
    "profile": {"name": "steady.toml", "sha256": "b" * 64, "count": None},
    "canaries": {"easy": {"name": "easy.jsonl", "sha256": "c" * 64, "count": 8}},
    "backend": "scripted",
    "target": {"name": "t", "quantisation": "4-bit g64", "bytes": 4_400_000_000, "digest": "d" * 64},
    "drafts": [],
    "versions": {"gatekeeper": "0.0.0", "python": "3.11.2"},
    "host": {"chip": "Apple M4", "memory_bytes": 24 * 2**30, "platform": "macos", "os": "26.1"},
    "frozen_at": "2026-01-01T00:00:00.000000Z",
}


def soaked(workloads: Mapping[str, Made], *, soaks: int = 9, **changes: Any) -> Case:
    """Return a case with as many soaks as it needs, or only the first *soaks*."""
    case = bare(workloads, optional=("hard",), objectives=PROMISES, confidence=0.9, **changes)
    for _ in range(soaks):
        needs = conclude(case).needs
        if not needs:
            break
        for leg in needs:
            case = with_soak(case, leg, {name: workloads[name] for name in leg.settings})
            case = replace(case, host_samples=(*case.host_samples, *samples(leg.name)))
    return case


@cache
def whole() -> Case:
    """Return a run that ended: `easy` speculates, `hard` decodes plainly, as it may."""
    return soaked(MIXED)


def samples(phase: str, headroom: float = 14e9) -> tuple[HostSample, ...]:
    """Return ten minutes of a host that has room, with one second of pressure."""
    found = []
    for second in range(SOAK_S + 1):
        values = {
            "memory_headroom": Reading(headroom - 1e6 * second, "B", "made", "ok", 0.0),
            "swap_used": Reading(0.0, "B", "made", "ok", 0.0),
            "memory_pressure_level": Reading(2.0 if second == 300 else 1.0, "1", "made", "ok", 0.0),
            "thermal_level": Reading(None, "1", "made", "denied"),
        }
        at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z"
        found.append(HostSample(at, second * SECOND, values, phase=phase))
    return tuple(found)


def event(second: int, kind: str, **detail: Any) -> Event:
    return Event(f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z", kind, detail)


HAPPENED = (
    event(0, "begin", segment=0, slo="made"),
    event(0, "stage", stage="soak", soak="soak-1"),
    event(200, "subject_died", because="signal 9"),
)


def staged(case: Case, *, finished: bool = True, policy: str | None = POLICY, **changes: Any) -> PageData:
    """Return the scene of a case; *changes* replace fields of its verdict."""
    verdict: Verdict = replace(conclude(case).verdict, **changes)
    happened = HAPPENED if finished else (*HAPPENED, event(210, "interrupted", segment=0))
    return page_data(case, verdict, happened, finished=finished, manifest=MANIFEST, policy=policy)


def like_golden(name: str, text: str) -> None:
    """Compare *text* with a stored file; GATEKEEPER_GOLDEN=write stores it instead, for its diff to be reviewed."""
    path = GOLDEN / name
    if os.environ.get("GATEKEEPER_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
