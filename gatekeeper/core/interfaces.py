"""Where the world comes in: what stages ask of a backend, a subject and an observer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer, Event, Setting


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are drawn. A seed is sent only where it changes nothing but the draw."""

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
    """A live worker or server; whoever starts it closes it.

    `answer` may be called from several threads at once where the backend's `streams` allows it, never raises for
    what the subject does, and always returns.
    """

    def answer(self, ask: DecodeRequest) -> Answer:
        """Answer one request; what goes wrong with the subject is the answer's `fault`."""

    def pids(self) -> tuple[int, ...]:
        """Return the root processes of the subject, whose trees are measured."""

    def alive(self) -> bool:
        """Tell whether it can still answer."""

    def close(self) -> None:
        """End it gracefully and wait; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@runtime_checkable
class ReadsLogits(Protocol):
    """A subject of a backend whose sight has LOGITS."""

    def logit_gap(self, ask: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return the target's best logit less its second after the prompt and *tokens*; None where it cannot tell."""


class Backend(Protocol):
    """A kind of subject. It starts subjects and says what can be seen of them."""

    name: str
    clock: Clock
    sight: Sight
    """A forecast, from the kind of backend alone; the freeze stage probes it."""
    shares_process: bool
    """One process serves both arms at no cost to the plain one."""
    streams: int
    """How many answers may be under way at once."""
    knobs: frozenset[str]
    """The knobs it can turn."""
    restart_knobs: tuple[str, ...]
    """Another value of these needs another process; `residence` names it."""
    realtime: bool
    """False: time is virtual, so the host is sampled on the virtual clock."""
    caches: bool
    """It has a prompt cache that is off unless a subject is started with it."""
    uncached: bool
    """Its subjects have no prompt cache, or one that is switched off; False: only their answers can tell."""
    silent: str
    """What to look at where it decodes plainly although a draft is set."""

    def residence(self, setting: Setting) -> str:
        """Name the process that can answer *setting*; another name means a restart."""

    def start(self, setting: Setting, *, cache: bool = False) -> RunningSystem:
        """Start a subject that can answer *setting* (and plain, where the process is shared).

        *cache* leaves the prompt cache on, as deployed; only a backend that `caches` is asked for it.

        Raise GatekeeperError only for what is ours or the user's: a missing program, a model that is not there.
        """

    def versions(self) -> Mapping[str, str]:
        """Return the versions of what answers, for the manifest."""


Observer = Callable[[Event], None]
Record = Callable[[Any], None]
