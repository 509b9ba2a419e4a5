"""Exit codes: what a command ends with."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command ends with. A fault of the system under test is not an error: it is recorded and judged."""

    OK = 0
    """Promoted, admitted, or done."""
    OBJECTIVE_FAILED = 1
    """A workload failed an objective, or requires speculation and was graded back."""
    BAD_INPUT = 2
    """The command line, an SLO, a canary or a model folder is wrong, what it names cannot be reached, or no run could
    prove an objective."""
    UNPROVEN = 3
    """Evidence is missing, or this host cannot provide it."""
    INTERNAL_ERROR = 4
    """gatekeeper failed, for instance by a bug or on a full disk."""
    INTERRUPTED = 130
    """Ctrl-C or SIGTERM; `--resume` continues a run on the same host."""
