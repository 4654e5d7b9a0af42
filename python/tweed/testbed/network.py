"""What a testbed's network is like, as a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field

from tweed.collective.topology import Topology
from tweed.collective.topology.base import Fields
from tweed.errors import UsageError
from tweed.testbed import text
from tweed.testbed.link import PPM, Direction, Link, resolved

_NOTHING_IF_ZERO = ("delay_ms", "jitter_ms", "loss", "reorder", "duplicate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(Link):
    """Links from every worker to one hub: equal ones, but for `hosts`.

    Attributes:
      congestion: the kernel's congestion control of all TCP connections over the links.
      offload: let packets cross as large as segmentation offloads make them, where they are delayed; faster,
        but up to 64 KB are then one packet. Where none are delayed or lost, they cross so anyway.
      hosts: by rank, what is different about its link.
      nat: ranks that others cannot call, as they are behind a router that masquerades; `opened` has them only
        dial out.
      rtt_ms: may be given instead of `delay_ms`: the round trip between two workers.

    The rest is as in `Link`.

    Raises: UsageError for a value that makes no sense.

    Example:
      >>> Network.parse("rate=100mbit,rtt=40ms").delay_ms
      20.0
      >>> Network(rate_bits=1e8, hosts={0: Link(rate_bits=1e9)}).words
      '100 Mbit/s per worker, no loss, rank 0: 1 Gbit/s, cubic'
    """

    congestion: str = "cubic"
    offload: bool = False
    hosts: Mapping[int, Link] = field(default_factory=dict, hash=False)
    nat: tuple[int, ...] = ()
    rtt_ms: InitVar[float | None] = None

    def __post_init__(self, rtt_ms: float | None) -> None:
        if rtt_ms is not None:
            if self.delay_ms:
                raise UsageError("a network has a delay or a round trip (twice the delay), not both")
            self._set("delay_ms", rtt_ms / 2)
        Link.__post_init__(self)
        for name in _NOTHING_IF_ZERO:
            self._set(name, getattr(self, name) or None)
        if self.burst == 1:
            self._set("burst", None)
        if not self.congestion.replace("_", "").isalnum():
            raise UsageError(f"{self.congestion!r} is no name of a congestion control, such as cubic or bbr")
        if any(rank < 0 for rank in (*self.hosts, *self.nat)):
            raise UsageError(f"hosts are named by their ranks, not {min(*self.hosts, *self.nat, 0)}")
        self._set("nat", tuple(sorted(set(self.nat))))
        hosts = {rank: link for rank, link in sorted(self.hosts.items()) if link != Link()}
        self._set("hosts", hosts)
        self._check_directions()

    def _check_directions(self) -> None:
        for one in (self.direction(rank, up) for rank in (*self.hosts, -1) for up in (True, False)):
            if one.jitter_us > one.delay_us:
                raise UsageError(f"a jitter of {one.jitter_us / 1000:g} ms is more than the delay")
            if one.burst > 1 and one.loss_ppm > (PPM - one.loss_ppm) * one.burst:
                raise UsageError(f"a loss of {one.loss_ppm / PPM:g} needs longer bursts than {one.burst:g}")
        if self.offload and self.lossy:
            raise UsageError("offload goes with no loss: a drop would take up to 64 KB at once")

    def direction(self, rank: int, up: bool) -> Direction:
        """What the link of a rank does in one direction."""
        return resolved(self.hosts.get(rank), self, up)

    def topology(self, size: int) -> Topology:
        """The star of `size` ranks behind one switch, node `size`: bandwidths, and delays as latencies.

        Raises: UsageError where a link has no rate, and so no bandwidth.
        """
        links: list[Fields] = []
        for rank in range(size):
            up, down = self.direction(rank, True), self.direction(rank, False)
            if up.rate_bits is None or down.rate_bits is None:
                raise UsageError(f"the link of rank {rank} has no rate; a topology needs its bandwidth")
            links.append((rank, size, up.rate_bits // 8, up.delay_us / 1e6, 1))
            links.append((size, rank, down.rate_bits // 8, down.delay_us / 1e6, 1))
        return Topology(size, links, str(self))

    @property
    def emulated(self) -> bool:
        """Whether it needs the link emulator: for delay, jitter, reordering, duplicates or bursts of loss."""
        return any(link.does_more for link in (self, *self.hosts.values()))

    @property
    def lossy(self) -> bool:
        """Whether some packets are lost by chance."""
        return any(link.loses for link in (self, *self.hosts.values()))

    @property
    def slowed(self) -> bool:
        """Whether some link has a rate."""
        return any(self.direction(rank, up).rate_bits for rank in (*self.hosts, -1) for up in (True, False))

    @classmethod
    def parse(cls, line: str) -> Network:
        """Reads "rate=100mbit,delay=20ms,loss=0.1%,0.rate=1gbit"; what is left away is as in `Network()`.

        Raises: UsageError; says what is wrong and how it should look.
        """
        return cls(**text.parse(line))

    def __str__(self) -> str:
        """In the form that `parse` reads, with nothing left out."""
        return text.written(self, self.congestion, self.offload, dict(self.hosts), self.nat)

    @property
    def words(self) -> str:
        """For people: "100 Mbit/s per worker, 0.1 % of packets lost, cubic"."""
        return text.words(self, self.hosts, self.congestion, self.nat)
