"""The errors that end a command: faults of gatekeeper, of its input or of this host."""

from collections.abc import Iterable

from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason

RESTORE_HINT = "restore the run from a copy, or certify again"
"""What to do where files of a run were changed or are damaged."""


class GatekeeperError(Exception):
    """An error that ends the command: `message` says what is wrong and where, `hint` what to do next."""

    exit_code = ExitCode.INTERNAL_ERROR
    after_document = False
    """The command has printed its document already: with --json, stdout holds that one alone."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # in a traceback, for people who call `gatekeeper.load`


class InputError(GatekeeperError):
    """The command line or an input file is wrong; nothing was run."""

    exit_code = ExitCode.BAD_INPUT


class StartError(InputError):
    """The system under test cannot be started; `cause` is the reason alone, without the command and the log."""

    def __init__(self, message: str, *, cause: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.cause = cause


class UnprovableError(GatekeeperError):
    """No run could prove an objective, by arithmetic or by the kind of backend; nothing was run."""

    exit_code = ExitCode.BAD_INPUT


class HostLacksError(GatekeeperError):
    """This host cannot prove an objective; another could."""

    exit_code = ExitCode.UNPROVEN


class OutOfTimeError(GatekeeperError):
    """The run was ended after `max_duration`; what was measured is stored."""

    exit_code = ExitCode.UNPROVEN


class UnresponsiveError(GatekeeperError):
    """The system under test runs and does not answer, or cannot be started in mid-run: it proves nothing."""

    exit_code = ExitCode.UNPROVEN


class NoProofError(GatekeeperError):
    """A stored run does not prove what a command needs; `reason` is the word that scripts rely on.

    The hint may hold `{slo}` and `{run}`, which `next` fills in.
    """

    exit_code = ExitCode.UNPROVEN

    def __init__(self, reason: Reason, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    def next(self, slo: object, run: object) -> str:
        """Return the hint with the paths of the SLO and of the run filled in."""
        return self.hint.replace("{slo}", str(slo or "SLO.toml")).replace("{run}", str(run or "RUN_DIR"))


class OtherRulesError(NoProofError):
    """A stored run was planned by other rules than this gatekeeper judges by; `frozen_at` is when it says it began."""

    def __init__(self, message: str, *, hint: str, frozen_at: str) -> None:
        super().__init__(Reason.OTHER_RULES, message, hint=hint)
        self.frozen_at = frozen_at


class InterruptedRun(KeyboardInterrupt):
    """An interrupt of a run; `hint` says how to continue it."""

    def __init__(self, hint: str) -> None:
        super().__init__(hint)
        self.hint = hint


def nearest_word(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that *word* may be a slip of the pen for; None where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 (most commands need no hint)

    names = sorted(candidates)
    near = [name for name in names if name.casefold() == word.casefold()]
    near = near or get_close_matches(word, names, n=1, cutoff=0.6)
    return near[0] if near else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint for an unknown *word*: the nearest known one, or all that are allowed."""
    names = sorted(candidates)
    near = nearest_word(word, names)
    return f"did you mean '{near}'?" if near is not None else f"allowed: {', '.join(names)}"
