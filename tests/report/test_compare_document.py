"""The comparison of runs, in words."""

from gatekeeper.report.commands.compare_document import headlines
from gatekeeper.report.data.compared_runs import ComparedRun, ComparedWorkload, RunComparison, WorkloadResult


def test_a_run_that_decodes_plainly_is_named() -> None:
    """Speeds of drafting and of plain decoding are of two kinds: the headline says which run decodes what plainly."""
    run = ComparedRun("a", "s", "2026-01-01T00:00:00Z", "promoted", "demo", None, "scripted")
    drafting, plain = WorkloadResult("promoted", {"draft": "d"}), WorkloadResult("unproven", {"draft": None})
    workloads = tuple(ComparedWorkload(name, (), drafting, b, ()) for name, b in (("x", plain), ("y", drafting)))

    (headline,) = headlines([RunComparison(run, run, (), (), (), workloads)])

    assert ["B", "decodes", "x", "plainly,"] == headline.split()[-7:-3]
