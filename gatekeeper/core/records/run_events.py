"""Events of a run: what happened, in events.jsonl."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Detail = Mapping[str, Any]
"""What an event says besides its kind; which keys it has is the kind's."""


class EventKind(StrEnum):
    """What happened. Each text has the keys of the detail besides `because`, the reason in words."""

    ANSWER = "answer"
    """An answer was recorded: `generation`, how many were `answered`, `of` how many."""
    ARTIFACT_CHANGED = "artifact_changed"
    """`model` changed on disk."""
    BASELINE_AGAIN = "baseline_again"
    """The baseline was measured again: `attempt`; `set_aside`: without the sweep before it."""
    BEGIN = "begin"
    """A process begins its part: `segment`, `run`, `by`, `build` (its CI job), expected seconds."""
    BLOCK = "block"
    """A block begins: `block`, `resident` or `soak`, `answers`."""
    BUSY = "busy"
    """Other programs use `cores` `of` all, `before` or `during` a stage."""
    CLOSING = "closing"
    """Quality canaries are requested again after a soak: `soak`, `answers`."""
    CONDITIONS = "conditions"
    """`facts` of the host before and after a `soak`."""
    CONTINUED = "continued"
    """A finished run goes on, which ended with its sweep."""
    DOUBT = "doubt"
    """Nothing can be promoted."""
    EXTENDED = "extended"
    """`--extend`: soaks of `soak_seconds` in all."""
    INTERRUPTED = "interrupted"
    """The run was interrupted in this `segment`."""
    LAUNCH = "launch"
    """The `servers` of a `soak`, and what a `request` must carry."""
    LOAD_DIED = "load_died"
    """The background load of `soak` ended."""
    READING = "reading"
    """The target has read tokens for a follow-up: how many were `answered`, `of` how many."""
    RESTING = "resting"
    """`seconds` of power at rest, before or after `soak`."""
    SAMPLE = "sample"
    """The host was sampled: `values`."""
    SAMPLER_DIED = "sampler_died"
    """The sampling of the host ended."""
    SOAKING = "soaking"
    """A `soak` begins: at least `seconds`, at most `most`."""
    STAGE = "stage"
    """A `stage` begins: its `settings`; of a soak `expected` seconds."""
    STOPPED = "stopped"
    """`trial` of `workload` needs no more answers; `kind`, `look`."""
    SUBJECT_DIED = "subject_died"
    """The system under test ended: `setting`, how often `in_a_row`."""
    SUBJECT_LOST = "subject_lost"
    """The system under test cannot be started any more."""
    TELEMETRY_FAILED = "telemetry_failed"
    """The collector lacks `stage`."""
    TELEMETRY_SENT = "telemetry_sent"
    """The collector has: `spans`, `points`, `seconds`, `endpoint`."""
    TRIES = "tries"
    """Other runs of the same here: `finished`, `not_passed`; `at_least`: maybe more."""
    VERDICT = "verdict"
    """The run is published: `outcome`, `exit_code`."""
    WARNING = "warning"
    """To know `about` something."""


RECORDED_ELSEWHERE = frozenset({EventKind.ANSWER, EventKind.READING, EventKind.SAMPLE, EventKind.VERDICT})
"""Kinds of events that have files of their own, so events.jsonl does not hold them."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: progress, a transition, an incident."""

    at: str
    """Wall time."""
    kind: EventKind
    """What happened: see *Kinds of events*."""
    detail: dict[str, Any]
    """What the kind says."""
