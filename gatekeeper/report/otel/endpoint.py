"""Where telemetry is sent: the endpoint of the SLO's `[telemetry]` or of the OTEL_* variables, if there is one.

The exporters read the variables themselves. This module decides whether anything is sent, and sets what they read: the
SLO's endpoint becomes variables too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.slo import Telemetry
from gatekeeper.core.system.environment_variables import OTEL_SDK_DISABLED, OTEL_SEMCONV_STABILITY_OPT_IN

Protocol = Literal["http/protobuf", "grpc"]
Signal = Literal["traces", "metrics"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics")

LATEST = "gen_ai_latest_experimental"
"""The word in OTEL_SEMCONV_STABILITY_OPT_IN for the names of the GenAI conventions' own repository."""
LOCAL = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
"""Where the exporters send to when they are switched on without an endpoint."""
_HEADER = re.compile(r"[!#-'*+\-.0-9A-Z^-z|~]+\s*=[ !#-:<-\[\]-~]*")
FILES = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")


class UnsentError(GatekeeperError):
    """The export failed, so that a collector does not have everything."""

    def __init__(self, because: str) -> None:
        super().__init__(because, hint="repeat the command, and report it if it fails again")


class RefusedError(UnsentError):
    """A collector is down, slow, or does not take what it was sent: no verdict, and no failure of this program."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, because: str) -> None:
        super().__init__(because)
        self.hint = "start the collector or correct its address, then repeat the command; the stored run is unharmed"


@dataclass(frozen=True, slots=True)
class Destination:
    """What is sent, and where."""

    signals: Mapping[Signal, Protocol]
    endpoint: str
    """Scheme, host and port, for people."""
    environment: Mapping[str, str] = field(repr=False)
    """All variables as the exporters read them. Headers and addresses may hold secrets: they are never shown."""
    limit: float
    """Seconds that one export may take."""
    rounds: bool = False
    """Verify rounds as span events."""
    latest: bool = False
    """Use the names that no release of the conventions has yet."""


def destination(config: Telemetry, environment: Mapping[str, str]) -> Destination | None:
    """Return where telemetry is sent, None for nowhere. The SLO's endpoint overrides the environment's.

    OTEL_SDK_DISABLED and OTEL_{TRACES,METRICS}_EXPORTER=none switch telemetry off. Raise InputError for a protocol, an
    address, a header or a file that cannot be used.
    """
    variables = _variables(config, environment)
    if variables.get(OTEL_SDK_DISABLED, "").lower() == "true":
        return None
    signals = {signal: _protocol(signal, variables) for signal in SIGNALS if _exports_signal(signal, variables)}
    if not signals:
        return None
    for signal, protocol in signals.items():
        _check(signal, variables)
        if protocol == "grpc" and find_spec("grpc") is None:
            raise InputError(
                "OTLP over gRPC needs the package grpcio, which is not installed",
                hint="pip install 'gatekeeper-slo[grpc]', or use http/protobuf, usually on port 4318",
            )
    return Destination(
        signals=signals,
        endpoint=" and ".join(
            dict.fromkeys(_show_address(signal, protocol, variables) for signal, protocol in signals.items())
        ),
        environment=variables,
        limit=config.timeout,
        rounds=config.rounds,
        latest=LATEST in [word.strip() for word in variables.get(OTEL_SEMCONV_STABILITY_OPT_IN, "").split(",")],
    )


def _variables(config: Telemetry, environment: Mapping[str, str]) -> dict[str, str]:
    # An empty variable counts as unset, and so does the compression `none`, which not every exporter knows.
    variables = {
        name: value
        for name, value in environment.items()
        if not name.startswith("OTEL_")
        or (value.strip() and not (name.endswith("_COMPRESSION") and value.strip().lower() == "none"))
    }
    if config.endpoint is None:
        return variables
    if config.endpoint.is_incomplete:  # read from a run, where no key is stored
        if any(_option(signal, "ENDPOINT", variables) is not None for signal in SIGNALS):
            return variables
        raise InputError(
            f"telemetry.endpoint = {config.endpoint}: its key is missing, since gatekeeper stores none",
            hint="export OTEL_EXPORTER_OTLP_ENDPOINT with the key, or use telemetry.headers_env",
        )
    for name in [name for signal in SIGNALS for name in (_name(signal, "ENDPOINT"), _name(signal, "PROTOCOL"))]:
        variables.pop(name, None)
    variables |= {"OTEL_EXPORTER_OTLP_ENDPOINT": config.endpoint.given, "OTEL_EXPORTER_OTLP_PROTOCOL": config.protocol}
    if config.headers_env is not None:
        if config.headers_env not in environment:
            raise InputError(
                f"the variable {config.headers_env} (telemetry.headers_env) is not set",
                hint=f"export {config.headers_env}=name=value; headers are never read from a file",
            )
        for signal in SIGNALS:
            variables.pop(_name(signal, "HEADERS"), None)
        variables["OTEL_EXPORTER_OTLP_HEADERS"] = environment[config.headers_env]
    return variables


def _name(signal: Signal, suffix: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_{suffix}"


def _option(signal: Signal, suffix: str, variables: Mapping[str, str]) -> str | None:
    value = variables.get(_name(signal, suffix)) or variables.get(f"OTEL_EXPORTER_OTLP_{suffix}")
    return value.strip() if value is not None else None


def _exports_signal(signal: Signal, variables: Mapping[str, str]) -> bool:
    exporters = variables.get(f"OTEL_{signal.upper()}_EXPORTER")
    if exporters is not None:
        return any(word.strip().lower() == "otlp" for word in exporters.split(","))
    return _option(signal, "ENDPOINT", variables) is not None


def _protocol(signal: Signal, variables: Mapping[str, str]) -> Protocol:
    protocol = _option(signal, "PROTOCOL", variables)
    if protocol is None or protocol == "http/protobuf":
        return "http/protobuf"
    if protocol == "grpc":
        return "grpc"
    raise InputError(f"OTLP protocol '{protocol}' is not supported", hint="allowed: http/protobuf, grpc")


def _show_address(signal: Signal, protocol: Protocol, variables: Mapping[str, str]) -> str:
    endpoint = _option(signal, "ENDPOINT", variables) or LOCAL[protocol]
    try:
        url = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        url.port  # noqa: B018 (raises ValueError where it is no port)
    except ValueError as error:
        raise InputError(f"the OTLP endpoint: {error}", hint="for example http://127.0.0.1:4318") from error
    if not url.hostname or (protocol == "http/protobuf" and url.scheme not in {"http", "https"}):
        shown = endpoint.rpartition("@")[2].partition("?")[0]  # no key
        raise InputError(f"the OTLP endpoint {shown} is not an http address", hint="for example http://127.0.0.1:4318")
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}" if url.scheme else host


def _check(signal: Signal, variables: Mapping[str, str]) -> None:
    """Raise InputError for what the exporters would silently ignore: a malformed header, a missing file."""
    entries = filter(None, (part.strip() for part in (_option(signal, "HEADERS", variables) or "").split(",")))
    for number, entry in enumerate(entries, start=1):
        if not (_HEADER.fullmatch(entry) and unquote(entry).isprintable()):  # not shown: it may be a key
            hint = 'write name=value,name=value, and "%22" for a quote, "%3B" for a semicolon'
            raise InputError(f"the OTLP headers: entry {number} is not a valid header", hint=hint)
    for suffix in FILES:
        file = _option(signal, suffix, variables)
        if file is not None and not Path(file).is_file():
            raise InputError(f"{file}: no such file (OTEL_EXPORTER_OTLP_{suffix})", hint="name a PEM file")
