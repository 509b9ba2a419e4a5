"""Headers between a client and a server: what belongs to one connection is not passed on."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from multidict import CIMultiDict, CIMultiDictProxy

from gatekeeper.backends.dialect import Dialect
from gatekeeper.core.policy import WORKLOAD_HEADER
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.text import one_line
from gatekeeper.live.request_routes import RequestDecision

HOP_BY_HOP = frozenset({
    "connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""RFC 9110, section 7.6.1, what older clients send, and what this connection has answered already."""
OWN_SITES = frozenset({"same-origin", "same-site", "none"})
"""Values of `Sec-Fetch-Site` that are not of another site's page; whatever else it holds is refused."""
OURS = "x-gatekeeper-"
"""Headers that only the proxy sets; a server or client that sets one is not believed."""
MOST_OF_REASON = 200
"""Characters of a reason in a header; the log has all of it."""


def forwarded_headers(
    headers: CIMultiDictProxy[str] | CIMultiDict[str], *, without: Collection[str] = ()
) -> CIMultiDict[str]:
    """Return the headers that are passed on, in their order, repeated ones included; *without* is in lower case."""
    dropped = HOP_BY_HOP
    if lines := headers.getall("Connection", ()):
        dropped = HOP_BY_HOP.union(name.strip().lower() for line in lines for name in line.split(","))
    pairs = []
    for name, value in headers.items():
        if (lower := name.lower()) not in dropped and lower not in without and not lower.startswith(OURS):
            pairs.append((name, value))
    return CIMultiDict(pairs)


def steer(headers: CIMultiDict[str], dialect: Dialect) -> None:
    """Remove a client's hints from a request's *headers*, and add those with which its server heeds the body."""
    for name in list(headers):
        if any(fnmatchcase(name.lower(), hint) for hint in dialect.client_hints):
            headers.popall(name, None)
    headers.update(dialect.headers)


def answer_headers(decision: RequestDecision, route: str) -> dict[str, str]:
    """Return what an answer says of its request: the workload, the rule, the server that answered, and why."""
    # A reason may quote what a person wrote; a header has one line of ASCII.
    because = one_line(decision.because)[:MOST_OF_REASON].encode("ascii", "backslashreplace").decode()
    return {
        WORKLOAD_HEADER: decision.workload,
        f"{OURS}rule": decision.rule,
        f"{OURS}route": route,
        f"{OURS}because": because,
    }


def is_from_foreign_page(headers: CIMultiDictProxy[str], names: HostNames) -> bool:
    """Return whether a browser sends this for a page of another site."""
    origins = headers.getall("Origin", ())
    if origins:
        return not all(map(names.has_origin, origins))
    return not OWN_SITES.issuperset(headers.getall("Sec-Fetch-Site", ()))
