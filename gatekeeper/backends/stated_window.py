"""The context window that a running server states: how many tokens a prompt and its answer may have together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.parse import ParseError, json_value

_NAMES = ("id", "name", "model")
"""Keys of a model's name in a list of models."""


@dataclass(frozen=True, slots=True)
class StatedWindow:
    """The place of the window in a server's documents; by default where servers of the OpenAI protocol state it."""

    path: str = "/v1/models"
    models: str | None = "data"
    """The key of the list of models; None: the document is about the one model that is served."""
    keys: tuple[str, ...] = ("max_model_len",)
    option: str | None = None
    """What raises it."""

    def read(self, text: str | None, target: str) -> int | None:
        """Return the window that a document states for *target*; None where it is unclear whose it is."""
        try:
            document = json_value(text or "{}", from_server=True)
        except ParseError:
            return None
        if self.models is not None:
            listed = document.get(self.models) if isinstance(document, dict) else None
            models = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
            matching = [model for model in models if any(_is(model.get(key), target) for key in _NAMES)]
            document = (matching or models)[0] if len(matching or models) == 1 else None
        return _number(document, self.keys)


def _is(name: object, target: str) -> bool:
    return isinstance(name, str) and target in {name, name.removesuffix(":latest")}


def _number(document: Any, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, int) and not isinstance(document, bool) and document > 0 else None
