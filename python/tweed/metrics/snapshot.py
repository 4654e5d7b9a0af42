"""What is known of a run's links at one moment, as plain values; what happened between two moments.

    Counts  of one link, seen from one end       Row     all of one rank's links
    Matrix  the rows of all ranks                since   the same between two matrices: counts of that time

Counters only grow. Where one is smaller than before, its process has begun anew and it counts from zero.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tweed.metrics.hub_snapshot import HubCounts


@dataclass(frozen=True, slots=True)
class Link:
    """What one rank has counted on its link to `peer`.

    Attributes:
      peer: the other end.
      kind: "self", "shm", "tcp" or "ltp".
      bytes_out, bytes_in: payload that this rank has sent there, and that came from there.
      messages_out, messages_in: the engine's messages.
      retransmissions: segments that this end's kernel has sent again; always 0 without a wire.
      times_last: operations in which `peer` was the last that this rank heard of.
      lateness_s: sum over operations of how much later than the first `peer` was heard of.
      rtt_s: the estimate of the round trip now, by the kernel or by "ltp"; None without a wire.
      packets, packets_lost: packets of "ltp" that this end has sent there, and those that got lost.
      bandwidth: bytes per second that "ltp" finds the way there to carry, at this moment; None without it.
    """

    peer: int
    kind: str
    bytes_out: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    messages_in: int = 0
    retransmissions: int = 0
    times_last: int = 0
    lateness_s: float = 0.0
    rtt_s: float | None = None
    packets: int = 0
    packets_lost: int = 0
    bandwidth: int | None = None

    def since(self, before: Link | None) -> Link:
        """What was counted after `before`."""
        return self if before is None else replace(self, **_grown(before, self, _LINK_COUNTERS))


@dataclass(frozen=True, slots=True)
class Training:
    """What `tweed.attach` has counted in one rank, see `tweed.Stats`."""

    steps: int = 0
    exchanges: int = 0
    bytes_exchanged: int = 0
    waiting_s: float = 0.0
    encoding_s: float = 0.0

    def since(self, before: Training | None) -> Training:
        """What was counted after `before`."""
        return self if before is None else Training(**_grown(before, self, _TRAINING_COUNTERS))


_NO_COUNTERS = ("peer", "kind", "rtt_s", "bandwidth")
_LINK_COUNTERS = tuple(item.name for item in fields(Link) if item.name not in _NO_COUNTERS)
_TRAINING_COUNTERS = tuple(item.name for item in fields(Training))


@dataclass(frozen=True, slots=True)
class Row:
    """What one rank knows.

    Attributes:
      rank, host, pid: whose row it is.
      up_s: seconds since this rank began to count, by its own clock. In a difference: the time between.
      links: in the order of peers; those over which nothing went may be missing.
      training: None in a run without `tweed.attach`.
      silent_s: how long rank 0 has waited for the next row when the matrix was made.
      under_way_s: seconds in which at least one operation of the group was under way at this rank.
    """

    rank: int
    host: str
    pid: int
    up_s: float
    links: tuple[Link, ...] = ()
    training: Training | None = None
    silent_s: float = 0.0
    under_way_s: float = 0.0

    def link(self, peer: int) -> Link | None:
        """The link to `peer`, if anything is known of it."""
        return next((link for link in self.links if link.peer == peer), None)

    def total(self, counter: str) -> float:
        """Sum of a counter over all links."""
        return float(sum(getattr(link, counter) for link in self.links))

    def rate(self, counter: str) -> float:
        """In a difference: the sum of a counter per second; 0 where no time has passed."""
        return per_second(self.total(counter), self.up_s)

    def since(self, before: Row | None) -> Row:
        """What was counted after `before`. All of it if that was another process."""
        if before is None or before.pid != self.pid or before.up_s > self.up_s:
            return self
        links = tuple(link.since(before.link(link.peer)) for link in self.links)
        training = self.training and self.training.since(before.training)
        counted = _grown(before, self, ("up_s", "under_way_s"))
        return replace(self, links=links, training=training, **counted)

    def encode(self) -> bytes:
        """As a short text, for the way to rank 0: about 60 bytes per link."""
        return zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode(), 1)

    @classmethod
    def decode(cls, text: bytes, silent_s: float = 0.0) -> Row:
        """The inverse of `encode`."""
        return cls.from_json(json.loads(zlib.decompress(text)) | {"silent_s": silent_s})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Row:
        """From plain values, as `dataclasses.asdict` makes them."""
        links = tuple(Link(**link) for link in values["links"])
        training = values["training"]
        return cls(**{**values, "links": links, "training": training and Training(**training)})


@dataclass(frozen=True, slots=True)
class Matrix:
    """What rank 0 knows of all ranks.

    Attributes:
      run: what the job is called.
      pid: process of rank 0, where the metrics can be had.
      ranks: how many take part; those that have not told anything yet have no row.
      up_s: seconds since rank 0 began to count. In a difference: the time between.
      rows: in the order of ranks.
      hub: what the hub has counted that rank 0 is; None: it is none.
      epoch: of members that come and go, whose ranks these are; None: nobody comes or goes.
    """

    run: str
    pid: int
    ranks: int
    up_s: float
    rows: tuple[Row, ...] = ()
    hub: HubCounts | None = None
    epoch: int | None = None

    def row(self, rank: int) -> Row | None:
        """The row of `rank`, if it has told one."""
        return next((row for row in self.rows if row.rank == rank), None)

    def since(self, before: Matrix) -> Matrix:
        """What was counted after `before`."""
        rows = tuple(row.since(before.row(row.rank)) for row in self.rows)
        hub = self.hub and self.hub.since(before.hub)
        return replace(self, up_s=max(0.0, self.up_s - before.up_s), rows=rows, hub=hub)

    def to_json(self) -> str:
        """As one line of JSON, without its end."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Matrix:
        """The inverse of `to_json`."""
        values = json.loads(text)
        rows, hub = tuple(Row.from_json(row) for row in values["rows"]), values.get("hub")
        return cls(**{**values, "rows": rows, "hub": hub and HubCounts.from_json(hub)})


