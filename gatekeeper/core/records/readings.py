"""Records of readings: what the target makes of answers that are already given, and how long its passes take."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Tie:
    """Where a candidate's greedy tokens first diverge from plain decoding's, and how sure the target was there."""

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
    """The target's best logit there minus its second; None: unknown."""
    fault: str | None = None
    """Why it is unknown."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


class Parting(NamedTuple):
    """Where the target's own token is another than the one it was given to read."""

    position: int
    """In the answer, from 0."""
    target_id: int
    """The target's own token there."""
    gap: float | None
    """The target's best logit less that of the given token; None: unknown."""


@dataclass(frozen=True, slots=True)
class Forced:
    """One pass of the target over given tokens (teacher forcing): where plain decoding would write another one."""

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    tokens: tuple[int, ...]
    """Those that it read after the prompt."""
    parted: tuple[Parting, ...] = ()
    """Where its own token is another: see *A parting*."""
    ended: bool = False
    """Plain decoding that wrote these tokens would end after the last one, and not before."""
    altered: int | None = None
    """Of a control: the position of a token that was replaced, so that the target has to part from it."""
    width: int | None = None
    """Positions that are read at once; None: as many as the worker likes, which rules 1 and 2 left to it."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A candidate's answer read again round by round: the same widths, the same drafted tokens, the same rollbacks."""

    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    key: str
    """Of the answer, in the soak's record file."""
    arm: str = "candidate"
    """`plain`: an answer of plain decoding, read at once for its likelihood alone."""
    positions: int = 0
    """How many tokens of the answer were read."""
    rounds: int = 0
    """In how many passes."""
    impossible: str | None = None
    """Why its tokens cannot have come from the rounds that it reports: then it was not read."""
    parted: tuple[Parting, ...] = ()
    """Greedy answers: where an emitted token is not the best one of the pass that verified it."""
    steady: bool | None = None
    """Whether the same rounds, read twice, gave the same bits; None: they were read once."""
    nll: float | None = None
    """The sum of the tokens' negative log-likelihoods under the target, in nats, at temperature 1."""
    scores: tuple[tuple[float, ...], ...] = ()
    """Sampled answers: a row a token, of what it was sampled from: log p(token), log p(best), log Σp², log Σp^½."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """A plain answer at two kinds of passes: how far the lead of the best token moves although nothing was drafted.

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
    """Of the tokens of the answer whose place was read in both ways."""
    gaps: tuple[float, ...] = ()
    """By position: the best logit less the second, as plain decoding has them."""
    other_gaps: tuple[float | None, ...] = ()
    """The same two tokens in the other kind of pass: negative where the second leads; None where a third one does."""
    unit: float = 0.0
    """The largest unit in the last place of a best logit, in the type of the logits; 0: unknown."""
    nll: float | None = None
    """The sum of the plain tokens' negative log-likelihoods, in nats, as plain decoding has them."""
    fault: str | None = None
    """Why nothing is known."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""


class Likely(NamedTuple):
    """A token that may stand at a place of an answer."""

    name: str
    """`#` and its number where the server tells it, else its text."""
    logprob: float
    """The logarithm of its probability, in nats."""


def token_number(name: str) -> int | None:
    """Return the number in a token's name; None where it is a text, which may begin with a `#` too."""
    digits = name.removeprefix("#")
    return int(digits) if name.startswith("#") and digits.isdecimal() and digits.isascii() else None


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer with the log-probabilities of its tokens, and of the likeliest ones at each place."""

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
    """The logarithm of each token's probability, in nats."""
    likeliest: tuple[tuple[Likely, ...], ...] = ()
    """By place: the most likely tokens there, the likeliest first."""
    spelled: tuple[str, ...] = ()
    """The text of each token; empty where one is unknown."""
    prompt_tokens: int | None = None
    """How many tokens its prompt has, as the server counts."""
    after: int = 0
    """A plain answer that goes on from the drafted one's first so many tokens, which were read as a prompt."""
    finish: str | None = None
    """stop | length; None when the answer never finished."""
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


@dataclass(frozen=True, slots=True)
class PassTimes:
    """One turn of timed passes over the same cached beginning, in seconds; turns come one after the other."""

    plain: float
    """A token of plain decoding, before and after the passes."""
    passes: Mapping[int, float]
    """By width: a pass of the target over so many tokens, as a round verifies them."""
    rounds: Mapping[int, float] = field(default_factory=dict)
    """By draft length: a round of so many draft steps and the pass that verifies them; empty without a draft."""
