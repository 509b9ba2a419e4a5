"""What gatekeeper itself, its user or this host got wrong; what the subject does wrong is a record instead.

GatekeeperError            4   gatekeeper failed: a bug, a full disk
├── InputError             2   a command line, an SLO, a canary or a model folder is wrong
├── UnprovableError        2   a promise that no run could ever prove
├── HostLacksError         3   this host lacks or denies what a promise needs
└── NoProofError           3   a stored run does not prove what was asked of it
"""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum


class GatekeeperError(Exception):
    """Something that ends the command: `message` says what and where, `hint` what to do next."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(GatekeeperError):
    """The command line or an input file is wrong; nothing was run."""

    exit_code = 2


class UnprovableError(GatekeeperError):
    """Arithmetic or the kind of backend excludes a promise everywhere; nothing was run."""

    exit_code = 2


class HostLacksError(GatekeeperError):
    """Only this host cannot prove the promise; another could."""

    exit_code = 3


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


class NoProofError(GatekeeperError):
    """A stored run does not prove what was asked of it; `reason` says so in one word that a script may rely on.

    Its hint may hold `{slo}` and `{run}`, which `next` fills in.
    """

    exit_code = 3

    def __init__(self, reason: Reason, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    def next(self, slo: object, run: object) -> str:
        """Return the hint with the names it speaks of."""
        return self.hint.replace("{slo}", str(slo or "SLO.toml")).replace("{run}", str(run or "RUN_DIR"))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Name the nearest known word as a question, or list what is allowed."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else f"allowed: {', '.join(names)}"
