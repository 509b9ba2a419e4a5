"""Near-duplicates among texts, by MinHash."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from gatekeeper.core.errors import InputError

SIMILAR = 0.8
"""Jaccard similarity of the word triples of two texts that count as one: the same template with another name in it."""
PERMUTATIONS = 128
_WORD = re.compile(r"\w+|[^\w\s]")
_LONGEST = 200_000
"""Characters of a text that are compared."""


class TextIndex:
    """Texts added so far, and which of them a further text nearly repeats."""

    def __init__(self, similar: float = SIMILAR) -> None:
        self._similar = similar
        lsh = _datasketch().MinHashLSH
        self._index: Any = lsh(threshold=similar, num_perm=PERMUTATIONS)
        self._hashes: list[Any] = []
        self._exact: dict[str, int] = {}

    def add(self, text: str) -> int | None:
        """Add *text*; or return the number of the most similar text before it, which it nearly repeats."""
        text = text.strip()
        if (same := self._exact.get(text)) is not None:
            return same
        made = _minhash(text)
        found = [(made.jaccard(self._hashes[number]), number) for number in self._index.query(made)]
        likeness, number = max(found, default=(0.0, -1), key=lambda one: (one[0], -one[1]))
        if likeness >= self._similar:
            return number
        self._exact[text] = len(self._hashes)
        self._index.insert(len(self._hashes), made)
        self._hashes.append(made)
        return None

    def nearest(self, text: str) -> int | None:
        """Return the number of the most similar text that *text* nearly repeats, without adding it."""
        made = _minhash(text.strip())
        found = [(made.jaccard(self._hashes[number]), number) for number in self._index.query(made)]
        likeness, number = max(found, default=(0.0, -1), key=lambda one: (one[0], -one[1]))
        return number if likeness >= self._similar else None


def _minhash(text: str) -> Any:
    made = _empty().copy()
    made.update_batch([part.encode("utf-8", "replace") for part in _triples(_WORD.findall(text[:_LONGEST].lower()))])
    return made


@cache
def _empty() -> Any:
    """Return the sketch of no words: drawing its permutations takes longer than a text."""
    return _datasketch().MinHash(num_perm=PERMUTATIONS)


def _triples(words: Sequence[str]) -> Iterable[str]:
    """Return the runs of three words; a shorter text is one run."""
    if len(words) < 3:
        return [" ".join(words)]
    return {" ".join(words[at : at + 3]) for at in range(len(words) - 2)}


def _datasketch() -> Any:
    try:
        import datasketch  # noqa: PLC0415 (the extra `canaries`)
    except ImportError as error:
        raise InputError(
            f"importing and checking canaries needs the package datasketch: {error}",
            hint="pip install 'gatekeeper-slo[canaries]'",
        ) from error
    return datasketch
