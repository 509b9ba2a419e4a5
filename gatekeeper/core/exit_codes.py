"""Exit codes: what a command ends with, and in which words it is said everywhere."""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """What a command ends with. A fault of the system under test is not an error: it is recorded and judged."""

    words: str
    """What it means, in the fewest words."""
    means: str
    """What it means, in a sentence."""
    remedy: str
    """What to do then."""

    def __new__(cls, code: int, words: str = "", means: str = "", remedy: str = "") -> Self:
        """Make the number that a process ends with."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.words, member.means, member.remedy = words, means, remedy
        return member

    OK = (
        0, "safe to deploy",
        "Promoted, admitted, or done.",
        "deploy policy.toml",
    )  # fmt: skip
    OBJECTIVE_FAILED = (
        1, "an objective failed",
        "A workload failed an objective, or requires speculation and was graded back.",
        "read which in the report: gatekeeper open RUN",
    )  # fmt: skip
    BAD_INPUT = (
        2, "wrong input",
        "The command line, an input file or a model is wrong or cannot be reached, or no run could prove an objective.",
        "follow the hint below the message",
    )  # fmt: skip
    UNPROVEN = (
        3, "unproven: evidence is missing",
        "Evidence is missing, or this host cannot provide it.",
        "see what to do: gatekeeper report RUN",
    )  # fmt: skip
    INTERNAL_ERROR = (
        4, "gatekeeper itself failed",
        "gatekeeper failed, for instance by a bug or on a full disk.",
        "follow the hint below the message; report a bug with its traceback",
    )  # fmt: skip
    INTERRUPTED = (
        130, "interrupted",
        "Ctrl-C or SIGTERM; `--resume` continues a run on the same host.",
        "continue the run: gatekeeper certify SLO.toml --resume --output RUN",
    )  # fmt: skip
