"""Edge splitting: switches are taken out one by one, and paths through them become links between ranks.

To split off `a -> switch -> b` is to take a unit from both links and to give one to a link from `a` to `b`
that remembers the path. While a switch has no more links out than in, some pair can always be split off so
that every cut still holds all trees (Bang-Jensen, Frank and Jackson, "Preserving and increasing local
edge-connectivity in mixed graphs", 1995; ForestColl, arXiv 2402.06787, section 5.3).
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from tweed.collective.flows import Capacities, Flows

Path = tuple[int, ...]
"""The switches between two nodes."""

Pair = tuple[int, int]
Paths = dict[Pair, Counter[Path]]
"""How often each path between two nodes may be used."""


def split(uses: Capacities, nodes: int, ranks: int, trees: int) -> Paths:
    """The paths between ranks, that as links still hold `trees` trees from every rank.

    Short paths are preferred, and as many different ones as can be, so that trees stay low.

    Args:
      uses: how often each link may be used; with them every cut holds the trees.
      nodes: nodes from `ranks` on are switches.
      ranks: how many ranks there are.
      trees: from each rank.

    Raises:
      ValueError: a switch can send more than it gets, and no pair is left to split off.

    Cost: some dozens of times per switch, a max-flow to every rank: 20 s for a fat-tree of 64 ranks.
    """
    network = _Network(uses, nodes, ranks, trees)
    for switch in reversed(range(ranks, nodes)):
        _remove(switch, network)
    return {pair: paths for pair, paths in network.paths.items() if max(pair) < ranks and paths.total()}


def _remove(switch: int, network: _Network) -> None:
    for group in _groups(switch, network):
        _evenly(switch, group, network)
        _finely(switch, group, network)
    if any(network.uses[switch, end] for end in network.after(switch)):
        raise ValueError(f"no pair left to take out switch {switch}: it can send more than it gets")
    for start in network.before(switch):
        network.uses[start, switch] = 0


def _groups(switch: int, network: _Network) -> list[list[Pair]]:
    """Pairs of neighbours, those that are to be joined first at first; a node with itself drops what it has.

    Links between ranks come first, short paths before long ones. A switch that no rank is linked to passes on
    all it can, others drop what their ranks do not need.
    """
    before, after = network.before(switch), network.after(switch)
    inner = not any(node < network.ranks for node in before)

    def order(a: int, b: int) -> tuple[int, int]:
        if a == b:
            return 3 if inner else 1, 0
        switches = (a >= network.ranks) + (b >= network.ranks)
        return (2 if switches == 2 else 0), switches + network.hops(a, switch) + network.hops(switch, b)

    found: dict[tuple[int, int], list[Pair]] = {}
    for turn in range(len(after)):
        for place, a in enumerate(before):
            b = after[(place + turn) % len(after)]
            found.setdefault(order(a, b), []).append((a, b))
    return [found[key] for key in sorted(found)]


def _evenly(switch: int, group: list[Pair], network: _Network) -> None:
    """Splits off as many of every pair as can be, the same of all."""
    starts, ends = Counter(a for a, _ in group), Counter(b for _, b in group)
    ins = min(network.uses[a, switch] // many for a, many in starts.items())
    outs = min(network.uses[switch, b] // many for b, many in ends.items())
    fits, too_many = 0, min(ins, outs) + 1
    amount = too_many - 1
    while fits < amount < too_many:
        if network.holds_without(switch, dict.fromkeys(group, amount)):
            fits = amount
        else:
            too_many = amount
        amount = (fits + too_many) // 2
    network.split_off(switch, dict.fromkeys(group, fits))


def _finely(switch: int, group: list[Pair], network: _Network) -> None:
    """Splits off as many of every pair as can be, pair after pair; many at a time where that is the same."""
    amounts = _most(switch, group, network)
    if not amounts:
        return
    if network.holds_without(switch, amounts):
        network.split_off(switch, amounts)
    elif len(group) > 1:
        _finely(switch, group[: len(group) // 2], network)
        _finely(switch, group[len(group) // 2 :], network)
    else:
        _evenly(switch, group, network)


def _most(switch: int, group: list[Pair], network: _Network) -> dict[Pair, int]:
    """What the links to and from the switch have left, pair after pair."""
    taken: Counter[Pair] = Counter()
    amounts = {}
    for a, b in group:
        there, on = (a, switch), (switch, b)
        amount = min(network.uses[there] - taken[there], network.uses[on] - taken[on])
        if amount > 0:
            amounts[a, b] = amount
            taken[there] += amount
            taken[on] += amount
    return amounts


class _Network:
    """What is left of the switches, and the paths that have taken their place."""

    def __init__(self, uses: Capacities, nodes: int, ranks: int, trees: int) -> None:
        self.uses: Counter[Pair] = Counter(uses)
        self.paths: Paths = {link: Counter({(): many}) for link, many in uses.items()}
        self.ranks = ranks
        self._nodes = nodes
        self._supply = dict.fromkeys(range(ranks), trees)
        self._order = list(range(ranks))

    def before(self, switch: int) -> list[int]:
        """Nodes with a link to it."""
        return sorted(a for (a, b), many in self.uses.items() if b == switch and many)

    def after(self, switch: int) -> list[int]:
        """Nodes that it has a link to."""
        return sorted(b for (a, b), many in self.uses.items() if a == switch and many)

    def hops(self, a: int, b: int) -> int:
        """The links on the shortest path between two nodes."""
        return 1 + min(len(path) for path, many in self.paths[a, b].items() if many)

    def holds_without(self, switch: int, amounts: dict[Pair, int]) -> bool:
        """Would every cut hold all trees, if these were split off?"""
        after = self._after(switch, amounts)
        flows = Flows({link: many for link, many in after.items() if many}, self._supply, self._nodes)
        for place, rank in enumerate(self._order):
            if flows.to(rank)[0] < flows.total:
                self._order.insert(0, self._order.pop(place))  # likely to be short the next time as well
                return False
        return True

    def split_off(self, switch: int, amounts: dict[Pair, int]) -> None:
        """Makes paths of pairs."""
        self.uses = self._after(switch, amounts)
        for (a, b), amount in amounts.items():
            there, on = take(self.paths[a, switch], amount), take(self.paths[switch, b], amount)
            if a != b:
                self.paths.setdefault((a, b), Counter()).update(_joined(there, switch, on))

    def _after(self, switch: int, amounts: dict[Pair, int]) -> Counter[Pair]:
        uses = self.uses.copy()
        for (a, b), amount in amounts.items():
            uses[a, switch] -= amount
            uses[switch, b] -= amount
            if a != b:
                uses[a, b] += amount
        return uses


def take(paths: Counter[Path], amount: int = 1) -> list[tuple[Path, int]]:
    """Uses up so many of the shortest paths, of those the ones that are left most often; how many of each."""
    taken = []
    while amount:
        path = min(
            (path for path, many in paths.items() if many), key=lambda path: (len(path), -paths[path], path)
        )
        many = min(amount, paths[path])
        paths[path] -= many
        amount -= many
        taken.append((path, many))
    return taken


def _joined(there: list[tuple[Path, int]], switch: int, on: list[tuple[Path, int]]) -> Counter[Path]:
    """The first paths, one after the other, each with the next of the second."""
    joined: Counter[Path] = Counter()
    lasts = (last for last, many in on for _ in range(many))
    for first, many in there:
        for last in islice(lasts, many):
            joined[_without_rounds((*first, switch, *last))] += 1
    return joined


def _without_rounds(path: Path) -> Path:
    """The path without rounds: two paths through a switch may have another one in common."""
    found: list[int] = []
    for switch in path:
        if switch in found:
            del found[found.index(switch) :]
        found.append(switch)
    return tuple(found)
