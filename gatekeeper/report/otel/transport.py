"""The transport of one signal: an OpenTelemetry exporter whose responses are checked.

By themselves the exporters take any response below 400 for success, ignore partial rejections, and retry until their
timeout. Here requests are never retried: the export at the end of the run is the retry.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gatekeeper.core.text import quote
from gatekeeper.report.otel.endpoint import RefusedError

POINTS = 2000
"""Points per request: under a megabyte."""


class Transport:
    """Sends one signal through the exporter that *make_exporter* returns, which passes every response to `accept`."""

    def __init__(self, endpoint: str, make_exporter: Callable[[Self], Any]) -> None:
        self._endpoint, self._accepted = endpoint, 0
        self._refusal: RefusedError | None = None
        try:
            self._exporter = make_exporter(self)
        except Exception as error:  # a variable has a value that the exporter does not accept
            raise self.refuse(quote(f"{type(error).__name__}: {error}")) from error

    def send(self, batch: Any) -> None:
        """Send spans or metrics data; raise RefusedError unless the collector accepted all of it."""
        self._accepted = 0
        try:
            self._exporter.export(batch)
        except Exception as error:
            raise self._refusal or self.refuse(f"the exporter failed: {type(error).__name__}") from error
        if self._refusal is not None:  # an exporter returns some errors as a result
            raise self._refusal
        if self._accepted == 0:  # without a response it is not a success, whatever the exporter returns
            raise self.refuse("the exporter did not send it")

    def refuse(self, because: str) -> RefusedError:
        """Store why a request was refused, and return the error that ends the export."""
        self._refusal = RefusedError(f"{self._endpoint}: {because}")
        return self._refusal

    def accept(self, response: Any) -> None:
        """Count a collector's response; raise RefusedError where it rejects a part."""
        partial = response.partial_success
        rejected = getattr(partial, "rejected_spans", 0) + getattr(partial, "rejected_data_points", 0)
        if rejected:
            raise self.refuse(f"accepted a part and rejected {rejected}: {quote(partial.error_message)}")
        self._accepted += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._exporter.shutdown()