@dataclass(frozen=True, slots=True)
class Arrival:
    """How late the others have found one rank.

    Attributes:
      rank: whose arrival it is.
      times_last: in how many operations it was last, as each rank, itself included, has counted.
      lateness_s: sum of how late the others heard of it.
      share: part of all operations, as each rank has counted, in which it was last; 0 where there were none.
      late_s: how late it was on average, for another rank in an operation.
    """

    rank: int
    times_last: int
    lateness_s: float
    share: float
    late_s: float


@dataclass(frozen=True, slots=True)
class TimeShares:
    """What a rank did with its time, as shares of it: the first three make one.

    Attributes:
      computing: neither of the next two.
      encoding: codecs worked, decoding too.
      waiting: training stood still for the network.
      under_way: at least one operation was under way.
      hidden: of that, what went on behind computing and encoding.
    """

    computing: float
    encoding: float
    waiting: float
    under_way: float
    hidden: float

    @classmethod
    def of(cls, row: Row) -> TimeShares | None:
        """Shares of a row that is a difference; None if its rank does not train, or no time has passed."""
        if row.training is None or row.up_s <= 0:
            return None
        counted = (row.training.encoding_s, row.training.waiting_s, row.under_way_s)
        encoding, waiting, under_way = (min(1.0, seconds / row.up_s) for seconds in counted)
        computing, hidden = max(0.0, 1 - encoding - waiting), max(0.0, under_way - waiting)
        return cls(computing, encoding, waiting, under_way, hidden)


def arrivals(matrix: Matrix) -> list[Arrival]:
    """How each rank arrives, as the others see it. Over a difference: in that time."""
    return [_arrival(matrix, row.rank) for row in matrix.rows]


def laggard(matrix: Matrix) -> Arrival | None:
    """Who costs the others most time; None where nobody came after anybody."""
    late = [arrival for arrival in arrivals(matrix) if arrival.times_last]
    return max(late, key=lambda each: (each.lateness_s, each.times_last, -each.rank), default=None)


def _arrival(matrix: Matrix, rank: int) -> Arrival:
    """A rank knows when it was last itself, but not how late it was."""
    others = [row for row in matrix.rows if row.rank != rank]
    seen = [link for row in matrix.rows if (link := row.link(rank)) is not None]
    last, late_s = sum(link.times_last for link in seen), sum(link.lateness_s for link in seen)
    share = last / max(1, _operations(matrix.rows))
    return Arrival(rank, last, late_s, share, late_s / max(1, _operations(others)))


def _operations(rows: Sequence[Row]) -> int:
    """How many operations these ranks have seen the end of, each rank counted by itself."""
    return sum(link.times_last for row in rows for link in row.links)


def per_second(count: float, seconds: float) -> float:
    """A rate; 0 where no time has passed."""
    return count / seconds if seconds > 0 else 0.0


def _grown(before: Any, after: Any, counters: tuple[str, ...]) -> dict[str, Any]:
    """How much each counter has grown; all of it if it has begun anew."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in counters}
    return {name: new - old if new >= old else new for name, (old, new) in pairs.items()}
