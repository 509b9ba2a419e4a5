"""Records of readings: what the target makes of answers that are already given."""

from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Tie:
    """Where a candidate's greedy tokens first differ from plain decoding's, and how sure the target was."""

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    position: int
    """How many tokens both arms share."""
    shared: tuple[int, ...]
    """Those tokens."""
    plain_id: int
    """The token plain decoding gave next."""
    candidate_id: int
    """The token the candidate gave next."""
    gap: float | None
    """The best logit there less the second; None: unknown."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


class Parting(NamedTuple):
    """Where the target's own token is another than the one it read."""

    position: int
    """Its place in the answer, from 0."""
    target_id: int
    """The target's own token there."""
    gap: float | None
    """The best logit less that of the token read; None: unknown."""


@dataclass(frozen=True, slots=True)
class Forced:
    """One pass of the target over given tokens: where plain decoding would write another one."""

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    tokens: tuple[int, ...]
    """Those that it read after the prompt."""
    width: int
    """How many of them it read at once."""
    parted: tuple[Parting, ...] = ()
    """See *A parting*."""
    ended: bool = False
    """Plain decoding would end after the last one, and not before."""
    altered: int | None = None
    """The position of the token that was replaced, in a control."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A candidate's answer read again in its own rounds."""

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    key: str
    """The key of the answer, in the soak's record file."""
    arm: str = "candidate"
    """`plain`: read at once, for its likelihood alone."""
    positions: int = 0
    """How many tokens of the answer were read."""
    rounds: int = 0
    """How many passes read them."""
    impossible: str | None = None
    """Why its tokens cannot be of its rounds: then it was not read."""
    parted: tuple[Parting, ...] = ()
    """Greedy answers: where a token is not the best one of its pass."""
    steady: bool | None = None
    """Whether a second reading gave the same bits; None: read once."""
    nll: float | None = None
    """Sum of the tokens' negative log-likelihoods under the target, at temperature 1."""
    scores: tuple[tuple[float, ...], ...] = ()
    """Sampled answers: by token log p(token), log p(best), log Σp², log Σp^½."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """A plain answer at two kinds of passes: how far the best token's lead moves by arithmetic alone.

    In process: passes of one token against passes of `width` tokens. Over HTTP: while decoding against reading the same
    beginning as a prompt, where `width` is None.
    """

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    width: int | None
    """Positions that the wide pass reads at once."""
    positions: tuple[int, ...] = ()
    """Positions of the tokens that were read in both ways."""
    gaps: tuple[float, ...] = ()
    """The best logit less the second at each position, in plain decoding."""
    other_gaps: tuple[float | None, ...] = ()
    """The same tokens in the other pass: negative where the second leads, None where a third does."""
    unit: float = 0.0
    """The largest unit in the last place of a best logit; 0: unknown."""
    nll: float | None = None
    """Sum of the tokens' negative log-likelihoods in plain decoding."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


class Likely(NamedTuple):
    """A token that may stand at a place."""

    name: str
    """`#` and its number, else its text."""
    logprob: float
    """The logarithm of its probability."""


def token_number(name: str) -> int | None:
    """Return the number in a token's name; None where it is a text, which may begin with a `#` too."""
    digits = name.removeprefix("#")
    return int(digits) if name.startswith("#") and digits.isdecimal() and digits.isascii() else None


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer with log-probabilities, of its tokens and of the likeliest at each place."""

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    arm: str
    """`plain` or `candidate`."""
    text: str = ""
    """Reasoning and content."""
    tokens: tuple[str, ...] = ()
    """The name of each token, as in `Likely`."""
    logprobs: tuple[float, ...] = ()
    """The log-probability of each token."""
    likeliest: tuple[tuple[Likely, ...], ...] = ()
    """The likely tokens of each place, the likeliest first."""
    spelled: tuple[str, ...] = ()
    """The text of each token; empty where one is unknown."""
    prompt_tokens: int | None = None
    """As the server counts."""
    after: int = 0
    """It goes on from so many first tokens of the drafted answer, read as a prompt."""
    finish: str | None = None
    """stop | length; None: it never finished."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""

    @property
    def lead(self) -> tuple[float | None, str | None]:
        """Return by how much the likeliest token of the first place leads, and its name; None where it is not told."""
        likely = self.likeliest[0] if self.likeliest else ()
        return (likely[0].logprob - likely[1].logprob, likely[0].name) if len(likely) > 1 else (None, None)

    def first(self, count: int) -> "Scored":
        """Return the first *count* tokens of the answer."""
        return replace(
            self, tokens=self.tokens[:count], logprobs=self.logprobs[:count], likeliest=self.likeliest[:count],
            spelled=self.spelled[:count],
        )  # fmt: skip
