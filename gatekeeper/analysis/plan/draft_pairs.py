"""Pairs of the models on a machine: which drafts fit which target, the heaviest target first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gatekeeper.core.manifest import Model

WEIGHT_RATIO = 3
"""A target weighs at least this many times its draft. Decoding reads all weights, so a draft step costs about the
draft's share of a plain token: at a third, four drafted tokens cost more than the token they are meant to save."""
MOST_DRAFTS = 3
"""The heaviest, the lightest and one between: enough for the sweep to choose from, and for a lighter tier."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One model that could be a target or a draft."""

    model: Model
    backend: str
    """The backend that would serve it; both models of a pair have the same one."""
    chats: bool
    """It has a chat template, which a target needs because canaries are conversations."""


@dataclass(frozen=True, slots=True)
class ModelPair:
    """A target with its drafts, heaviest first."""

    backend: str
    target: Model
    drafts: tuple[Model, ...]


def model_pairs(candidates: Iterable[LocalModel]) -> list[ModelPair]:
    """Return every target that has drafts, the heaviest first.

    Vocabularies match where the token maps are equal; a model without a map fits none. For machines with less memory a
    target is listed again without its heaviest draft, and so on.
    """
    comparable = [local for local in candidates if local.model.tokens_sha256 is not None]
    pairs = []
    for target in sorted(comparable, key=lambda local: (-local.model.bytes, local.model.name)):
        fitting = [
            draft.model
            for draft in comparable
            if draft.backend == target.backend
            and draft.model.tokens_sha256 == target.model.tokens_sha256
            and draft.model.bytes * WEIGHT_RATIO <= target.model.bytes
        ]
        if target.chats:
            heaviest_first = sorted(fitting, key=lambda draft: (-draft.bytes, draft.name))
            pairs += [
                ModelPair(target.backend, target.model, _at_most_three(heaviest_first[skipped:]))
                for skipped in range(len(heaviest_first))
            ]
    return pairs


def _at_most_three(drafts: Sequence[Model]) -> tuple[Model, ...]:
    if len(drafts) <= MOST_DRAFTS:
        return tuple(drafts)
    return drafts[0], drafts[len(drafts) // 2], drafts[-1]
