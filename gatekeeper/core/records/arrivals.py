"""The arrivals of an answer, in columns: when each token came, and what is known of it."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import sub
from typing import Any, Literal, NamedTuple, TypeVar, overload


class Arrival(NamedTuple):
    """One piece of an answer: a token in process, a chunk over HTTP."""

    at_ns: int
    """Monotonic nanoseconds, read where the piece arrived."""
    tokens: int | None = None
    """None: this backend cannot count them; unknown is never 0."""
    drafted: bool | None = None
    """True: proposed by the draft and accepted. None: this backend does not know."""
    token_id: int | None = None
    """Its number in the target's vocabulary. None: this backend does not tell."""
    characters: int | None = None
    """The length of its text. None: the tokens are counted, or there is no text."""


UNKNOWN = -(2**63)
"""None, as a column of whole numbers holds it."""
_FLAGS = (False, True, None)
_LETTER_OF_FLAG = bytes.maketrans(b"\0\1\2", b"ft?")
_FLAG_OF_LETTER = bytes.maketrans(b"ft?\0\1\2", b"\0\1\2\3\3\3")
SHARED_BYTES = 8192
"""Longer texts and columns are not compared with those before; two thousand of this size are remembered at most."""

Shared = TypeVar("Shared", str, bytes)


def share_equal(value: Shared) -> Shared:
    """Return the first of equal ones: greedy answers to one canary have the same tokens and text, again and again."""
    return _first(value) if len(value) <= SHARED_BYTES else value


@lru_cache(maxsize=2048)
def _first(value: Any) -> Any:
    return value


