"""Numerics: plain answers read in two kinds of passes, which shows what the arithmetic alone does to the logits."""

from dataclasses import replace

from gatekeeper.analysis.passes.numerics import PlainReading
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import DecodeRequest, ReplaysRounds, RunningSystem, TellsLogProbabilities
from gatekeeper.core.records import Numerics, Scored
from gatekeeper.run.stages.tasks import PassTask


def send(task: PassTask[Numerics]) -> None:
    """Read the plain answers that are not recorded yet."""
    done = {(record.workload, record.canary, record.width) for record in task.recorded}
    missing = [
        reading
        for readings in task.needs.values()
        for reading in readings
        if (reading.workload, reading.canary, reading.width) not in done
    ]
    if not missing:
        return
    with task.open_client() as client:
        for number, reading in enumerate(missing, start=1):
            request = task.arm_request(reading.workload, reading.canary, "plain")
            client.open(request.setting, keep=True)
            at = stamp(task.backend.clock.wall())
            blank = Numerics(reading.workload, reading.canary, reading.width, segment=task.soak.segment, at=at)
            task.record(_read(blank, client.subject, request, reading))
            task.report_reading(number, len(missing))


def _read(blank: Numerics, subject: RunningSystem | None, request: DecodeRequest, reading: PlainReading) -> Numerics:
    if isinstance(subject, TellsLogProbabilities) and reading.scored is not None:
        return _places(blank, subject, request, reading.scored, reading.positions)
    widths = None
    if isinstance(subject, ReplaysRounds) and reading.width is not None:
        widths = subject.read_widths(request, reading.tokens, reading.width)
    if widths is None:
        return replace(blank, fault="the target could not read it")
    places = tuple(range(len(reading.tokens)))
    shown = {"gaps": widths.gaps, "other_gaps": widths.wide_gaps, "unit": widths.unit, "nll": widths.nll}
    return replace(blank, positions=places, **shown)


def _places(
    blank: Numerics, subject: TellsLogProbabilities, request: DecodeRequest, scored: Scored, positions: tuple[int, ...]
) -> Numerics:
    """Return the leads while decoding, and after the same beginning is read as a prompt.

    A beginning that the server reads as other tokens, because it was sent as text, is left out.
    """
    read, gaps, others = [], [], []
    for position in positions:
        best, second = scored.likeliest[position][:2]
        next_token = subject.continued(request, scored.first(position), 1)
        lead, name = (None, None) if next_token is None else next_token.lead
        if lead is not None:
            read.append(position)
            gaps.append(best.logprob - second.logprob)
            others.append({best.name: lead, second.name: -lead}.get(name or ""))
    if positions and not read:
        return replace(blank, fault="the server cannot read the beginning of an answer")
    return replace(blank, positions=tuple(read), gaps=tuple(gaps), other_gaps=tuple(others))
