"""The page of a stored run, finished or under way."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.report.data.page_data import PageData, page_data
from gatekeeper.report.data.progress import Progress
from gatekeeper.run.stored.judge import conclude_run, load_run, policy_text


def load_page_data(path: Path) -> PageData:
    """Judge a stored run again and compute everything a page shows of it."""
    directory = RunDirectory(path)
    case, manifest, events = load_run(directory)
    verdict, policy, finished = conclude_run(case, path), policy_text(directory), events.trouble is None
    return page_data(case, verdict, events.records, finished=finished, manifest=manifest, policy=policy)


def load_live_page(path: Path) -> PageData:
    """Compute the page of a run that is under way: what was measured so far, and how far it is; nothing is decided."""
    case, manifest, events = load_run(RunDirectory(path))
    recorded = [*case.sweep.values(), *case.soaks.values()]
    planned = len(case.plan.requests)
    happened = [*events.records]
    for generation in (generation for file in recorded for generation in file.records):
        total = {"of": planned} if generation.trial in case.sweep else {}
        happened.append(Event(generation.at, EventKind.ANSWER, {"generation": generation, **total}))
    happened += [Event(sample.at, EventKind.SAMPLE, {"values": sample.values}) for sample in case.host_samples[-1:]]
    progress = Progress()
    for event in sorted(happened, key=lambda event: event.at):
        progress.update(event)
    page = page_data(case, conclude_run(case, path), events.records, finished=False, manifest=manifest, policy=None)
    now = progress.snapshot()
    counts = Counter(request.workload for request in case.plan.requests) if now.stage == "sweep" else {}
    return replace(page, progress=now, planned=counts, gaps=())
