"""Invented values for prompts: drawn from SHA-256, so that the same seed gives the same text on every machine."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence


def draws(seed: str) -> Iterator[int]:
    """Endless 32-bit numbers from SHA-256 in counter mode: the same on every machine and Python."""
    counter = 0
    while True:
        digest = hashlib.sha256(f"{seed}/{counter}".encode()).digest()
        yield from (int.from_bytes(digest[at : at + 4]) for at in range(0, 32, 4))
        counter += 1


def pick(draw: Iterator[int], options: Sequence[str]) -> str:
    """One of the options."""
    return options[next(draw) % len(options)]


def shuffled(draw: Iterator[int], items: Sequence[int]) -> list[int]:
    """Return the items in a drawn order (Fisher and Yates)."""
    order = list(items)
    for at in range(len(order) - 1, 0, -1):
        other = next(draw) % (at + 1)
        order[at], order[other] = order[other], order[at]
    return order


def letters(draw: Iterator[int], alphabet: str, count: int) -> str:
    """Return a drawn string over an alphabet."""
    return "".join(pick(draw, alphabet) for _ in range(count))


def invented(draw: Iterator[int]) -> str:
    """Return a pronounceable word that is in no dictionary on purpose."""
    syllables = 2 + next(draw) % 2
    heads = ("b", "br", "d", "dr", "f", "g", "gl", "k", "l", "m", "n", "p", "pl", "r", "s", "sk", "t", "tr", "v", "z")
    return "".join(pick(draw, heads) + letters(draw, "aeiou", 1) for _ in range(syllables)) + letters(
        draw, "lmnrstx", 1
    )


def number(draw: Iterator[int], low: int, high: int) -> int:
    """Return a whole number between two bounds, both included."""
    return low + next(draw) % (high - low + 1)


def clock(draw: Iterator[int]) -> str:
    """Return a time of day that nobody rounds."""
    return f"{number(draw, 6, 19)}:{pick(draw, ('05', '10', '20', '25', '35', '40', '50', '55'))}"


LOWER = "abcdefghijklmnopqrstuvwxyz"
UNAMBIGUOUS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789"  # no I, O, l, o, 0, 1: they read alike
KINDS: dict[str, Callable[[Iterator[int], int], str]] = {
    "letters": lambda draw, count: letters(draw, LOWER, count),
    "hex": lambda draw, count: letters(draw, "0123456789abcdef", count),
    "mixed": lambda draw, count: letters(draw, UNAMBIGUOUS, count),
    "digits": lambda draw, count: letters(draw, "123456789", count),
    "numbers": lambda draw, count: ", ".join(str(number(draw, 10, 999)) for _ in range(count)),
    "invented": lambda draw, count: ", ".join(invented(draw) for _ in range(count)),
    "code": lambda draw, _: f"{letters(draw, 'BCDFGHKLMNPRTVWX', 2)}-{letters(draw, '123456789', 4)}",
    "clock": lambda draw, _: clock(draw),
}


def value(draw: Iterator[int], kind: str, arguments: Sequence[str], names: dict[str, list[str]]) -> str:
    """Return a value of a kind: from a list in `names.json` without repeats, from a range, or from KINDS."""
    if kind in {"int", "year"}:
        low, high = (int(argument) for argument in arguments)
        return f"{number(draw, low, high):{',' if kind == 'int' else ''}}"
    if kind == "date":
        return f"{number(draw, 1, 28)} {pick(draw, names['month'])}"
    count = int(arguments[0]) if arguments else 1
    if kind in names:
        return ", ".join(names[kind][at] for at in shuffled(draw, range(len(names[kind])))[:count])
    if kind in KINDS:
        return KINDS[kind](draw, count)
    raise ValueError(f"canary_parts: unknown kind '{kind}'; add it to KINDS or to names.json")


FILTERS: dict[str, Callable[[str], str]] = {
    "reversed": lambda text: text[::-1],
    "upper": str.upper,
    "sorted": lambda text: "".join(sorted(text)),
    "backwards": lambda text: ", ".join(reversed(text.split(", "))),
    "ascending": lambda text: ", ".join(str(number) for number in sorted(int(part) for part in text.split(", "))),
    "alphabetical": lambda text: ", ".join(sorted(text.split(", "))),
    "longest": lambda text: max(text.split(", "), key=len),
}


def render(
    text: str, draw: Iterator[int], bound: dict[str, str], names: dict[str, list[str]], *, regex: bool = False
) -> str:
    """Return the text with its placeholders filled; in a regex they are escaped, thousands in any style."""

    def fill(found: re.Match[str]) -> str:
        name, _, rest = found[1].rpartition("=")
        word, _, chosen = rest.partition("|")
        if word in bound and not name:
            drawn = bound[word]
        else:
            kind, *arguments = word.split()
            drawn = value(draw, kind, arguments, names)
            if name:
                bound[name] = drawn
        drawn = FILTERS[chosen](drawn) if chosen else drawn
        if not regex:
            return drawn
        escaped = re.escape(drawn).replace(r"\ ", r"\s+")
        return re.sub(r"(?<=\d),(?=\d{3})", r"[,. ]?", escaped)

    return re.sub(r"<<([^<>]+)>>", fill, text)
