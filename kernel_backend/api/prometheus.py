"""Serve `/metrics`: the service's metrics in the text format of Prometheus or OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.cluster.monitored import Family

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
STREAMS = 101  # HTTP status of websockets, which are not timed: they last as long as their page is open


class RequestTimes:
    """Histogram of the API's response times by route, method and status; also the process's CPU time and memory."""

    def __init__(self, routes: Mapping[type[RequestHandler], str]) -> None:
        """Create the histogram; `routes` maps handlers to their paths, such as `/api/experiments/{number}`."""
        self._routes = routes
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._seconds = Histogram(
            "daylight_http_request_seconds",
            "Seconds from a request to its answer",
            ("route", "method", "status"),
            registry=self.registry,
            buckets=SECONDS,
        )

    def observe(self, handler: RequestHandler) -> None:
        """Record the response time of a request that was answered; tornado calls this as its `log_function`."""
        route, status = self._routes.get(type(handler)), handler.get_status()
        if route is not None and status != STREAMS:
            seconds = handler.request.request_time()
            self._seconds.labels(route, handler.request.method or "", str(status)).observe(seconds)


class MetricsHandler(ApiHandler):
    """Handler of `/metrics`, which a monitoring system such as Prometheus reads at intervals."""

    async def get(self) -> None:
        """Return the numbers of slots, queues, gangs and requests for Prometheus. For admins."""
        families = await self.service.monitoring.families(self.user)
        encode, kind = choose_encoder(self.request.headers.get("Accept", ""))
        times: RequestTimes = self.settings["request_times"]
        self.set_header("Content-Type", kind)
        self.finish(encode(_Together(families, times.registry)))


class _Together(CollectorRegistry):
    """Registry for one request to `/metrics`: the service's metrics (`families`) with those of another registry."""

    def __init__(self, families: Sequence[Family], registry: CollectorRegistry) -> None:
        super().__init__()
        self._families, self._others = families, registry

    def collect(self) -> Iterator[Metric]:
        """Yield the service's metrics, then those of the other registry."""
        yield from map(_metric, self._families)
        yield from self._others.collect()


def _metric(family: Family) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric


HANDLERS: dict[str, type[RequestHandler]] = {"/metrics": MetricsHandler}
