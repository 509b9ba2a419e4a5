"""The facts of a backend: what the rest of gatekeeper asks about a server or a worker, by its name alone.

A server's facts are in its dialect, those of any other backend in FACTS of its module. Nothing of ours is imported
here: the facts of a worker program stand beside it, and it runs in environments that have none of our dependencies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gatekeeper.core.metrics.metric import Sight


@dataclass(frozen=True, slots=True)
class ModelStore:
    """The store in which a server keeps models of its own."""

    find: Callable[[str], Path | None]
    """Returns where a model is stored; None where it is not."""
    download: str
    """The command that downloads a model, before its name."""
    only: bool = False
    """A name is no file and no repository of the hub, even if it looks like one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """What is known of a backend before it is started."""

    name: str
    install: str = ""
    """How to get its program or package."""
    extra: str | None = None
    """The extra of gatekeeper's own package that installs it."""
    module: str | None = None
    """The Python module that it needs in this environment."""
    program: tuple[str, ...] = ()
    """The program on PATH, with its first arguments."""
    attached: str | None = None
    """The program of a server that gatekeeper attaches to and never starts."""
    console_script: str | None = None
    """The script that its package installs, where gatekeeper otherwise starts it as a module."""
    sight: "Sight | None" = None
    """A forecast of what answers show; None where its greeting tells."""
    switches: bool = False
    """Drafting is switched with each request, at no cost to plain decoding."""
    own_drafts: frozenset[str] = frozenset()
    """Drafts that are part of it, such as heads of the target or an n-gram look-up: there is no file to hash."""
    loads: Literal["folder", "GGUF"] | None = None
    """The models of this machine that `init` can pair for it; None: its models are made for it alone."""
    shipped: str | None = None
    """The name of the shipped SLO file with models for it."""
    keeps_models: ModelStore | None = None
    commands_name_files: bool = False
    """Its commands run in the SLO file's folder, and may name files there."""
    served_as: str | None = None
    """The server backend of the same library over HTTP, for one that runs in a worker process."""
    provider: str | None = None
    """Its `gen_ai.provider.name` in telemetry, where that is not its name."""
    one_forward_a_token: bool = False
    """Its draft model makes one forward pass for each token it proposes."""

    @property
    def installed_by(self) -> str:
        """Return the shortest way to install it."""
        return self.install if self.extra is None else f'pip install "gatekeeper-slo[{self.extra}]"'
