"""Personal data and secrets in prompts, replaced by values that belong to nobody; each finding is kept for review."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from math import inf
from typing import Any

from gatekeeper.canaries.secrets_in_text import Span, secrets_in_text
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import DEPTH, ParseError, json_value

NOT_PERSONAL = frozenset({"DATE", "ZIP_CODE", "UUID", "DE_POSTAL_CODE", "PERSON", "EMAIL", "IP_ADDRESS"})
"""What the detector also knows: dates and five-digit numbers stand in most prompts and name no person.

It finds PERSON only in fields of JSON that are called a name, never in sentences; addresses are found here.
"""
_REPLACEMENTS = {
    "EMAIL": "person{n}@example.com",
    "PHONE": "+1 202 555 {n:04d}",
    "CREDIT_CARD": "4000 0000 0000 {n:04d}",
    "SSN": "900-00-{n:04d}",
    "JWT": "removed-token-{n}",
    "CREDENTIAL_URI": "https://user{n}@example.com/",
}
"""Values from ranges that are reserved for documentation, where one exists. Of the same form: a draft guesses them as
well as the original. Everything else becomes `removed-KIND-N`."""

_EMAIL = re.compile(
    r"(?:\"[^\"\n@]{1,62}\"|(?<![\w.+-])[\w.!#$%&*+=?^{|}~-]{1,64})"
    r"(?:@|%40)(?:[\w-]{1,63}\.){1,8}(?:[^\W\d_]{2,24}|xn--[a-z0-9-]{2,59})(?![^\W_]|@)"
)
"""Also with letters of any language, which the detector does not know."""
_VERSION = re.compile(
    r"(?i)(?:(?<![a-z])(?:version|release|build|update|firmware|v)[ :=]{0,2}|[=~<>!^]=[ ]?|[~^]|[<>] )\Z"
)
"""What stands before four numbers with dots that are no address."""
_NOT_PERSONAL_VALUE = re.compile(r"[0-9]{0,3}::[0-9]{0,3}|(?://)?(?:git|hg|svn)@.*")
"""Slices of code, and the users that all repositories share."""
_FORMATTED = frozenset({"SSN", "PHONE"})
"""Nearly any nine or ten digits are one to the detector. `personal_numbers` finds those that a word calls so."""

_ESCAPE = re.compile(r"(?<!\\)(\\+)(?:([\"'`])|u[0-9a-fA-F]{4}|[nrtbf])")
_SAME_LENGTH = str.maketrans(
    {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    | dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
    | dict.fromkeys([*range(0x2010, 0x2014), 0x2212], "-")
    | dict.fromkeys([0x2014, 0x2015, 0x3001, 0xFF64], " ")
    | dict.fromkeys(range(0xE000, 0xE100), " ")
)
"""Full-width characters, wide and narrow spaces, and dashes as ASCII has them; a long dash divides a sentence."""
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9])(?:(?<![0-9]\.)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![A-Za-z0-9]|\.[0-9])"
    r"|(?:(?<![0-9A-Fa-f:.]:)(?<!:)|(?<=[^0-9A-Fa-f:.]:)|(?<=[A-Za-z]{2}:))(?!:[^:])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)"
    r"[0-9A-Fa-f:]{2,39}(?:\.[0-9]{1,3}){0,3}(?![A-Za-z0-9:]|\.[0-9]))"
)
"""Addresses of the internet's protocol, old and new, before `ipaddress` checks them."""
_QUOTE = "\ue001"
_OF_PARENT = frozenset({"default", "const", "enum", "example", "examples", "value"})
"""Keys of a schema or a list of variables whose value belongs to the name above or beside them."""
_LEAST_NUMBER = 10**6
_NAMED_LENGTH = 2000
"""Characters of a value that is also read as that of its name; a longer one is a text."""
_LEAST_REPEATED = 6
"""Characters of a value that is replaced, without context, wherever its canary has it again."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One personal value, and what stands in its place everywhere in the set."""

    kind: str
    original: str
    instead: str
    first: str
    """The first canary that has it."""


