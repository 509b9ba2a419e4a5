"""Regular expressions of canaries, searched in a time that an answer cannot blow up.

`re` tries one way after the other, so `^(a+)+$` takes longer than the universe on forty letters, and its time on an
answer decides whether a verdict ever comes. Here all places of a text at once are held as the bits of one number: each
part of a pattern maps the places where a match may end to those where it may begin. That answers only whether there is
a match, which is all that a grade needs, and it answers as `re` does, look-arounds included, which linear engines lack.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import Any

from gatekeeper.core.parse import ParseError

LONGEST = 2000
"""Characters of a pattern."""
LEVELS = 50
"""Groups of a pattern inside each other."""
EFFORT = 2**27
"""The most that one search may cost: a second or two, whatever the pattern and the text."""
MANY = 100
"""Words that a back-reference may stand for."""
ROOM = 10_000
"""Steps that writing out the back-references of a pattern may add."""
_STEP = 512
"""What a step costs beside the 64-bit words it works on."""

# The parser behind `re` has no public name; a step of another version that is not known here is refused, never guessed.
_parser, _compiler = import_module("re._parser"), import_module("re._compiler")
_NEWLINE, _WORD = _parser.parse("\n")[0], _parser.parse(r"\w")[0]
_CHARACTERS = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "CATEGORY"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_REFUSED = {
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
Steps = Sequence[tuple[Any, Any]]
_Key = tuple[Any, Any, int]
"""A step that matches one character, and the flags it has."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return the function that tells whether a text holds a match of *pattern*; raise ParseError for a bad pattern.

    The function raises ParseError where the search would cost more than EFFORT.
    """
    if len(pattern) > LONGEST:
        raise ParseError(f"longer than {LONGEST} characters")
    try:
        re.compile(pattern)
        tree = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ParseError("nested too deeply" if isinstance(error, RecursionError) else str(error)) from error
    _prepare(tree, LEVELS, [ROOM])
    sets: dict[_Key, _CharacterSet] = {}

    @lru_cache(maxsize=4)  # at temperature 0 a canary has the same answer again and again, in either arm
    def found_in(text: str) -> bool:
        return _Search(text, sets).holds(tree)

    return found_in


def _prepare(steps: Any, levels: int, room: list[int]) -> None:
    """Write out back-references to few words; raise ParseError for steps that have no bound in time."""
    if levels < 0:
        raise ParseError(f"more than {LEVELS} groups inside each other")
    _write_out(steps, room)
    for step, argument in steps:
        name = str(step)
        if name in _CHARACTERS or name in {"AT", "FAILURE"}:
            continue
        if name not in {*_REPEATS, "BRANCH", "SUBPATTERN", "ASSERT", "ASSERT_NOT"}:
            construct = _REFUSED.get(name, name)
            raise ParseError(f"{construct} is not allowed: it cannot be searched in bounded time")
        for inner in argument[1] if name == "BRANCH" else [argument[-1]]:
            _prepare(inner, levels - 1, room)


def _write_out(steps: Any, room: list[int]) -> None:
    r"""Replace the first group of few words that is referred to, and all behind it: (a|b)c\1 becomes (?:aca|bcb)."""
    for index, (step, argument) in enumerate(steps):
        rest = list(steps[index + 1 :])
        if str(step) == "SUBPATTERN" and (_parser.GROUPREF, argument[0]) in rest:
            words = _words(argument[-1])
            room[0] -= len(words) * len(rest)
            if not words or room[0] < 0:
                return
            branches = []
            for word in words:
                again = (word if part == (_parser.GROUPREF, argument[0]) else [part] for part in rest)
                branches.append(_parser.SubPattern(steps.state, [*word, *chain.from_iterable(again)]))
            steps[index:] = [(_parser.BRANCH, (None, branches))]
            return


def _words(steps: Any) -> list[list[tuple[Any, Any]]]:
    """Return every text that *steps* match, as literal steps; none where these are not a few."""
    words: list[list[tuple[Any, Any]]] = [[]]
    for step, argument in steps:
        name, choices = str(step), []
        if name == "LITERAL":
            choices = [[(step, argument)]]
        elif name == "IN" and all(str(kind) in {"LITERAL", "RANGE"} for kind, _ in argument):
            ends = (code if isinstance(code, tuple) else (code, code) for _, code in argument)
            codes = [code for first, last in ends for code in range(first, min(last, first + MANY) + 1)]
            choices = [[(_parser.LITERAL, code)] for code in codes]
        elif name == "BRANCH":
            choices = (
                [word for branch in argument[1] for word in _words(branch)] if all(map(_words, argument[1])) else []
            )
        elif name == "SUBPATTERN" and argument[1] == argument[2] == 0:
            choices = _words(argument[-1])
        words = [[*word, *choice] for word in words for choice in choices[: MANY + 1]]
        if not 0 < len(words) <= MANY:
            return []
    return words


class _CharacterSet(dict[int, str]):
    """For each character, by its code: "1" where one step of a pattern matches it, else "0"."""

    def __init__(self, step: Any, argument: Any, flags: int) -> None:
        state = _parser.State()
        state.flags = flags
        self._one = _compiler.compile(_parser.SubPattern(state, [(step, argument)]))

    def __missing__(self, code: int) -> str:
        self[code] = bit = "1" if self._one.match(chr(code)) else "0"
        return bit


class _Search:
    """One search. Bit k of a number is the place k characters before the end of the text."""

    def __init__(self, text: str, sets: "dict[_Key, _CharacterSet]") -> None:
        self._text, self._sets = text, sets
        self._start = 1 << len(text)
        self._all = 2 * self._start - 1
        self._known: dict[_Key, int] = {}
        self._effort = EFFORT

    def holds(self, tree: Any) -> bool:
        return self._begins(tree, self._all, tree.state.flags) != 0

    def _begins(self, steps: Steps, ends: int, flags: int) -> int:
        """Return the places where a match of *steps* begins that ends in one of *ends*."""
        for step, argument in reversed(steps):
            if not ends:
                return 0
            ends = self._before(step, argument, ends, flags)
        return ends

    def _before(self, step: Any, argument: Any, ends: int, flags: int) -> int:
        """Return the places where a match of one step begins that ends in one of *ends*."""
        self._effort -= _STEP + len(self._text) // 64
        if self._effort < 0:
            raise ParseError("the search costs too much")
        name = str(step)
        if name in _CHARACTERS:
            return (ends & self._matching((step, argument), flags)) << 1
        if name in _REPEATS:
            return self._match_repeat(argument, ends, flags)
        if name == "BRANCH":
            return self._any(argument[1], ends, flags)
        if name == "SUBPATTERN":
            _, added, removed, inner = argument
            return self._begins(inner, ends, _compiler._combine_flags(flags, added, removed))  # noqa: SLF001
        return ends & (self._at(str(argument), flags) if name == "AT" else self._around(name, argument, flags))

    def _any(self, branches: Sequence[Steps], ends: int, flags: int) -> int:
        places = 0
        for branch in branches:
            places |= self._begins(branch, ends, flags)
        return places

    def _match_repeat(self, argument: Any, ends: int, flags: int) -> int:
        least, most, inner = argument
        while len(inner) == 1 and str(inner[0][0]) == "SUBPATTERN":
            _, added, removed, inner = inner[0][1]
            flags = _compiler._combine_flags(flags, added, removed)  # noqa: SLF001
        for _ in range(least):
            before, ends = ends, self._begins(inner, ends, flags)
            if ends in {0, before}:
                break
        if most == _parser.MAXREPEAT and len(inner) == 1 and str(inner[0][0]) in _CHARACTERS:
            # Adding carries each place through the run of matching characters that it stands in.
            matching = self._matching(inner[0], flags)
            return (((ends & matching) + matching) ^ matching) | ends
        places = fresh = ends
        for _ in range(min(most - least, len(self._text) + 1)):
            fresh = self._begins(inner, fresh, flags) & ~places
            if not fresh:
                break
            places |= fresh
        return places

    def _matching(self, character_step: tuple[Any, Any], flags: int) -> int:
        """Return the places right after a character that *character_step* matches."""
        step, argument = character_step
        # The tree keeps a list of choices, so its identity names it.
        key = step, id(argument) if isinstance(argument, list) else argument, flags
        if key not in self._known:
            if key not in self._sets:
                self._sets[key] = _CharacterSet(step, argument, flags)
            self._known[key] = int(self._text.translate(self._sets[key]) or "0", 2)
        return self._known[key]

    def _around(self, name: str, argument: Any, flags: int) -> int:
        """Return the places at which a look-around holds."""
        if name == "FAILURE":
            return 0
        direction, inner = argument
        matches = self._begins(inner, self._all, flags)
        if direction < 0:  # `re` allows only look-behinds of one width
            matches >>= inner.getwidth()[0]
        return matches if name == "ASSERT" else self._all & ~matches

    def _at(self, place: str, flags: int) -> int:
        """Return the places at which an anchor matches."""
        if place.endswith("BOUNDARY"):
            words = self._matching(_WORD, flags)
            edges = words ^ (words << 1)
            return edges if place == "AT_BOUNDARY" else self._all & ~edges if self._text else 0
        lines = self._matching(_NEWLINE, 0)
        several = flags & re.MULTILINE and not place.endswith("STRING")
        if place.startswith("AT_BEGINNING"):
            return self._start | (lines if several else 0)
        end = 1 | ((lines << 1) if several else 0)
        return end if place == "AT_END_STRING" else end | ((lines & 1) << 1)
