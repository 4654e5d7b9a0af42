"""What OpenTelemetry is given: the metrics of Prometheus, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint, Sum

from tests.metrics.cases import BEFORE, NOW
from tests.metrics.test_outlets import registry
from tweed.errors import UsageError
from tweed.metrics.opentelemetry import Provider, sender
from tweed.metrics.options import MetricsOptions
from tweed.metrics.snapshot import Matrix

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def sample(name: str, labels: Mapping[str, object], value: float) -> Samples:
    return {(name, frozenset((key, str(label)) for key, label in labels.items())): value}


def read(reader: InMemoryMetricReader) -> Samples:
    """By name and labels; what only grows is named as in Prometheus."""
    data, found = reader.get_metrics_data(), Samples()
    for resource in data.resource_metrics if data else ():
        for metric in resource.scope_metrics[0].metrics:
            counts = isinstance(metric.data, Sum)
            assert not counts or metric.data.is_monotonic
            for point in metric.data.data_points:
                assert isinstance(point, NumberDataPoint)
                found |= sample(metric.name + "_total" * counts, point.attributes or {}, point.value)
    return found


def of_prometheus(matrix: Matrix) -> Samples:
    found = Samples()
    for family in registry(matrix).collect():
        for one in family.samples:
            found |= sample(one.name, one.labels, one.value)
    return found


def test_metrics_are_those_of_prometheus() -> None:
    reader = InMemoryMetricReader()
    provider = Provider(reader)
    assert read(reader) == {}
    for matrix in (BEFORE, NOW, Matrix("x", 1, 2, 1.0, NOW.rows[:1])):
        provider.show(matrix)
        assert read(reader) == of_prometheus(matrix)
    provider.disown()
    assert read(reader) == {}
    provider.close()


def test_the_service_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tweed", "mine"):
        reader = InMemoryMetricReader()
        provider = Provider(reader)
        provider.show(NOW)
        data = reader.get_metrics_data()
        assert data is not None and data.resource_metrics[0].resource.attributes["service.name"] == name
        provider.close()
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")


def test_a_collector_has_the_last_metrics_when_the_group_ends() -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        provider = Provider(sender(f"http://127.0.0.1:{server.server_port}/", every_s=3600.0))
        provider.show(NOW)
        provider.close()
        server.shutdown()
        thread.join()
    request = ExportMetricsServiceRequest.FromString(bodies[-1])
    names = {metric.name for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert {"tweed_link_bytes", "tweed_rank_silent_seconds", "tweed_run_info"} <= names


def test_what_is_no_collector_is_said() -> None:
    with pytest.raises(UsageError, match="TWEED_OPENTELEMETRY must be http://HOST:PORT, not 'here'"):
        MetricsOptions(opentelemetry="here")
    with pytest.raises(UsageError, match="there are none for Prometheus, TensorBoard or OpenTelemetry"):
        MetricsOptions(0.0, opentelemetry="http://here:4318")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"opentelemetry.sdk: pip install .*\[otel\]'"):
        MetricsOptions(opentelemetry="http://here:4318")