@dataclass(slots=True)
class Replacer:
    """Replaces personal data; the same value gets the same replacement in the whole set."""

    replaced: dict[str, Replacement] = field(default_factory=dict)
    """By the original text."""
    counts: dict[str, int] = field(default_factory=dict)
    """By kind, how many different values."""
    _names: dict[str, str] = field(default_factory=dict)
    _here: dict[str, str] = field(default_factory=dict)
    """What the value that is cleaned now holds: originals and their replacements."""

    def clean(self, value: Any, canary: str) -> Any:
        """Return *value*, of JSON, with every personal value in its texts, keys and numbers replaced.

        A value that is found in one place, such as behind `password:`, is replaced in all places of *value*.
        """
        self._here = {}
        cleaned = self._clean(value, canary, "")
        repeated = [original for original in self._here if len(original) >= _LEAST_REPEATED]
        if not repeated:
            return cleaned
        longest_first = sorted(repeated, key=len, reverse=True)
        pattern = re.compile("|".join(rf"(?<!\w){re.escape(original)}(?!\w)" for original in longest_first))
        return self._again(cleaned, pattern)

    def _again(self, value: Any, pattern: re.Pattern[str]) -> Any:
        """Return *value*, which is cleaned, with what *pattern* finds of its originals replaced as well."""
        if isinstance(value, str):
            if (inner := _json_inside(value)) is None:
                return pattern.sub(lambda match: self._here[match[0]], value)
            cleaned = self._again(inner, pattern)
            return value if cleaned == inner else _json_like(cleaned, value)
        if isinstance(value, dict):
            return {self._again(key, pattern): self._again(item, pattern) for key, item in value.items()}
        if isinstance(value, list):
            return [self._again(item, pattern) for item in value]
        return value if (instead := self._here.get(str(value).removesuffix(".0"))) is None else _digits(instead)

    def clean_name(self, name: str) -> str:
        """Return the *name* of a workload or a file with every personal value in it replaced."""
        if name not in self._names:
            self._names[name] = self._text(name, f"the name {name}", "")
        return self._names[name]

    def _clean(self, value: Any, canary: str, name: str) -> Any:
        if isinstance(value, str):
            return self._text(value, canary, name)
        if isinstance(value, dict):
            beside = next((value[key] for key in ("name", "key") if isinstance(value.get(key), str)), name)
            return {
                self._text(key, canary, ""): self._clean(
                    item, canary, key if key not in _OF_PARENT else beside if key == "value" else name
                )
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._clean(item, canary, name) for item in value]
        if isinstance(value, int | float) and abs(value) >= _LEAST_NUMBER and value == value // 1 < inf:
            instead = self._text(str(int(value)), canary, name)
            return value if instead == str(int(value)) else _digits(instead)
        return value

    def _text(self, text: str, canary: str, name: str) -> str:
        """Return a *text* cleaned; a JSON text stays one. *name*: the key that it is the value of."""
        text = text.encode("utf-8", "replace").decode()
        if (inner := _json_inside(text)) is not None:
            cleaned = self._clean(inner, canary, name)
            return text if cleaned == inner else _json_like(cleaned, text)
        pieces, end = [], 0
        for start, stop, kind in _merged(_spans(text, name)):
            pieces += [text[end:start], self._instead(kind, text[start:stop], canary)]
            end = stop
        return "".join([*pieces, text[end:]])

    def _instead(self, kind: str, original: str, canary: str) -> str:
        if (replacement := self.replaced.get(original)) is None:
            number = self.counts[kind] = self.counts.get(kind, 0) + 1
            form = _REPLACEMENTS.get(kind, f"removed-{kind.lower().replace('_', '-')}-{{n}}")
            if kind == "IP_ADDRESS":  # the ranges for documentation of both kinds
                form = "2001:db8::{n:x}" if ":" in original else f"192.0.2.{number % 256}"
            replacement = self.replaced[original] = Replacement(kind, original, form.format(n=number), canary)
        self._here[original] = replacement.instead
        return replacement.instead


def same_length(text: str) -> str:
    r"""Return *text* as the patterns read it, each character in its place.

    Escapes such as `\n`, as a JSON text inside a prompt has them, become what they stand for, so that their letter is
    not read as the beginning of the next word.
    An escaped quote becomes a character that tells how many backslashes it has, so that quotes pair by their depth.
    """
    return _ESCAPE.sub(_unescaped, text.translate(_SAME_LENGTH))


def _unescaped(match: re.Match[str]) -> str:
    if match[2] is None:
        return " " * (len(match[0]) - 1) + ("\n" if match[0][-1] in "nr" else " ")
    depth = min(len(match[1]), 60)
    return "\ue000" * len(match[1]) + chr(0xE001 + 3 * depth + "\"'`".index(match[2]))


def _spans(text: str, name: str) -> Iterator[Span]:
    """Yield what is found in *text*, read as the value of the key *name*; spans may overlap."""
    if _INVISIBLE.search(text):
        places = [place for place, char in enumerate(text) if not _INVISIBLE.match(char)]
        visible = "".join(text[place] for place in places)
        yield from ((places[start], places[stop - 1] + 1, kind) for start, stop, kind in _spans(visible, name))
        return
    view = same_length(text)
    yield from _spans_of_view(view)
    if name and len(text) <= _NAMED_LENGTH:
        before = f"{_QUOTE}{name}{_QUOTE}: {_QUOTE}"
        shift, last = len(before), len(before) + len(text)
        for start, stop, kind in _spans_of_view(before + view + _QUOTE):
            if shift <= start < last:
                yield start - shift, min(stop, last) - shift, kind