class Arrivals(Sequence[Arrival]):
    """The arrivals of one answer, in columns: five to twenty bytes a token, of which tuples need two hundred.

    A column holds native 64-bit whole numbers, UNKNOWN for None, or one byte a flag; it is empty where no arrival has
    a value. Times are kept as the gaps between them, of 32 bits each where all fit, which are up to 4.29 s and no clock
    that runs backwards. Equal to a tuple of the same arrivals. ValueError for numbers, or gaps, of more than 64
    bits and for other types.
    """

    __slots__ = ("_gap_type", "_gaps", "characters", "drafted", "first_ns", "last_ns", "token_ids", "tokens")

    def __init__(self, rows: Iterable[Sequence[Any]] = ()) -> None:
        try:
            columns = list(zip(*rows, strict=True))
            times, tokens, drafted, ids, characters = columns + [()] * (5 - len(columns))
            at_ns = array("q", times)
            gaps_ns = tuple(map(sub, times[1:], times))
            self._keep(at_ns[0] if at_ns else None, gaps_ns, _whole(tokens), _flags(drafted), ids, characters)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"not arrivals: {error}") from error

    def _keep(
        self,
        first_ns: int | None,
        gaps_ns: Sequence[int],
        tokens: bytes,
        drafted: bytes,
        ids: Sequence[int | None],
        characters: Sequence[int | None],
    ) -> None:
        self.first_ns = first_ns
        self.last_ns = None if first_ns is None else array("q", (first_ns, first_ns + sum(gaps_ns)))[1]
        self._gap_type, self._gaps = _narrow(gaps_ns)
        self.tokens = share_equal(tokens)
        self.drafted = share_equal(drafted)
        self.token_ids = share_equal(_whole(ids))
        self.characters = share_equal(_whole(characters))

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> "Arrivals":
        """Return the arrivals that `as_columns` gave; ValueError for columns of other lengths or types."""
        try:
            gaps_ns, tokens, ids = columns["gaps_ns"], columns.get("tokens", []), columns.get("token_ids", [])
            characters = columns.get("characters", [])
            count = 1 + len(gaps_ns)
            column = (array("q", [tokens]) * count).tobytes() if isinstance(tokens, int) else _whole(tokens)
            drafted = columns.get("drafted", "").encode().translate(_FLAG_OF_LETTER)
            lengths = {0 if isinstance(tokens, int) else len(tokens), len(drafted), len(ids), len(characters)}
            sound = lengths <= {0, count} and not drafted.strip(b"\0\1\2") and columns["at_ns"] is not None
            sound &= isinstance(gaps_ns, list) and isinstance(tokens, list | int)
            sound &= isinstance(ids, list) and isinstance(characters, list)
            arrivals = cls.__new__(cls)
            arrivals._keep(columns["at_ns"], gaps_ns, column, drafted, ids, characters)  # noqa: SLF001 (of this class)
        except (TypeError, OverflowError, LookupError, AttributeError) as error:
            raise ValueError(f"not arrivals: {error}") from error
        if not sound:
            raise ValueError("not arrivals: no time, or columns of different lengths or of other types")
        return arrivals

    def as_columns(self) -> dict[str, Any] | tuple[()]:
        """Return the columns for JSON, those that are known; a list without items for no arrivals.

        `at_ns`: when the first piece came; `gaps_ns`: from each piece to the next; `tokens`: one number where all
        pieces have the same; `drafted`: a letter a piece, t(rue), f(alse) or ? (unknown); `token_ids`; `characters`.
        """
        if self.first_ns is None:
            return ()
        columns: dict[str, Any] = {"at_ns": self.first_ns, "gaps_ns": self.gaps_ns().tolist()}
        if tokens := _read_numbers(self.tokens):
            columns["tokens"] = tokens[0] if tokens[0] is not None and len({*tokens}) == 1 else tokens
        if self.drafted:
            columns["drafted"] = self.drafted.translate(_LETTER_OF_FLAG).decode()
        if ids := _read_numbers(self.token_ids):
            columns["token_ids"] = ids
        if characters := _read_numbers(self.characters):
            columns["characters"] = characters
        return columns

    def gaps_ns(self) -> "memoryview[int]":
        """Return the nanoseconds from each piece to the next one, one number fewer than there are pieces."""
        return memoryview(self._gaps).cast(self._gap_type)

    def times(self) -> Iterator[int]:
        """Yield when the pieces arrived, in monotonic nanoseconds; their gaps are faster."""
        return iter(()) if self.first_ns is None else accumulate(self.gaps_ns(), initial=self.first_ns)

    def seconds(self) -> float:
        """Return the time from the first piece to the last."""
        return (self.last_ns - self.first_ns) / 1e9 if self.first_ns is not None and self.last_ns is not None else 0.0

    def count_tokens(self) -> int | None:
        """Return the tokens of all pieces; None where one has no count, or there is none."""
        counts = memoryview(self.tokens).cast("q").tolist()
        return sum(counts) if counts and UNKNOWN not in counts else None

    def share_from(self, first: int) -> float:
        """Return the share of the tokens that the pieces from the *first* on stand for: their share of the text.

        A server that sends the beginning at once, and the rest piece by piece, decoded the pieces alone in the time
        between them. Where no text is known, each piece stands for as many.
        """
        if not self.characters:
            return (len(self) - first) / len(self)
        sizes = memoryview(self.characters).cast("q").tolist()
        return float(sum(sizes[first:]) / (sum(sizes) or 1))

    def in_order(self) -> bool:
        """Return whether no piece arrived before the one before it."""
        return self._gap_type == "I" or min(self.gaps_ns()) >= 0

    def __len__(self) -> int:
        return 0 if self.first_ns is None else 1 + len(self._gaps) // (4 if self._gap_type == "I" else 8)

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the arrivals one by one; columns are faster."""
        nothing = [None] * len(self)
        tokens, ids, characters = (
            _read_numbers(column) or nothing for column in (self.tokens, self.token_ids, self.characters)
        )
        drafted = [_FLAGS[flag] for flag in self.drafted] or nothing
        return map(Arrival, self.times(), tokens, drafted, ids, characters)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Arrival, ...]: ...
    def __getitem__(self, index: int | slice) -> Arrival | tuple[Arrival, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Arrivals):
            return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """Write them as columns, and read these."""
        from pydantic_core import core_schema  # noqa: PLC0415  programs of other environments import this module

        columns = core_schema.plain_serializer_function_ser_schema(Arrivals.as_columns)
        return core_schema.no_info_plain_validator_function(_arrivals, serialization=columns)


def _arrivals(value: object) -> Arrivals:
    if isinstance(value, Arrivals):
        return value
    if isinstance(value, dict):
        return Arrivals.of_columns(value)
    if value not in ([], ()):
        raise ValueError("arrivals are neither columns nor an empty list")
    return Arrivals()


def _is_known(value: object) -> bool:
    return value is not None


def _flags(values: Sequence[bool | None]) -> bytes:
    """Return a column of flags, by their place in _FLAGS; empty where all are None."""
    if None not in values:
        column = bytes(values)  # type: ignore[arg-type]  # mypy does not see that None is not in it
        if column.strip(b"\0\1"):
            raise ValueError("a flag is neither true nor false")
        return column
    return bytes([_FLAGS.index(value) for value in values]) if any(map(_is_known, values)) else b""


def _whole(values: Sequence[int | None]) -> bytes:
    """Return a column of whole numbers; empty where all are None."""
    try:
        return array("q", values).tobytes()  # type: ignore[type-var]  # None raises TypeError
    except TypeError:
        if not any(map(_is_known, values)):
            return b""
        return array("q", [UNKNOWN if value is None else value for value in values]).tobytes()


def _narrow(gaps: Sequence[int]) -> tuple[Literal["I", "q"], bytes]:
    """Return the type and the content of a column of gaps."""
    try:
        return "I", array("I", gaps).tobytes()
    except OverflowError:  # also for one below 0
        return "q", array("q", gaps).tobytes()


def _read_numbers(column: bytes) -> list[int | None]:
    return [None if number == UNKNOWN else number for number in memoryview(column).cast("q")]
