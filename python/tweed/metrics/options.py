"""What a user wants of the metrics: how often, and where to besides `tweed top`."""

from __future__ import annotations

import importlib.util
import math
from contextlib import suppress
from dataclasses import dataclass

from tweed import distribution
from tweed.errors import UsageError

#: Seconds between two rows of a rank, unless a user says otherwise.
EVERY_S = 1.0

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Checked when it is made.

    Args:
      every_s: seconds between two rows of a rank; 0 for no metrics at all.
      prometheus: "PORT" on loopback, or "HOST:PORT".
      tensorboard: a folder for events.
      opentelemetry: "http://HOST:PORT" of a collector that takes OTLP over HTTP.

    Raises:
      UsageError: what cannot be; or a client package is missing, then it says how to get it.
    """

    every_s: float = EVERY_S
    prometheus: str | None = None
    tensorboard: str | None = None
    opentelemetry: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.every_s < math.inf:
            raise UsageError(f"metrics must be a number of seconds, or 0 for none, not {self.every_s}")
        if not self.every_s and (self.prometheus or self.tensorboard or self.opentelemetry):
            raise UsageError(
                "metrics is 0, so there are none for Prometheus, TensorBoard or OpenTelemetry; omit one"
            )
        if self.prometheus is not None:
            address(self.prometheus)
            _require("prometheus_client", "TWEED_PROMETHEUS")
        if self.opentelemetry is not None:
            if not self.opentelemetry.startswith(("http://", "https://")):
                raise UsageError(f"TWEED_OPENTELEMETRY must be http://HOST:PORT, not {self.opentelemetry!r}")
            for module in ("opentelemetry.sdk", "opentelemetry.exporter", "prometheus_client"):
                _require(module, "TWEED_OPENTELEMETRY", "otel")
        if self.tensorboard is not None:
            _require("tensorboard", "TWEED_TENSORBOARD")


def address(text: str) -> tuple[str, int]:
    """Host and port of "PORT", "HOST:PORT" or "[HOST]:PORT". Raises: UsageError for anything else."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not int(port) < 1 << 16:
        raise UsageError(f"TWEED_PROMETHEUS must be PORT or HOST:PORT, not {text!r}")
    return host.strip("[]") or _LOOPBACK, int(port)


def _require(module: str, option: str, extra: str = "metrics") -> None:
    found = None
    with suppress(ModuleNotFoundError):  # of what the module is in
        found = importlib.util.find_spec(module)
    if found is None:
        raise UsageError(f"{option} needs the package {module}: {distribution.install_extra(extra)}")
