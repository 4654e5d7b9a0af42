"""The metrics for Prometheus, through its usual client. Counters go as they are: it makes rates of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from tweed.errors import UsageError
from tweed.metrics.snapshot import Matrix, Row, arrivals

#: Name, help, and the counter of a `Link`, of both directions, or of `Training`.
_PER_LINK: dict[str, tuple[str, str]] = {
    "tweed_link_retransmissions": (
        "Segments that the kernel of `rank` has sent to `peer` again.",
        "retransmissions",
    ),
    "tweed_link_packets": ("Packets that `rank` has sent to `peer` by LTP.", "packets"),
    "tweed_link_packets_lost": (
        "Packets that `rank` has sent to `peer` by LTP and that got lost.",
        "packets_lost",
    ),
    "tweed_link_last": ("Operations in which `peer` was the last that `rank` heard of.", "times_last"),
    "tweed_link_lateness_seconds": (
        "How much later than the first `rank` heard of `peer`, summed over operations.",
        "lateness_s",
    ),
}
_BOTH_WAYS: dict[str, tuple[str, str]] = {
    "tweed_link_bytes": ("Payload that `rank` has exchanged with `peer`.", "bytes"),
    "tweed_link_messages": ("Messages that `rank` has exchanged with `peer`.", "messages"),
}
_GAUGES = {
    "tweed_link_round_trip_seconds": ("The estimate of the kernel or of LTP, now.", "rtt_s"),
    "tweed_link_bandwidth_bytes_per_second": ("What LTP finds the way to carry, now.", "bandwidth"),
}
_TRAINING: dict[str, tuple[str, str]] = {
    "tweed_training_steps": ("Optimizer steps that `rank` has taken.", "steps"),
    "tweed_training_exchanges": ("Exchanges that `rank` has taken part in.", "exchanges"),
    "tweed_training_exchanged_bytes": (
        "Bytes of `rank`'s buffers that went into exchanges.",
        "bytes_exchanged",
    ),
    "tweed_training_waiting_seconds": (
        "Time for which training of `rank` stood still for the network.",
        "waiting_s",
    ),
}


def families(matrix: Matrix) -> Iterator[Metric]:
    """All metrics of a matrix. A rank that has told nothing yet is in none."""
    about = InfoMetricFamily("tweed_run", "The run.")
    about.add_metric([], {"run": matrix.run, "ranks": str(matrix.ranks)})
    yield about
    yield _places(matrix.rows)
    yield from _links(matrix.rows)
    yield from _ranks(matrix)
    yield from _training(matrix.rows)


def _places(rows: Iterable[Row]) -> Metric:
    family = InfoMetricFamily("tweed_rank", "Where each rank runs.", labels=["rank"])
    for row in rows:
        family.add_metric([str(row.rank)], {"host": row.host, "pid": str(row.pid)})
    return family


def _links(rows: Iterable[Row]) -> Iterator[Metric]:
    ends = [(str(row.rank), link) for row in rows for link in row.links if link.peer != row.rank]
    for name, (text, counter) in _BOTH_WAYS.items():
        family = CounterMetricFamily(name, text, labels=["rank", "peer", "link", "direction"])
        for rank, link in ends:
            for direction in ("out", "in"):
                value = getattr(link, f"{counter}_{direction}")
                family.add_metric([rank, str(link.peer), link.kind, direction], value)
        yield family
    for name, (text, counter) in _PER_LINK.items():
        family = CounterMetricFamily(name, text, labels=["rank", "peer"])
        for rank, link in ends:
            family.add_metric([rank, str(link.peer)], getattr(link, counter))
        yield family
    for name, (text, counter) in _GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=["rank", "peer"])
        for rank, link in ends:
            if (value := getattr(link, counter)) is not None:
                gauge.add_metric([rank, str(link.peer)], value)
        yield gauge


def _ranks(matrix: Matrix) -> Iterator[Metric]:
    text = "Operations in which `rank` was last, as each rank, itself included, has counted."
    last = CounterMetricFamily("tweed_rank_last", text, labels=["rank"])
    text = "How late the others heard of `rank`, summed."
    late = CounterMetricFamily("tweed_rank_lateness_seconds", text, labels=["rank"])
    for arrival in arrivals(matrix):
        last.add_metric([str(arrival.rank)], arrival.times_last)
        late.add_metric([str(arrival.rank)], arrival.lateness_s)
    text = "How long ago `rank` has told its metrics."
    silent = GaugeMetricFamily("tweed_rank_silent_seconds", text, labels=["rank"])
    for row in matrix.rows:
        silent.add_metric([str(row.rank)], row.silent_s)
    yield from (last, late, silent)


def _training(rows: Iterable[Row]) -> Iterator[Metric]:
    ranks = [(str(row.rank), row.training) for row in rows if row.training is not None]
    for name, (text, counter) in _TRAINING.items() if ranks else ():
        family = CounterMetricFamily(name, text, labels=["rank"])
        for rank, training in ranks:
            family.add_metric([rank], getattr(training, counter))
        yield family


class Exporter:
    """Serves the latest matrix over HTTP, from a thread of the client library.

    Args:
      address: host and port, as `parse` gives them.

    Raises:
      UsageError: the port cannot be had; says which.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._matrix: Matrix | None = None
        registry = CollectorRegistry()
        registry.register(self)
        host, port = address
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            advice = "give another port in TWEED_PROMETHEUS=[HOST:]PORT"
            raise UsageError(
                f"cannot serve Prometheus on {host}:{port}: {error.strerror}; {advice}"
            ) from error
        self.port: int = self._server.server_port

    def collect(self) -> Iterator[Metric]:
        """Called by the client library at each scrape."""
        return iter(()) if self._matrix is None else families(self._matrix)

    def show(self, matrix: Matrix) -> None:
        """What the next scrape finds."""
        self._matrix = matrix

    def close(self) -> None:
        """Frees the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def disown(self) -> None:
        """In a fork: lets go of the port, which is the parent's."""
        with suppress(OSError):
            self._server.socket.close()
