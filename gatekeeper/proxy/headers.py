"""Headers between a client and a server: what belongs to one connection is not passed on."""

from collections.abc import Iterable

from multidict import CIMultiDict, CIMultiDictProxy

HOP_BY_HOP = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""RFC 9110, section 7.6.1, what older clients send, and what this connection has answered already."""
OURS = "x-gatekeeper-"
"""Headers that only the proxy sets; a server or client that sets one is not believed."""
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


def passed_on(headers: CIMultiDictProxy[str] | CIMultiDict[str], *, without: Iterable[str] = ()) -> CIMultiDict[str]:
    """Return the headers that are passed on, in their order, repeated ones included; *without* is in lower case."""
    dropped = HOP_BY_HOP.union(without)
    for line in headers.getall("Connection", ()):
        dropped = dropped.union(one.strip().lower() for one in line.split(","))
    kept = []
    for name, value in headers.items():
        if (low := name.lower()) not in dropped and not low.startswith(OURS):
            kept.append((name, value))
    return CIMultiDict(kept)


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]