def _spans_of_view(view: str) -> Iterator[Span]:
    detector, personal_numbers = _detectors()
    yield from secrets_in_text(view)
    yield from personal_numbers(view)
    yield from _detected(detector, view)
    for match in _EMAIL.finditer(view):
        start = match.start() + match[0].rfind("=") + 1  # of the field of a form or an address
        if not _NOT_PERSONAL_VALUE.fullmatch(view, start, match.end()):
            yield start, match.end(), "EMAIL"
    for match in _ADDRESS.finditer(view):
        if _is_somebodys(view, match):
            yield *match.span(), "IP_ADDRESS"


def _detected(detector: Any, view: str) -> Iterator[Span]:
    for config in _configs():
        for finding in detector.scan(view, config=config):
            start, stop = finding.codepoint_range.start, finding.codepoint_range.end
            bare = finding.entity_type in _FORMATTED and view[start:stop].isdigit()
            if not (bare or _NOT_PERSONAL_VALUE.fullmatch(view, start, stop)):
                yield start, stop, finding.entity_type


def _is_somebodys(view: str, match: re.Match[str]) -> bool:
    """Return whether this is an address of a host, and no version number, slice of code, or every host's own."""
    if "." in match[0] and _VERSION.search(view, max(0, match.start() - 12), match.start()):
        return False
    if _NOT_PERSONAL_VALUE.fullmatch(match[0]) or re.fullmatch("[a-f]{1,4}::[a-f]{0,4}", match[0]):
        return False
    try:
        address = ip_address(match[0])
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast)


@lru_cache(maxsize=1)
def _configs() -> list[dict[str, Any]]:
    """Return what makes the detector look for all that it knows: it takes one locale at a time."""
    capabilities = _detectors()[0].capabilities()
    kinds_wanted = [kind for kind in capabilities["supported_entities"] if kind not in NOT_PERSONAL]
    locales = {
        tuple(sorted(locale["enabled_entities"])): name for name, locale in sorted(capabilities["locales"].items())
    }
    by_locale = {kind for kinds in locales for kind in kinds}
    common = [kind for kind in kinds_wanted if kind not in by_locale]
    return [{"entities": common}] + [
        {"locale": name, "entities": kinds_of_locale}
        for kinds, name in locales.items()
        if (kinds_of_locale := [kind for kind in kinds if kind not in NOT_PERSONAL])
    ]


def _merged(spans: Iterator[Span]) -> Iterator[Span]:
    """Yield the spans in order, those that overlap as one of the kind of the longest: no part of a value is left."""
    start, stop, kind, longest = 0, 0, "", 0
    for begin, end, span_kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if begin >= stop:
            if kind:
                yield start, stop, kind
            start, stop, kind, longest = begin, end, span_kind, end - begin
        else:
            stop = max(stop, end)
            if end - begin > longest:
                kind, longest = span_kind, end - begin
    if kind:
        yield start, stop, kind


def _json_inside(text: str) -> Any:
    """Return the object or list that *text* is, such as the arguments of a tool call; None for other text."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        value = json_value(text, from_server=True)
    except ParseError:
        if text.count("[") + text.count("{") > DEPTH:
            return None
        try:  # with numbers of any size, which an import keeps
            value = json.loads(text)
        except ValueError:
            return None
    return value if isinstance(value, dict | list) else None


def _json_like(value: Any, text: str) -> str:
    """Return *value* as JSON with the indentation of *text*."""
    indent = re.match(r"\s*[\[{]\s*\n([ \t]+)", text)
    separators = None if indent or re.search(r'": |, ["\d]', text) else (",", ":")
    return json.dumps(value, ensure_ascii=False, indent=None if indent is None else indent[1], separators=separators)


def _digits(text: str) -> int:
    return int("".join(filter(str.isdecimal, text)))


def _detectors() -> tuple[Any, Any]:
    """Return the module that finds what is personal by its form alone, and our function for numbers."""
    try:
        import datafog_core  # noqa: PLC0415 (the extra `canaries`)

        from gatekeeper.canaries.personal_numbers import personal_numbers  # noqa: PLC0415 (needs the extra as well)
    except ImportError as error:
        raise InputError(
            f"replacing personal data needs the packages datafog-core, phonenumberslite and python-stdnum: {error}",
            hint="pip install 'gatekeeper-slo[canaries]'; --keep-personal-data imports without them",
        ) from error
    return datafog_core, personal_numbers
