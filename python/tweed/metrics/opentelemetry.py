"""The metrics for OpenTelemetry, through its SDK: those that Prometheus gets, by the same names and labels.

A counter has the name of its family, "tweed_link_bytes": who serves it to Prometheus adds "_total" again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client.core import Metric

from tweed.metrics.prometheus import families
from tweed.metrics.snapshot import Matrix

_PATIENCE_MS = 2_000  # for the last export, when the group ends


def sender(endpoint: str, every_s: float) -> MetricReader:
    """Sends metrics to a collector over HTTP. Headers and certificates are as OTEL_EXPORTER_OTLP_* has them.

    Args:
      endpoint: "http://HOST:4318".
      every_s: seconds between two exports; a second at least.
    """
    exporter = OTLPMetricExporter(endpoint=f"{endpoint.rstrip('/')}/v1/metrics")
    return PeriodicExportingMetricReader(exporter, export_interval_millis=1000 * max(1.0, every_s))


class Provider:
    """Lets a reader have the latest matrix.

    Args:
      reader: asks for the metrics when it likes.
    """

    def __init__(self, reader: MetricReader) -> None:
        self._families: dict[str, Metric] = {}
        self._known: set[str] = set()
        service = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "tweed")})
        self._provider = MeterProvider([reader], service, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("tweed")

    def show(self, matrix: Matrix) -> None:
        """What the reader finds from now on."""
        self._families = {_name(family): family for family in families(matrix)}
        for name in self._families.keys() - self._known:
            family, meter = self._families[name], self._meter
            counts = family.type == "counter"
            make = meter.create_observable_counter if counts else meter.create_observable_gauge
            make(name, [partial(self._observe, name)], description=family.documentation)
            self._known.add(name)

    def _observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        family = self._families.get(name)
        return [Observation(sample.value, sample.labels) for sample in family.samples] if family else []

    def close(self) -> None:
        """Hands on the last metrics, if that is quick."""
        self._provider.shutdown(timeout_millis=_PATIENCE_MS)

    def disown(self) -> None:
        """In a fork: the metrics are the parent's."""
        self._families = {}


def _name(family: Metric) -> str:
    return f"{family.name}_info" if family.type == "info" else family.name
