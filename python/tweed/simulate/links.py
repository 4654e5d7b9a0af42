"""Links of nodes on a virtual clock: what is on a link that breaks never arrives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from tweed.simulate.clock import Clock
from tweed.simulate.network import FluidNetwork

#: Of a node at a time: what its link has up and down, in bytes per second, and until when.
Rates = Callable[[int, float], tuple[float, float, float]]


class VirtualLinks:
    """Nodes with a link each, over which they reach all others.

    Args:
      clock: whose time it is.
      nodes: their numbers.
      rates: of them.
      latency_s: one way, of each message.

    Attributes:
      network: on which bytes flow.
      linked: the nodes whose link is there.
    """

    def __init__(self, clock: Clock, nodes: Iterable[int], rates: Rates, latency_s: float) -> None:
        self.network = FluidNetwork()
        self.linked: set[int] = set()
        self._clock, self._rates, self._latency_s = clock, rates, latency_s
        self._lives: dict[int, int] = {}  # how often the link of a node has come
        self._flows: dict[Hashable, tuple[int, int, Callable[[], None]]] = {}
        self._of_node: dict[int, dict[Hashable, None]] = {}
        self._count = 0
        for node in nodes:
            self._lives[node], self._of_node[node] = 0, {}
            self._set_rates(node)

    def link(self, node: int) -> int:
        """Its link is there. Returns how often it has come."""
        self.linked.add(node)
        self._lives[node] += 1
        return self._lives[node]

    def cut(self, node: int) -> None:
        """Its link is gone, with all that is on it."""
        self.linked.discard(node)
        for key in list(self._of_node[node]):
            self._remove(key)

    def tell(self, src: int, dst: int, do: Callable[[], None]) -> None:
        """A message without content: `do` after the latency, unless a link of the two breaks before."""
        self._clock.after(self._latency_s, self._if_linked(src, dst, do))

    def send(self, src: int, dst: int, numbytes: int, do: Callable[[], None]) -> None:
        """So many bytes flow; `do` follows after the latency, unless a link of the two breaks before."""
        if src not in self.linked or dst not in self.linked:
            return
        if src == dst:
            self._clock.after(0.0, self._if_linked(src, dst, do))
            return
        self._count += 1
        self._flows[self._count] = src, dst, self._if_linked(src, dst, do)
        self._of_node[src][self._count] = self._of_node[dst][self._count] = None
        self.network.start(self._count, src, dst, numbytes, self._clock.now)

    def run_next(self) -> None:
        """Goes to when the next flow ends."""
        at, key = self.network.next_end()
        self._clock.pass_to(at)
        self._clock.after(self._latency_s, self._remove(key))

    def _remove(self, key: Hashable) -> Callable[[], None]:
        src, dst, do = self._flows.pop(key)
        del self._of_node[src][key], self._of_node[dst][key]
        self.network.stop(key, self._clock.now)
        return do

    def _if_linked(self, src: int, dst: int, do: Callable[[], None]) -> Callable[[], None]:
        lives = self._lives[src], self._lives[dst]

        def arrive() -> None:
            if {src, dst} <= self.linked and lives == (self._lives[src], self._lives[dst]):
                do()

        return arrive

    def _set_rates(self, node: int) -> None:
        """What a node has now, until it changes."""
        up, down, until = self._rates(node, self._clock.now)
        self.network.set_rates(node, up, down, self._clock.now)
        self._clock.after(until - self._clock.now, lambda: self._set_rates(node))
