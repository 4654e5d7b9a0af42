"""Which builder to use: from size, number of ranks and what the links can do.

`choose` decides by a formula, such as between ring and tree for a small message; `planning` by the
simulator, among those that are `fitting` for a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from tweed._core import Topology
from tweed.collective.builder import Builder
from tweed.collective.pattern import Pattern, Shape
from tweed.collective.table import builders, find
from tweed.errors import UsageError

SMALL_BYTES = 32 * 1024
"""In shared memory, a buffer up to this size is quicker read whole by everybody than in two steps."""

_ALONE = {"all_reduce": "exchange", "gather": "star", "scatter": "star"}
"""What one rank alone is given, with nothing to send; for the others, `pairwise`."""

_NAMED = 5  # so many times stand in a reason
_SLICE_BYTES, _PIECE_BYTES, _LEAST_PIECE_BYTES, _WINDOW = 4 << 20, 256 << 10, 64 << 10, 16


@dataclass(frozen=True, slots=True)
class Links:
    """What the links of a group can do, measured or assumed; of uneven links, the worst.

    Attributes:
      latency_s: seconds from a message's departure to its arrival.
      bandwidth: bytes per second through one rank's port, in each direction.
      message_s: seconds of a rank's own time to send or receive one message, whatever its size.
      fan_in: how many ranks may send into one port at a time. More, and switches drop packets until
        throughput collapses (Phanishayee et al., "Measurement and analysis of TCP throughput collapse in
        cluster-based storage systems", FAST 2008: a few tens of senders with common switches).
      shared_memory: all ranks share memory; the other figures do not matter then.

    Example:
      >>> Links(latency_s=1e-3, bandwidth=1.25e6).shared_memory
      False
    """

    latency_s: float
    bandwidth: float
    message_s: float = 20e-6
    fan_in: int = 16
    shared_memory: bool = False


ONE_HOST = Links(latency_s=20e-6, bandwidth=10e9, shared_memory=True)
"""Ranks that share one host's memory."""

ALIKE = 0.01
"""Of estimates that differ by less, the ring's is taken, and then that of the fewest steps (`around`)."""

_CROWDED = {"all_reduce": 0.3, "reduce_scatter": 0.3, "all_gather": 0.3}
"""Of these, the ring is taken if its estimate is longer by this share at most. With others several ranks send
to one, and their streams take room from each other, which the formula does not know: of 128 KiB and more they
took up to 1.5 times as long as the ring over links of 100 Mbit/s (docs/decisions/0058)."""

NETWORK = Links(latency_s=200e-6, bandwidth=125e6)
"""Assumed of a network that nobody has measured: 1 Gbit/s Ethernet within a building."""


def slicing(chunks: int) -> tuple[int, int]:
    """How the engine cuts a buffer of `chunks` on wires: bytes of a piece of a chunk, slices in flight.

    A slice is a piece of every chunk. The same as `Tuning::WIRE` in crates/proto/src/engine/members.rs,
    of a long buffer of which any number of bytes may be in flight.
    """
    piece = min(_PIECE_BYTES, max(_SLICE_BYTES // chunks, _LEAST_PIECE_BYTES))
    return -(-piece // 64) * 64, _WINDOW


class Reason(Enum):
    """Why a builder was chosen; the value is the text for people."""

    ALONE = "a rank alone sends nothing"
    ASKED = "asked for by name"
    SHARED_SMALL = "shared memory, small buffer: one step, in which everybody reads everybody"
    SHARED_LARGE = "shared memory: the ranks share the summing, each part in one pass"
    SHARED_DIRECT = "shared memory: every rank reads straight from where the data is"
    QUICKEST = "least estimated time of those that keep within the fan-in of the links"
    ONE_SENDER = "its ranks have one sender each, and its estimated time is not much longer than the least"
    AROUND = "least estimated time of those that need no link that is missing"
    PREDICTED = "least time in the simulator, over the links of the network"
    ONLY = "the only kind there is; more ranks send into one port than the links take"


class Timed(NamedTuple):
    """A builder, and how long it is expected to take for one size. `pieces` as in `Choice`."""

    seconds: float
    builder: str
    pieces: int | None = None

    def __str__(self) -> str:
        return f"{label(self.builder, self.pieces)} {self.seconds * 1e3:.3g} ms"


def label(builder: str, pieces: int | None) -> str:
    """A builder with its pieces, for people: "multitree", "forest/16"."""
    return builder if pieces in (None, 1) else f"{builder}/{pieces}"


@dataclass(frozen=True, slots=True)
class Choice:
    """A builder for one size of one collective, and why.

    Attributes:
      collective: such as `all_reduce`.
      ranks: the number of ranks.
      builder: the builder's name.
      reason: the kind of reason.
      detail: figures behind it; may be empty.
      pieces: into how many pieces the shares of a schedule that follows links are cut; None: it follows none.

    Example:
      >>> str(choose("all_reduce", 1024, 8, ONE_HOST).builder)
      'exchange'
    """

    collective: str
    ranks: int
    builder: str
    reason: Reason
    detail: str = ""
    pieces: int | None = None

    @property
    def why(self) -> str:
        """Reason and detail in one line."""
        return f"{self.reason.value} ({self.detail})" if self.detail else self.reason.value

    def __str__(self) -> str:
        return f"{self.collective} over {self.ranks} ranks: {self.builder}; {self.why}"


def choose(collective: str, numbytes: int, ranks: int, links: Links, *, asked: str | None = None) -> Choice:
    """Picks a builder.

    Args:
      collective: such as `all_reduce`.
      numbytes: the whole buffer, all chunks together; for all_to_all, the buffers of all ranks together.
      ranks: the number of ranks.
      links: what the links can do.
      asked: overrules the choice with this builder.

    Raises:
      UsageError: no such collective, or no such builder for it.

    Cost: a few microseconds; no schedule is built.

    Example:
      >>> choose("all_reduce", 1 << 20, 8, NETWORK).ranks
      8
    """
    if asked is not None:
        return Choice(collective, ranks, find(collective, asked).name, Reason.ASKED)
    if ranks == 1:
        return Choice(
            collective, ranks, find(collective, _ALONE.get(collective, "pairwise")).name, Reason.ALONE
        )
    if links.shared_memory:
        return _shared(collective, numbytes, ranks)
    return _formula(collective, numbytes, ranks, links)


def seconds(shape: Shape, chunks: int, numbytes: int, links: Links) -> float:
    """The estimated time of a builder: latency, handling and bytes of the busiest rank, added up.

    The bytes are the larger of what the busiest rank carries in all and what one slice takes over all
    steps, as a step starts when the first slice of the one before has arrived.

    Source: Hockney's model with a term per message, as in Thakur et al., 2005, section 3.
    """
    piece = min(numbytes / chunks, slicing(chunks)[0])
    carried = max(shape.volume * numbytes, shape.steps * piece)
    return shape.steps * links.latency_s + shape.messages * links.message_s + carried / links.bandwidth


def _shared(collective: str, numbytes: int, ranks: int) -> Choice:
    if collective in ("broadcast", "gather", "scatter"):
        return Choice(collective, ranks, "star", Reason.SHARED_DIRECT)
    if collective in ("reduce_scatter", "all_gather", "all_to_all"):
        return Choice(collective, ranks, "pairwise", Reason.SHARED_LARGE)
    small = {"all_reduce": "exchange", "reduce": "star"}
    if numbytes <= SMALL_BYTES and collective in small:
        return Choice(collective, ranks, small[collective], Reason.SHARED_SMALL)
    return Choice(collective, ranks, find(collective, "pairwise").name, Reason.SHARED_LARGE)


def quickest(
    collective: str, numbytes: int, ranks: int, timed: Sequence[Timed], reason: Reason, alike: float = 1e-9
) -> Choice:
    """The one of `timed` that takes the least time, and the least times as the detail.

    Times are alike that are longer than the least by a share of `alike` at most, and the earliest of them is
    taken: the choice must not hang on the last digit of a sum.
    """
    least = min(one.seconds for one in timed)
    taken = next(one for one in timed if one.seconds <= least * (1 + alike))
    others = ", ".join(str(one) for one in sorted(timed)[:_NAMED])
    return Choice(collective, ranks, taken.builder, reason, f"at {numbytes} bytes: {others}", taken.pieces)


def _formula(collective: str, numbytes: int, ranks: int, links: Links) -> Choice:
    priced = list(priced_patterns(collective, ranks))
    if not priced:
        raise UsageError(
            f"no builder for '{collective}' states its cost; name a collective and builder there are"
        )
    within = [row for row in priced if row[1].fan_in <= links.fan_in]
    timed = [
        Timed(seconds(shape, row.chunks(ranks), numbytes, links), row.name) for row, shape in within or priced
    ]
    if not within:
        return quickest(collective, numbytes, ranks, timed, Reason.ONLY)
    best = quickest(collective, numbytes, ranks, timed, Reason.QUICKEST)
    ring = next((one for one in timed if one.builder == "ring"), None)
    most = min(one.seconds for one in timed) * (1 + _CROWDED.get(collective, ALIKE))
    if ring is None or ring.builder == best.builder or ring.seconds > most:
        return best
    return replace(best, builder=ring.builder, reason=Reason.ONE_SENDER)


def priced_patterns(collective: str, ranks: int) -> Iterator[tuple[Pattern, Shape]]:
    """The patterns that can be chosen on any network of so many ranks, with their costs."""
    for row in builders(collective):
        pattern = row.patterns.get(collective)
        if pattern is not None and pattern.shape is not None and not pattern.equal_parts:
            yield pattern, pattern.shape(ranks)


def fitting(collective: str, topology: Topology) -> tuple[Builder, ...]:
    """Every builder that can be chosen for `collective` on this network."""
    return tuple(row for row in builders(collective) if not _refusal(row, collective, topology))


def refusals(collective: str, topology: Topology) -> dict[str, str]:
    """Why the other builders that make `collective` cannot, by name."""
    why = {row.name: _refusal(row, collective, topology) for row in builders(collective)}
    return {name: text for name, text in why.items() if text}


def _refusal(row: Builder, collective: str, topology: Topology) -> str:
    pattern = row.patterns.get(collective)
    if pattern is not None and pattern.shape is not None:
        senders = pattern.shape(topology.ranks).fan_in
        if senders > NETWORK.fan_in:
            return f"{senders} ranks would send to one at a time, more than {NETWORK.fan_in}"
    return row.refuses(topology)
