"""The reason words of `admit`, which scripts rely on: what it answers, and why a stored run proves nothing."""

from enum import StrEnum


class Reason(StrEnum):
    """What `admit` answers, and why a stored run proves nothing: words that scripts rely on."""

    ADMITTED = "admitted"
    BROKEN_PROMISE = "broken_promise"

    NO_RUN = "no_run"
    UNFINISHED = "unfinished"
    TAMPERED = "tampered"
    UNREADABLE = "unreadable"
    UNPROVEN = "unproven"
    EXPIRED = "expired"
    DEMO = "demo"
    OTHER_SLO = "other_slo"
    OTHER_INPUTS = "other_inputs"
    OTHER_ARTIFACTS = "other_artifacts"
    OTHER_HOST = "other_host"
    UNSIGNED = "unsigned"
    NO_ARTIFACTS = "no_artifacts"

    # How a run on a remote host ended without a verdict of its own.
    CANCELLED = "cancelled"
    DAMAGED = "damaged"
    DIED = "died"
    DISAGREEMENT = "disagreement"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    REBOOTED = "rebooted"
