"""The proxy's metrics as Prometheus text: requests, times, routes and the benefit as it is bounded now."""

from collections.abc import Iterator
from functools import lru_cache, partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gatekeeper.live.live_records import EndedRequest
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.report.otel.metric_names import FIRST_TOKEN_SECONDS, SECONDS


class Exposition:
    """Counts what has ended; gauges are read when the text is fetched."""

    def __init__(self, routes: RequestRoutes) -> None:
        self._registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=self._registry), partial(Histogram, registry=self._registry)
        name, labels = "gatekeeper_proxy", ("workload", "route")
        self._requests = counter(f"{name}_requests", "Requests that have ended", (*labels, "rule", "status"))
        self._faults = counter(f"{name}_faults", "Requests that failed", labels)
        self._tokens = counter(f"{name}_completion_tokens", "Tokens that servers reported", labels)
        about = "Plain answers for which a server drafted tokens, as it says itself"
        self._not_plain = counter(f"{name}_not_plain", about, labels[:1])
        about = "From a request's arrival to its"
        self._ttft = histogram(f"{name}_ttft_seconds", f"{about} first text", labels, buckets=FIRST_TOKEN_SECONDS)
        self._duration = histogram(f"{name}_duration_seconds", f"{about} end", labels, buckets=SECONDS)
        self._registry.register(_Gauges(routes))
        self._child = lru_cache(maxsize=1024)(lambda metric, *labels: metric.labels(*labels))

    def ended(self, ended: EndedRequest) -> None:
        """Count a request that has ended."""
        workload, target = ended.decision.workload, ended.target
        self._child(self._requests, workload, target, ended.decision.rule, str(ended.status or "none")).inc()
        self._child(self._duration, workload, target).observe(ended.seconds)
        if ended.fault is not None:
            self._child(self._faults, workload, target).inc()
        if ended.is_not_plain:
            self._child(self._not_plain, workload).inc()
        if ended.tokens:
            self._child(self._tokens, workload, target).inc(ended.tokens)
        if ended.ttft is not None:
            self._child(self._ttft, workload, target).observe(ended.ttft)

    def text(self) -> tuple[bytes, str]:
        """Return the text and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _Gauges(Collector):
    def __init__(self, routes: RequestRoutes) -> None:
        self._routes = routes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of this moment; a ratio that is not bounded yet has no value."""
        name, routes = "gatekeeper_proxy", self._routes
        yield GaugeMetricFamily(f"{name}_in_flight", "Generating requests in flight", routes.in_flight)
        speculates = GaugeMetricFamily(f"{name}_speculates", "1 where the route may speculate now", labels=["workload"])
        about = "Speculative over holdout, with the ends of an interval that holds at every moment"
        ratio = GaugeMetricFamily(f"{name}_ratio", about, labels=["workload", "of", "end"])
        arms = ["workload", "arm"]
        answers = GaugeMetricFamily(f"{name}_drawn", "Answers of each arm in the window", labels=arms)
        talks = GaugeMetricFamily(f"{name}_conversations", "Conversations of each arm in the window", labels=arms)
        about = "Answers in flight at the server of an answer, itself included, in the mean of an arm"
        met = GaugeMetricFamily(f"{name}_in_flight_met", about, labels=arms)
        for workload, route in routes.routes.items():
            speculates.add_metric([workload], float(route.speculation and not routes.is_stale and not routes.not_plain))
            benefit = routes.evidence.benefit(workload)
            if benefit is None:
                continue
            for arm, count in benefit.answers.items():
                answers.add_metric([workload, arm], count)
                talks.add_metric([workload, arm], benefit.conversations[arm])
            for arm, in_flight in benefit.in_flight.items():
                met.add_metric([workload, arm], in_flight)
            for measure, end, value in benefit.ends():
                ratio.add_metric([workload, measure, end], value)
            for end, bound in zip(("lo", "hi"), benefit.error_ratio, strict=True):
                if bound is not None:
                    ratio.add_metric([workload, "error_rate", end], bound)
        yield from (speculates, answers, talks, met, ratio)
