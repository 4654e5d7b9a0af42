"""The metrics for Prometheus, through its usual client. Counters go as they are: it makes rates of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from tweed.errors import UsageError
from tweed.metrics.hub_snapshot import HubCounts
from tweed.metrics.snapshot import Matrix, Row, arrivals

#: Suffix of the name, the counter of a `Link` (of both directions for `_BOTH_WAYS`) or of `Training`, help.
_PER_LINK = (
    ("retransmissions", "retransmissions", "Segments that the kernel of `rank` has sent to `peer` again."),
    ("packets", "packets", "Packets that `rank` has sent to `peer` by LTP."),
    ("packets_lost", "packets_lost", "Packets that `rank` has sent to `peer` by LTP and that got lost."),
    ("last", "times_last", "Operations in which `peer` was the last that `rank` heard of."),
    (
        "lateness_seconds",
        "lateness_s",
        "How much later than the first `rank` heard of `peer`, summed over operations.",
    ),
)
_BOTH_WAYS = (
    ("bytes", "bytes", "Payload that `rank` has exchanged with `peer`."),
    ("messages", "messages", "Messages that `rank` has exchanged with `peer`."),
)
_GAUGES = (
    ("round_trip_seconds", "rtt_s", "The estimate of the kernel or of LTP, now."),
    ("bandwidth_bytes_per_second", "bandwidth", "What LTP finds the way to carry, now."),
)
_TRAINING = (
    ("steps", "steps", "Optimizer steps that `rank` has taken."),
    ("exchanges", "exchanges", "Exchanges that `rank` has taken part in."),
    ("exchanged_bytes", "bytes_exchanged", "Bytes of `rank`'s buffers that went into exchanges."),
    ("waiting_seconds", "waiting_s", "Time for which training of `rank` stood still for the network."),
    ("encoding_seconds", "encoding_s", "Time for which codecs of `rank` worked, decoding too."),
)
#: Suffix of the name, help, a label, and by its values the counters of a `HubMember`.
_PER_MEMBER: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "contributions",
        "What became of contributions of `member`.",
        "outcome",
        {"counted": "counted", "rejected": "rejected", "late": "late"},
    ),
    (
        "bytes",
        "Payloads of `member`, and models to it.",
        "direction",
        {"in": "bytes_in", "out": "bytes_out"},
    ),
    ("delay_commits", "Commits between base and commit, summed over contributions.", "", {"": "delay"}),
    ("weight", "With which contributions of `member` counted, summed.", "", {"": "weight"}),
)


def families(matrix: Matrix) -> Iterator[Metric]:
    """All metrics of a matrix. A rank that has told nothing yet is in none."""
    about = InfoMetricFamily("tweed_run", "The run.")
    about.add_metric([], {"run": matrix.run, "ranks": str(matrix.ranks)})
    yield about
    if matrix.epoch is not None:
        yield GaugeMetricFamily("tweed_epoch", "Of members that come and go, now.", value=matrix.epoch)
    yield _places(matrix.rows)
    yield from _links(matrix.rows)
    yield from _ranks(matrix)
    yield from _training(matrix.rows)
    yield from () if matrix.hub is None else hub_families(matrix.hub)


def _places(rows: Iterable[Row]) -> Metric:
    family = InfoMetricFamily("tweed_rank", "Where each rank runs.", labels=["rank"])
    for row in rows:
        family.add_metric([str(row.rank)], {"host": row.host, "pid": str(row.pid)})
    return family


def _links(rows: Iterable[Row]) -> Iterator[Metric]:
    ends = [(str(row.rank), link) for row in rows for link in row.links if link.peer != row.rank]
    for name, counter, text in _BOTH_WAYS:
        family = CounterMetricFamily(f"tweed_link_{name}", text, labels=["rank", "peer", "link", "direction"])
        for rank, link in ends:
            for direction in ("out", "in"):
                value = getattr(link, f"{counter}_{direction}")
                family.add_metric([rank, str(link.peer), link.kind, direction], value)
        yield family
    for name, counter, text in _PER_LINK:
        family = CounterMetricFamily(f"tweed_link_{name}", text, labels=["rank", "peer"])
        for rank, link in ends:
            family.add_metric([rank, str(link.peer)], getattr(link, counter))
        yield family
    for name, counter, text in _GAUGES:
        gauge = GaugeMetricFamily(f"tweed_link_{name}", text, labels=["rank", "peer"])
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
    text = "Time for which an operation was under way at `rank`, be it behind computing."
    under_way = CounterMetricFamily("tweed_rank_under_way_seconds", text, labels=["rank"])
    text = "How long ago `rank` has told its metrics."
    silent = GaugeMetricFamily("tweed_rank_silent_seconds", text, labels=["rank"])
    for row in matrix.rows:
        under_way.add_metric([str(row.rank)], row.under_way_s)
        silent.add_metric([str(row.rank)], row.silent_s)
    yield from (last, late, under_way, silent)


def _training(rows: Iterable[Row]) -> Iterator[Metric]:
    ranks = [(str(row.rank), row.training) for row in rows if row.training is not None]
    for name, counter, text in _TRAINING if ranks else ():
        family = CounterMetricFamily(f"tweed_training_{name}", text, labels=["rank"])
        for rank, training in ranks:
            family.add_metric([rank], getattr(training, counter))
        yield family


def hub_families(hub: HubCounts) -> Iterator[Metric]:
    """The metrics of a hub. Members go by their numbers; `tweed_hub_member_info` has their keys."""
    yield CounterMetricFamily("tweed_hub_commits", "Updates of the hub's model.", value=hub.version)
    yield GaugeMetricFamily("tweed_hub_members", "Members that have a link.", value=hub.there)
    yield GaugeMetricFamily("tweed_hub_members_known", "Members that ever came.", value=hub.known)
    refused = CounterMetricFamily("tweed_hub_refused", "Callers that were turned away.", labels=["reason"])
    for reason, count in sorted(hub.refused.items()):
        refused.add_metric([reason], count)
    yield refused
    keys = InfoMetricFamily("tweed_hub_member", "Who has which number.", labels=["member"])
    for one in hub.members:
        keys.add_metric([str(one.number)], {"key": one.key})
    yield keys
    for name, text, label, counters in _PER_MEMBER:
        labels = ["member", label] if label else ["member"]
        family = CounterMetricFamily(f"tweed_hub_{name}", text, labels=labels)
        for one in hub.members:
            for value, counter in counters.items():
                family.add_metric([str(one.number), *([value] if label else [])], getattr(one, counter))
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
        with suppress(OSError):  # by which `tweed doctor` knows what the port is for
            Path(f"/proc/self/task/{self._thread.native_id}/comm").write_text(f"metrics:{self.port}")

    def collect(self) -> Iterator[Metric]:
        """Called by the client library at each scrape."""
        return iter(()) if self._matrix is None else families(self._matrix)

    def show(self, matrix: Matrix) -> None:
        """What the next scrape finds."""
        self._matrix = matrix

    def close(self) -> None:
        """Stops serving, and frees the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def disown(self) -> None:
        """In a fork: lets go of the port, which is the parent's."""
        with suppress(OSError):
            self._server.socket.close()
