"""The destination: where telemetry goes, by the SLO's `[telemetry]` or by OTEL_* variables; by neither, nowhere.

The exporters read the variables themselves. What is decided here is whether anything is sent at all, and what they are
to read: the SLO's endpoint becomes variables too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.slo import Telemetry

Protocol = Literal["http/protobuf", "grpc"]
Signal = Literal["traces", "metrics"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics")

LATEST = "gen_ai_latest_experimental"
"""In OTEL_SEMCONV_STABILITY_OPT_IN: use the names of the GenAI conventions' own repository."""
LOCAL = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
"""Where the exporters send to when they are asked for and nobody names an endpoint."""
_HEADER = re.compile(r"[!#-'*+\-.0-9A-Z^-z|~]+\s*=[ !#-:<-\[\]-~]*")
FILES = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")


class RefusedError(GatekeeperError):
    """A collector that is down, slow, or does not want what it was sent."""


@dataclass(frozen=True, slots=True)
class Destination:
    """What is sent, and where."""

    signals: Mapping[Signal, Protocol]
    shown: str
    """Scheme, host and port, for people."""
    environment: Mapping[str, str] = field(repr=False)
    """All variables as the exporters are to find them. Headers and addresses may hold secrets: none is ever shown."""
    limit: float
    """Seconds that one export may take."""
    rounds: bool = False
    """Verify rounds as span events."""
    latest: bool = False
    """Use the names that are not released yet."""


def destination(asked: Telemetry, environment: Mapping[str, str]) -> Destination | None:
    """Return where telemetry goes, None for nowhere. The SLO's endpoint goes before the environment's.

    OTEL_SDK_DISABLED and OTEL_{TRACES,METRICS}_EXPORTER=none switch off whoever asked. Raise InputError where what is
    written can not be followed.
    """
    heard = _heard(asked, environment)
    if heard.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    signals = {one: _protocol(one, heard) for one in SIGNALS if _wanted(one, heard)}
    if not signals:
        return None
    for one in signals:
        _check(one, heard)
    return Destination(
        signals=signals,
        shown=" and ".join(dict.fromkeys(_shown(one, protocol, heard) for one, protocol in signals.items())),
        environment=heard,
        limit=asked.timeout,
        rounds=asked.rounds,
        latest=LATEST in [word.strip() for word in heard.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")],
    )


def _heard(asked: Telemetry, environment: Mapping[str, str]) -> dict[str, str]:
    # An empty variable counts as unset, and so does `none`, which not every exporter knows as a compression.
    heard = {
        name: value
        for name, value in environment.items()
        if not name.startswith("OTEL_")
        or (value.strip() and not (name.endswith("_COMPRESSION") and value.strip().lower() == "none"))
    }
    if asked.endpoint is None:
        return heard
    for name in [name for one in SIGNALS for name in (_own(one, "ENDPOINT"), _own(one, "PROTOCOL"))]:
        heard.pop(name, None)
    heard |= {"OTEL_EXPORTER_OTLP_ENDPOINT": asked.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": asked.protocol}
    if asked.headers_env is not None:
        if asked.headers_env not in environment:
            raise InputError(
                f"the variable {asked.headers_env} (telemetry.headers_env) is not set",
                hint=f"export {asked.headers_env}=name=value; headers are never read from a file",
            )
        for one in SIGNALS:
            heard.pop(_own(one, "HEADERS"), None)
        heard["OTEL_EXPORTER_OTLP_HEADERS"] = environment[asked.headers_env]
    return heard


def _own(signal: Signal, what: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}"


def _said(signal: Signal, what: str, heard: Mapping[str, str]) -> str | None:
    value = heard.get(_own(signal, what)) or heard.get(f"OTEL_EXPORTER_OTLP_{what}")
    return value.strip() if value is not None else None


def _wanted(signal: Signal, heard: Mapping[str, str]) -> bool:
    named = heard.get(f"OTEL_{signal.upper()}_EXPORTER")
    if named is not None:
        return any(word.strip().lower() == "otlp" for word in named.split(","))
    return _said(signal, "ENDPOINT", heard) is not None


def _protocol(signal: Signal, heard: Mapping[str, str]) -> Protocol:
    said = _said(signal, "PROTOCOL", heard)
    if said is None or said == "http/protobuf":
        return "http/protobuf"
    if said == "grpc":
        return "grpc"
    raise InputError(f"OTLP protocol '{said}' is not spoken here", hint="allowed: http/protobuf, grpc")


def _shown(signal: Signal, protocol: Protocol, heard: Mapping[str, str]) -> str:
    endpoint = _said(signal, "ENDPOINT", heard) or LOCAL[protocol]
    try:
        url = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    except ValueError as error:
        raise InputError(f"the OTLP endpoint: {error}", hint="for example http://127.0.0.1:4318") from error
    if not url.hostname or (protocol == "http/protobuf" and url.scheme not in {"http", "https"}):
        raise InputError("the OTLP endpoint is not an address", hint="for example http://127.0.0.1:4318")
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}" if url.scheme else host


def _check(signal: Signal, heard: Mapping[str, str]) -> None:
    """Raise InputError for what the exporters would pass over in silence: a header or a file that is none."""
    entries = filter(None, (part.strip() for part in (_said(signal, "HEADERS", heard) or "").split(",")))
    for number, entry in enumerate(entries, start=1):
        if not (_HEADER.fullmatch(entry) and unquote(entry).isprintable()):  # not shown: it may be a key
            hint = 'write name=value,name=value, and "%22" for a quote, "%3B" for a semicolon'
            raise InputError(f"the OTLP headers: entry {number} is no header", hint=hint)
    for what in FILES:
        file = _said(signal, what, heard)
        if file is not None and not Path(file).is_file():
            raise InputError(f"{file}: no such file (OTEL_EXPORTER_OTLP_{what})", hint="name a file in PEM")
