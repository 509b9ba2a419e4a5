"""What holds a key: addresses of servers, shown with their keys hidden, and names of options, variables and headers."""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from gatekeeper.core.errors import InputError

EXAMPLE_URL = "http://127.0.0.1:8080"
_ROUNDS = 200_000
"""Rounds of the digest of a key: a short key cannot be found by trying all of them."""
_HIDDEN = re.compile(r"hidden-[0-9a-f]{8}")
_WRITTEN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`\\]+")
_PARTS = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]*://|)(.*)")
_SECRET_PART = re.compile(
    r"(?i)(api)?keys?|auth(orization)?|bearer|cookie|cred(ential)?s?|pass(phrase|w(or)?d)|pwd|secrets?|signature|token"
)
"""Parts of the names of options and variables that hold a key. Not `tokens`, which is a number of them."""
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_GIVEN = re.compile(
    r"""((?P<name>[\w-]+)["']?\s*[:=]\s*["']?((Bearer|Basic)\s+)?|(?P<option>--?[\w-]+)\s+["']?)(?P<value>[^\s,;&}"']+)"""
)
_NO_KEY = re.compile(r"[${<].*|--.*|[\d.]+|(bool|float|int|str):.*|.{0,5}")
"""Values that are no key: variables, placeholders, special tokens, options, numbers, typed values, short words."""
SECRET_NAME = re.compile(r"(?i).*(?:key|token|secret|passw|pwd|auth|sig|cred)")
"""Names of values in a query that hold a key."""


class Address(str):
    """An address as it is shown, stored and compared: user, query and fragment are hidden behind a digest of them.

    The digest tells two keys apart. Only `at` returns the address to request.
    """

    __slots__ = ("_given",)
    _given: str

    def __new__(cls, text: str) -> Self:
        """Hide what may be a key in *text*; an address that is hidden already stays what it is."""
        if isinstance(text, cls):
            return text
        address = super().__new__(cls, _hide_keys(text))
        address._given = text
        return address

    @property
    def is_incomplete(self) -> bool:
        """Whether the key is missing: this was read from a file that gatekeeper wrote."""
        return _HIDDEN.search(self._given) is not None

    @property
    def is_http(self) -> bool:
        """Whether its scheme is that of HTTP."""
        return self.lower().startswith(("http://", "https://"))

    @property
    def given(self) -> str:
        """Return the address with its key, for a request or another program's environment alone."""
        return self._given

    def at(self, path: str) -> str:
        """Return the address of *path* on this server, with its key, for a request. It may be given with /v1."""
        start, mark, query = self._given.partition("#")[0].partition("?")
        return start.rstrip("/").removesuffix("/v1") + path + mark + query

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read it from a file as text; an address stays the one it is."""
        return core_schema.no_info_wrap_validator_function(
            lambda value, read: value if isinstance(value, cls) else cls(read(value)), core_schema.str_schema()
        )


def address_of(option: str, text: str) -> Address:
    """Return the address of a server that the command line names; raise InputError for another kind of address."""
    address = Address(text)
    if not address.is_http:
        raise InputError(f"{option} {address} is not an http address", hint=f"for example {option} {EXAMPLE_URL}")
    return address


def _hide_keys(text: str) -> str:
    scheme, rest = _PARTS.findall(text)[0]
    try:
        parts = urlsplit(f"//{rest}")
        usable = parts.port is None or parts.port >= 0
    except ValueError:
        usable = False
    if not usable:  # where its password ends cannot be told
        return text if _HIDDEN.fullmatch(rest) else f"{scheme}hidden-{_digest(rest, scheme)}"
    user, at, host = parts.netloc.rpartition("@")
    query = [part.partition("=") if "=" in part else ("", "", part) for part in parts.query.split("&")]
    keys = filter(None, (user, *(value for _, _, value in query), parts.fragment))
    if all(_HIDDEN.fullmatch(key) for key in keys):
        return text
    hidden = f"hidden-{_digest(f'{user} {parts.query} {parts.fragment}', f'{scheme}{host}{parts.path}')}"
    address = f"{scheme}{hidden if at else ''}{at}{host}{parts.path}"
    address += "?" + "&".join(f"{name}{equals}{hidden}" for name, equals, _ in query) if parts.query else ""
    return address + (f"#{hidden}" if parts.fragment else "")


@lru_cache(maxsize=64)
def _digest(secret: str, salt: str) -> str:
    key, bare = (text.encode(errors="surrogatepass") for text in (secret, salt))  # half characters from a command line
    return hashlib.pbkdf2_hmac("sha256", key, bare, _ROUNDS, 4).hex()


def hide_keys(text: str, addresses: Iterable[Address]) -> str:
    """Return *text* with these *addresses* as they are shown, and so any other address in it that holds a key."""
    for address in sorted(addresses, key=lambda address: len(address.given), reverse=True):
        text = text.replace(address.given, address) if address.given != address else text
    return _WRITTEN.sub(lambda match: Address(match[0]) if _holds_key(match[0]) else match[0], text)


def secret_parts(name: str) -> list[bool]:
    """Return, for each part of the *name* of an option, a variable or a header, whether it names a key."""
    return [_SECRET_PART.fullmatch(part) is not None for part in _NAME_PARTS.findall(name)]


def key_in(words: Iterable[str]) -> str | None:
    """Return the option, variable or header in a command that is given a key; None without one.

    Its name ends in that of a key: `--api-key-file` is given a path.
    """
    option = ""
    for word in words:
        pairs = [(match["name"] or match["option"], match["value"]) for match in _GIVEN.finditer(word)]
        for name, value in [(option, word), *pairs]:
            if secret_parts(name)[-1:] == [True] and not _NO_KEY.fullmatch(value):
                return name
        option = word if word.startswith("-") and "=" not in word else ""
    return None


def _holds_key(address: str) -> bool:
    try:
        parts = urlsplit(address)
        parameters = parse_qsl(parts.query)
    except ValueError:
        return "@" in address
    return bool(parts.password) or any(SECRET_NAME.match(name) for name, _ in parameters)
