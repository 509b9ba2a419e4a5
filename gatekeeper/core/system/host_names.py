"""Names under which a server of ours may be addressed, so that a web page of another site cannot use it.

A browser lets any page send requests to this machine. Where the page's own name was made to lead here (DNS rebinding),
the `Host` header shows that name. Else `Origin` does, or `Sec-Fetch-Site` (https://www.w3.org/TR/fetch-metadata/).
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import lru_cache

_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""A name or an address, and a port; whoever reads `localhost:80@evil.example` otherwise reads another name."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(.*)", re.IGNORECASE | re.ASCII)


class HostNames:
    """This machine's names, and those that its owner added."""

    def __init__(self, added: Iterable[str] = ()) -> None:
        self._names = _LOCAL | {socket.gethostname().lower()} | {name.lower() for name in added}

    def has(self, host: str) -> bool:
        """Return whether a `Host` header names this machine; an address does: only a name can be made to lead here."""
        name = _name(host)
        return name in self._names or _is_address(name)

    def has_origin(self, origin: str) -> bool:
        """Return whether a page of this origin may send requests."""
        authority = _ORIGIN.fullmatch(origin)
        return authority is not None and _name(authority[1]) in self._names


@lru_cache(maxsize=64)
def _name(authority: str) -> str:
    """Return the name in an authority, in lower case; empty where it has another form."""
    parts = _AUTHORITY.fullmatch(authority)
    return "" if parts is None else (parts[1] or parts[2]).lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
