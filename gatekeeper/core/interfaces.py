"""The interfaces of a run to the world: requests, running systems, backends, observers and records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Event, Parting, Scored, Setting


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are sampled. A seed is sent only where it affects nothing but the sampling."""

    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int = 256
    thinking: bool | None = None
    """None: the template's own default."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """One request, complete: the prompt, the arm's setting and the sampling."""

    canary: Canary
    setting: Setting
    """With draft None: plain decoding."""
    sampling: SamplingParameters

    @property
    def draft(self) -> str | None:
        """Return the draft of this setting, None for plain decoding."""
        return dict(self.setting).get("draft")


class RunningSystem(Protocol):
    """A running worker or server; the caller that starts it closes it.

    `answer` always returns and raises nothing for a fault of the system. It may be called from as many threads at once
    as the backend's `streams` allows.
    """

    def answer(self, request: DecodeRequest) -> Answer:
        """Answer one request; a fault of the system is the answer's `fault`."""

    def pids(self) -> tuple[int, ...]:
        """Return the root processes of the system; their process trees are measured."""

    def alive(self) -> bool:
        """Return whether it can still answer."""

    def close(self) -> None:
        """End it gracefully and wait; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@runtime_checkable
class ReadsLogits(Protocol):
    """A running system of a backend whose sight has LOGITS."""

    def logit_gap(self, request: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return the target's best logit less its second after the prompt and *tokens*; None where it is not known."""


@dataclass(frozen=True, slots=True)
class ForcedPass:
    """What one pass of the target over a prompt and given tokens shows."""

    parted: tuple[Parting, ...]
    """Where its own greedy token is another one."""
    ended: bool
    """Plain decoding that wrote these tokens would end after the last one, and not before."""


@runtime_checkable
class ForcesTokens(Protocol):
    """A running system of a backend whose sight has FORCED."""

    def force(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> ForcedPass | None:
        """Let the target read the prompt and *tokens*, *width* at once; None where it could not."""


RoundPasses = tuple[tuple[int, ...], ...]
"""The passes of one answer: how many tokens each emitted, then the drafted tokens that it read and that were rejected.

A pass reads the last token before it, the emitted tokens but for the last one, and the rejected ones: `(1,)` is a pass
of plain decoding, `(3,)` two drafted tokens that were kept, `(1, 12, 7)` two that were rejected.
"""


@dataclass(frozen=True, slots=True)
class ReplayedRounds:
    """What the target shows of an answer that it reads again in given rounds."""

    parted: tuple[Parting, ...]
    """Where its greedy token in that pass is another than the answer's."""
    steady: bool | None
    """Whether a second reading gave the same bits; None: there was none."""
    nll: float
    """The sum of the tokens' negative log-likelihoods at temperature 1, in nats."""
    scores: tuple[tuple[float, ...], ...] = ()
    """Above temperature 0: a row a token, as `analysis.metrics.words.sampled_tokens` reads it."""


@dataclass(frozen=True, slots=True)
class TwoWidths:
    """An answer read in passes of one token, and in passes of several."""

    gaps: tuple[float, ...]
    """The best logit less the second at each token of the answer, in a pass of one token."""
    wide_gaps: tuple[float | None, ...]
    """The same two tokens in the wider pass: negative where the second leads; None where a third one does."""
    unit: float
    """The largest unit in the last place of a best logit, in the type of the logits."""
    nll: float
    """The sum of the tokens' negative log-likelihoods in passes of one token, in nats."""


@runtime_checkable
class ReplaysRounds(Protocol):
    """A running system of a backend whose sight has REPLAY."""

    def replay(
        self, request: DecodeRequest, tokens: tuple[int, ...], rounds: RoundPasses, *, twice: bool = False
    ) -> ReplayedRounds | None:
        """Let the target read *tokens* after the prompt in *rounds*, with their rollbacks; None where it could not."""

    def read_widths(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> TwoWidths | None:
        """Let the target read *tokens* one by one, and again *width* at once; None where it could not."""


@runtime_checkable
class TellsLogProbabilities(Protocol):
    """A running system of a backend whose sight has LOGPROBS."""

    def request_scores(self, request: DecodeRequest) -> Scored | None:
        """Answer a request with log-probabilities, without its workload, canary and arm; None where it cannot."""

    def continue_answer(self, request: DecodeRequest, beginning: Scored, tokens: int) -> Scored | None:
        """Return at most *tokens* tokens that follow *beginning*, which is read as a part of the prompt.

        None where the server cannot read the beginning of an answer, or reads it as other tokens.
        """


class Backend(Protocol):
    """A kind of system: starts systems, and knows what can be measured of them."""

    name: str
    clock: Clock
    sight: Sight
    """Expected of this kind of backend; checked with requests before a run."""
    shares_process: bool
    """One process serves both arms, at no cost to plain decoding."""
    streams: int
    """How many requests may be in flight at once."""
    knobs: frozenset[str]
    """The knobs it has."""
    restart_knobs: tuple[str, ...]
    """Knobs whose change needs another process; `residence` names it."""
    realtime: bool
    """False: time is virtual, so the host is sampled on the virtual clock."""
    caches: bool
    """It has a prompt cache that is off unless a system is started with it."""
    options: frozenset[str]
    """The options of a canary's request that it passes on."""
    uncached: bool
    """Its systems have no prompt cache, or it is switched off; False: only their answers can show it."""
    draft_hint: str
    """What to check if it decodes plainly although a draft is set."""

    def residence(self, setting: Setting) -> str:
        """Name the process that can answer *setting*; a different name means a restart."""

    def start(self, setting: Setting, *, cache: bool = False) -> RunningSystem:
        """Start a system that can answer *setting* (and plain, where the process is shared).

        *cache* leaves the prompt cache on, as deployed; only for a backend that `caches`.

        Raise GatekeeperError only for faults of gatekeeper or of the input, such as a missing program or model.
        """

    def versions(self) -> Mapping[str, str]:
        """Return the versions of what answers, for the manifest."""


Observer = Callable[[Event], None]
