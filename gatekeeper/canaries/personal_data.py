"""Personal data and secrets in prompts, replaced by values that belong to nobody; each finding is kept for review."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.core.errors import InputError

NOT_PERSONAL = frozenset({"DATE", "ZIP_CODE", "UUID", "DE_POSTAL_CODE", "PERSON"})
"""What the detector also knows: dates and five-digit numbers stand in most prompts and name no person.

It finds PERSON only in fields of JSON that are called a name, never in sentences.
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

_SECRETS = {
    "API_KEY": re.compile(
        r"(?<![A-Za-z0-9])(?P<value>(?:sk|pk|rk|gsk|xai|pplx)-[A-Za-z0-9_-]{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])"
        r"|AIza[A-Za-z0-9_-]{35}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22,}"
        r"|glpat-[A-Za-z0-9_-]{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,})"
    ),
    "PRIVATE_KEY": re.compile(
        r"(?s)(?P<value>-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----|\Z))"
    ),
    "PASSWORD": re.compile(
        r"(?i)(?:pass(?:word|wort|wd|phrase)|secret(?:_?access)?_?key|client_?secret|api[_-]?key|(?:access|auth)[_-]?token)"
        r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<value>(?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{0,200}[A-Za-z])[\w+/.!@#$%^&*~=-]{8,200})"
    ),
}
"""What the detector does not know: keys of the services that prompts are full of, any private key, and a value with
letters and digits that is called a password or a key."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One value that was found, and what stands in its place everywhere in the set."""

    kind: str
    original: str
    instead: str
    first: str
    """The canary in which it was found first."""


@dataclass(slots=True)
class Replacer:
    """Replaces personal data; the same value gets the same replacement in the whole set."""

    found: dict[str, Replacement] = field(default_factory=dict)
    """By the original text."""
    _counts: dict[str, int] = field(default_factory=dict)
    _config: dict[str, Any] | None = None

    def clean(self, value: Any, canary: str) -> Any:
        """Return *value*, of JSON, with every personal value in its texts replaced."""
        if isinstance(value, str):
            return self._text(value, canary)
        if isinstance(value, dict):
            return {key: self.clean(one, canary) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(one, canary) for one in value]
        return value

    def _text(self, text: str, canary: str) -> str:
        detector = _detector()
        if self._config is None:
            known = detector.capabilities()["supported_entities"]
            self._config = {"locale": "de", "entities": [one for one in known if one not in NOT_PERSONAL]}
        text = text.encode("utf-8", "replace").decode()
        pieces, end = [], 0
        spans = [
            (one.codepoint_range.start, one.codepoint_range.end, one.entity_type, one.matched_text)
            for one in detector.scan(text, config=self._config)
        ]
        for start, stop, kind, original in sorted([*spans, *_secrets(text)], key=lambda one: (one[0], -one[1])):
            if start >= end:  # of two findings that overlap, the longer one
                pieces += [text[end:start], self._instead(kind, original, canary)]
                end = stop
        return "".join([*pieces, text[end:]])

    def _instead(self, kind: str, original: str, canary: str) -> str:
        if (known := self.found.get(original)) is None:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            form = _REPLACEMENTS.get(kind, f"removed-{kind.lower().replace('_', '-')}-{{n}}")
            if kind == "IP_ADDRESS":  # the ranges for documentation of both kinds
                form = "2001:db8::{n:x}" if ":" in original else f"192.0.2.{number % 256}"
            known = self.found[original] = Replacement(kind, original, form.format(n=number), canary)
        return known.instead


def _secrets(text: str) -> Iterator[tuple[int, int, str, str]]:
    for kind, pattern in _SECRETS.items():
        yield from ((*found.span("value"), kind, found["value"]) for found in pattern.finditer(text))


def _detector() -> Any:
    try:
        import datafog_core  # noqa: PLC0415 (the extra `canaries`)
    except ImportError as error:
        raise InputError(
            f"replacing personal data needs the package datafog-core: {error}",
            hint="pip install 'gatekeeper-slo[canaries]'; --keep-personal-data imports without it",
        ) from error
    return datafog_core
