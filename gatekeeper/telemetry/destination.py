"""The destination: where telemetry goes, by the SLO's `[telemetry]` or by OTEL_* variables; by neither, nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from gatekeeper.terms.errors import InputError
from gatekeeper.terms.slo import Telemetry

Protocol = Literal["http/protobuf", "grpc"]
Signal = Literal["traces", "metrics"]

LATEST = "gen_ai_latest_experimental"
"""In OTEL_SEMCONV_STABILITY_OPT_IN: use the names of the GenAI conventions' own repository."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one signal. Headers and the address may hold secrets: neither is ever shown."""

    address: str = field(repr=False)
    """A whole URL over HTTP; over gRPC host and port."""
    protocol: Protocol
    shown: str
    """Scheme, host and port, for people."""
    headers: Mapping[str, str] = field(repr=False)
    secure: bool
    gzip: bool = False
    certificate: str | None = None
    """A file of certificates to trust instead of the system's."""
    client_certificate: str | None = None
    client_key: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """What is sent, and where."""

    routes: Mapping[Signal, Route]
    limit: float
    """Seconds that one export may take."""
    rounds: bool = False
    """Verify rounds as span events."""
    latest: bool = False
    """Use the names that are not released yet."""

    @property
    def shown(self) -> str:
        """Name it for people."""
        return " and ".join(dict.fromkeys(route.shown for route in self.routes.values()))


def destination(asked: Telemetry, environment: Mapping[str, str]) -> Destination | None:
    """Return where telemetry goes, None for nowhere. The SLO's endpoint goes before the environment's.

    OTEL_SDK_DISABLED and OTEL_{TRACES,METRICS}_EXPORTER=none switch off whoever asked. Raise InputError where what is
    written can not be followed.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    signals: tuple[Signal, ...] = ("traces", "metrics")
    wanted = [one for one in signals if environment.get(f"OTEL_{one.upper()}_EXPORTER", "").strip().lower() != "none"]
    routes = {one: route for one in wanted if (route := _route(one, asked, environment)) is not None}
    if not routes:
        return None
    latest = LATEST in [word.strip() for word in environment.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")]
    return Destination(routes, asked.timeout, asked.rounds, latest)


def pairs(text: str, what: str) -> dict[str, str]:
    """Read `name=value,name=value` with percent escapes, as OpenTelemetry writes headers and resource attributes."""
    found = {}
    for number, part in enumerate(filter(None, (part.strip() for part in text.split(","))), start=1):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():  # the part itself is not shown: it may be a key
            raise InputError(f"{what}: entry {number} is not name=value", hint="write name=value,name=value")
        found[name.strip()] = unquote(value.strip())
    return found


def _route(signal: Signal, asked: Telemetry, environment: Mapping[str, str]) -> Route | None:
    def said(what: str) -> str | None:
        names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}")
        return next((value for name in names if (value := environment.get(name, "").strip())), None)

    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "").strip()
    if asked.endpoint is not None:
        endpoint, protocol, whole = asked.endpoint, asked.protocol, False
    else:
        endpoint, protocol, whole = said("ENDPOINT") or "", _protocol(said("PROTOCOL")), bool(own)
    if not endpoint:
        return None
    try:
        url = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    except ValueError as error:
        raise InputError(f"the OTLP endpoint: {error}", hint="for example http://127.0.0.1:4318") from error
    if not url.hostname or (protocol == "http/protobuf" and url.scheme not in {"http", "https"}):
        raise InputError("the OTLP endpoint is not an address", hint="for example http://127.0.0.1:4318")
    insecure = url.scheme == "http" or (not url.scheme and (said("INSECURE") or "").lower() == "true")
    host = url.netloc.rpartition("@")[2]
    return Route(
        address=host if protocol == "grpc" else endpoint if whole else f"{endpoint.rstrip('/')}/v1/{signal}",
        protocol=protocol,
        shown=f"{url.scheme}://{host}" if url.scheme else host,
        headers=_headers(asked, said("HEADERS"), environment),
        secure=not insecure,
        gzip=said("COMPRESSION") == "gzip",
        certificate=said("CERTIFICATE"),
        client_certificate=said("CLIENT_CERTIFICATE"),
        client_key=said("CLIENT_KEY"),
    )


def _protocol(said: str | None) -> Protocol:
    if said is None or said == "http/protobuf":
        return "http/protobuf"
    if said == "grpc":
        return "grpc"
    raise InputError(f"OTLP protocol '{said}' is not spoken here", hint="allowed: http/protobuf, grpc")


def _headers(asked: Telemetry, said: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    name = asked.headers_env or "OTEL_EXPORTER_OTLP_HEADERS"
    if asked.headers_env is not None and asked.headers_env not in environment:
        raise InputError(
            f"the variable {name} (telemetry.headers_env) is not set",
            hint=f"export {name}=name=value; headers are never read from a file",
        )
    text = environment[name] if asked.headers_env is not None else said or ""
    found = {key.lower(): value for key, value in pairs(text, name).items()}
    for number, (key, value) in enumerate(found.items(), start=1):
        if not (key.isascii() and key.isprintable() and value.isascii() and value.isprintable()):
            raise InputError(f"{name}: entry {number} is no header", hint="write printable ASCII, escapes included")
    return found
