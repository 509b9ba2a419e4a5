"""Numerics: plain answers read at two kinds of passes, which shows what the arithmetic alone does to the logits."""

from dataclasses import replace

from gatekeeper.analysis.metrics.words.near_ties import known_tokens
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import ReplaysRounds
from gatekeeper.core.records import Numerics
from gatekeeper.run.requests import PassTask


def send(task: PassTask[Numerics]) -> None:
    """Read the plain answers that are not recorded yet, at both widths."""
    done = {(record.workload, record.canary, record.width) for record in task.recorded}
    missing = [
        reading
        for readings in task.needs.values()
        for reading in readings
        if (reading.generation.workload, reading.generation.canary, reading.width) not in done
    ]
    if not missing:
        return
    with task.open_client() as client:
        for number, reading in enumerate(missing, start=1):
            request = task.plain_request(reading.generation)
            client.open(request.setting, keep=True)
            tokens, subject = known_tokens(reading.generation.answer), client.subject
            generation, width = reading.generation, reading.width
            record = Numerics(
                generation.workload, generation.canary, width, segment=task.soak.segment,
                at=stamp(task.backend.clock.wall()),
            )  # fmt: skip
            readable = isinstance(subject, ReplaysRounds) and tokens
            widths = subject.read_widths(request, tokens, width) if readable else None
            if widths is None:
                record = replace(record, fault="the target could not read it")
            else:
                record = replace(
                    record, positions=tuple(range(len(tokens))), gaps=widths.gaps, other_gaps=widths.wide_gaps,
                    unit=widths.unit, nll=widths.nll,
                )  # fmt: skip
            task.record(record)
            task.report_reading(number, len(missing))
