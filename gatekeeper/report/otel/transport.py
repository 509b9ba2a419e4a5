"""The wire: OpenTelemetry's own exporters, listened to, so that what a collector did not take whole is an error.

By themselves they take any answer below 400 for consent, never look at what it says it rejected, and try again for as
long as their time allows. Here no request is sent twice: the export at the end of the run is the second try.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gatekeeper.core.text import quote
from gatekeeper.report.otel.endpoint import Protocol, RefusedError, Signal

POINTS = 2000
"""In one request: under a megabyte."""


class Wire:
    """Sends one signal; whoever opens it closes it.

    Each request may take *seconds*, asked for when all is loaded; None leaves them to OTEL_EXPORTER_OTLP_TIMEOUT.
    """

    def __init__(self, signal: Signal, protocol: Protocol, shown: str, seconds: Callable[[], float] | None) -> None:
        self._shown, self._taken = shown, 0
        self._trouble: RefusedError | None = None
        try:
            if protocol == "grpc":
                from gatekeeper.report.otel import otlp_grpc as over  # noqa: PLC0415 (of no use over HTTP)
            else:
                from gatekeeper.report.otel import otlp_http as over  # type: ignore[no-redef]  # noqa: PLC0415
            self._exporter: Any = over.exporter(signal, seconds() if seconds is not None else None, self)
        except Exception as error:  # whatever a variable can hold that an exporter does not take
            raise self.refuse(quote(f"{type(error).__name__}: {error}")) from error

    def send(self, batch: Any) -> None:
        """Send spans or metrics data; raise RefusedError unless the collector said that it took all of it."""
        self._taken = 0
        try:
            self._exporter.export(batch)
        except Exception as error:
            raise self._trouble or self.refuse(f"the exporter failed: {type(error).__name__}") from error
        if self._trouble is not None:  # an exporter makes a result of some errors
            raise self._trouble
        if self._taken == 0:  # no answer is no consent, whatever the exporter makes of it
            raise self.refuse("the exporter did not send it")

    def refuse(self, because: str) -> RefusedError:
        """Keep why a request was not taken, and return it as the error that ends the export."""
        hint = "the run is not touched by it; `gatekeeper export` sends it again"
        self._trouble = RefusedError(f"{self._shown}: {because}", hint=hint)
        return self._trouble

    def take(self, answer: Any) -> None:
        """Keep a collector's answer; raise RefusedError where it rejects a part."""
        partial = answer.partial_success
        rejected = getattr(partial, "rejected_spans", 0) + getattr(partial, "rejected_data_points", 0)
        if rejected:
            raise self.refuse(f"took a part and rejected {rejected}: {quote(partial.error_message)}")
        self._taken += 1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Hang up."""
        self._exporter.shutdown()
