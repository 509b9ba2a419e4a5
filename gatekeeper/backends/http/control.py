"""Control requests, which are not measured: for a server's health and its counters."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

LIMIT_S = 5.0
"""Seconds to wait for a control response."""


def status(url: str, headers: Mapping[str, str]) -> int | None:
    """Return the HTTP status of *url*, None where nothing answers."""
    answer = _get(url, headers)
    return None if answer is None else answer[0]


def fetch(url: str, headers: Mapping[str, str]) -> str | None:
    """Return the text of *url*, None where there is none; redirects are not followed, so no key is sent elsewhere."""
    answer = _get(url, headers)
    return answer[1] if answer is not None and answer[0] == 200 else None


def _get(url: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    import httpx2  # noqa: PLC0415 (slow to import, and not needed without a server)

    try:
        answer = httpx2.get(
            url, headers=dict(headers), timeout=LIMIT_S, follow_redirects=False, trust_env=False, verify=_trust()
        )
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return None
    return answer.status_code, answer.text


@cache
def _trust() -> "SSLContext":
    """Return the trusted authorities; reading them takes far longer than a control request."""
    import httpx2  # noqa: PLC0415 (see above)

    return httpx2.create_ssl_context(trust_env=False)
