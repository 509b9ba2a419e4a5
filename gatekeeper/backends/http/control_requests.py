"""Control requests, which are not measured: for a server's health and its counters, limited in time and size."""

from collections.abc import Mapping

from gatekeeper.backends.http.response import HttpResponse, parse_response
from gatekeeper.backends.http.stream import get

LIMIT_S = 5.0
"""Seconds that a control request may take in all."""
MOST_BYTES = 1 << 22
"""Bytes of a control response that are read: the counters of a busy vLLM are a tenth of this."""


def status(url: str, headers: Mapping[str, str]) -> int | None:
    """Return the HTTP status of *url*, None where nothing answers completely within the limits."""
    answer = _get(url, headers)
    return None if answer is None else answer.status


def fetch(url: str, headers: Mapping[str, str]) -> str | None:
    """Return the text of *url*, None where there is none; redirects are not followed, so no key is sent elsewhere."""
    answer = _get(url, headers)
    return answer.body.decode("utf-8", "replace") if answer is not None and answer.status == 200 else None


def _get(url: str, headers: Mapping[str, str]) -> HttpResponse | None:
    raw = get(url, headers=headers, deadline=LIMIT_S, most_bytes=MOST_BYTES)
    answer = parse_response(raw) if raw.broken is None else None
    return answer if answer is not None and answer.complete else None
