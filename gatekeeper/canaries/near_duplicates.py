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
        if (number := self._exact.get(text)) is not None:
            return number
        sketch = _minhash(text)
        if (number := self._most_alike(sketch)) is not None:
            return number
        self._exact[text] = len(self._hashes)
        self._index.insert(len(self._hashes), sketch)
        self._hashes.append(sketch)
        return None

    def nearest(self, text: str) -> int | None:
        """Return the number of the most similar text that *text* nearly repeats, without adding it."""
        return self._most_alike(_minhash(text.strip()))

    def _most_alike(self, sketch: Any) -> int | None:
        """Return the number of the text that is most like *sketch*, the first of equals; None where none is enough."""
        alike = [(sketch.jaccard(self._hashes[number]), number) for number in self._index.query(sketch)]
        likeness, number = max(alike, default=(0.0, -1), key=lambda pair: (pair[0], -pair[1]))
        return number if likeness >= self._similar else None


def _minhash(text: str) -> Any:
    sketch = _empty().copy()
    sketch.update_batch([part.encode("utf-8", "replace") for part in _triples(_WORD.findall(text[:_LONGEST].lower()))])
    return sketch


@cache
def _empty() -> Any:
    """Return the sketch of no words: drawing its permutations takes longer than a text."""
    return _datasketch().MinHash(num_perm=PERMUTATIONS)


def _triples(words: Sequence[str]) -> Iterable[str]:
    """Return the runs of three words; a shorter text is one run."""
    if len(words) < 3:
        return [" ".join(words)]
    return {" ".join(words[start : start + 3]) for start in range(len(words) - 2)}


def _datasketch() -> Any:
    try:
        import datasketch  # noqa: PLC0415 (the extra `canaries`)
    except ImportError as error:
        raise InputError(
            f"importing and checking canaries needs the package datasketch: {error}",
            hint="pip install 'gatekeeper-slo[canaries]'",
        ) from error
    return datasketch
