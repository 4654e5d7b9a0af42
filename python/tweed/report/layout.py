"""Where the nodes of a network stand in a picture. Pure."""

from __future__ import annotations

from cmath import phase
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import cos, pi, sin

from tweed.collective import Topology
from tweed.collective.topology.base import neighbours

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A frame round the nodes of one site."""

    left: float
    bottom: float
    right: float
    top: float
    label: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Points by node.

    Attributes:
      at: places of the nodes; neighbours are about one apart.
      boxes: frames to draw.
      around: links whose ends are the two ends of a row: better drawn as stubs than across it.
    """

    at: Mapping[int, Point]
    boxes: tuple[Box, ...] = ()
    around: frozenset[tuple[int, int]] = frozenset()


def place(topology: Topology) -> Layout:
    """Grids as grids, sites in boxes, switches in layers over their hosts, everything else on a circle."""
    sides, wraps = topology.sides, topology.wraps
    if sides and len(sides) <= 4 and not (len(sides) == 1 and any(wraps)):
        return _grid(topology)
    if topology.nodes == topology.ranks:
        return Layout(_circle(range(topology.ranks), max(1.0, topology.ranks / 6)))
    levels = _levels(topology)
    sites = sorted({place[0] for place in topology.places}) if topology.places else []
    if not _flat(topology, levels):
        halves = _halves(topology) if len(sites) < 2 else None
        return Layout(_facing(topology, halves) if halves else _hub(topology))
    if len(sites) > 1:
        return _sites(topology, levels, sites)
    return Layout(_layers(topology, range(topology.nodes), levels))


# --- Grids.


def _grid(topology: Topology) -> Layout:
    sides = topology.sides
    steps = [(1.0, 0.0), (0.0, -1.0), (0.42, 0.3), (sides[-1] + 0.6 * len(sides), 0.55)]
    where = {rank: _coordinates(rank, sides) for rank in range(topology.ranks)}
    at = {
        rank: (
            sum(c * step[0] for c, step in zip(reversed(spot), steps, strict=False)),
            sum(c * step[1] for c, step in zip(reversed(spot), steps, strict=False)),
        )
        for rank, spot in where.items()
    }
    around = (
        (src, dst)
        for src, dst, *_ in topology.links
        if any(abs(a - b) > 1 for a, b in zip(where[src], where[dst], strict=True))
    )
    return Layout(at, around=frozenset(around))


def _coordinates(rank: int, sides: Sequence[int]) -> list[int]:
    spot = []
    for side in reversed(sides):
        rank, along = divmod(rank, side)
        spot.append(along)
    return spot[::-1]


# --- Switches.


def _levels(topology: Topology) -> dict[int, int]:
    """How many links each node is from the nearest rank."""
    near, level = neighbours(topology), dict.fromkeys(range(topology.ranks), 0)
    front, height = set(level), 0
    while front:
        height += 1
        front = {after for node in front for after in near[node]} - level.keys()
        level.update(dict.fromkeys(front, height))
    return level


def _flat(topology: Topology, levels: Mapping[int, int]) -> bool:
    """No two switches of a level are linked, but for sites' switches with each other."""
    ends = [(src, dst) for src, dst, *_ in topology.links if min(src, dst) >= topology.ranks]
    site = _site_of(topology)
    level = [(a, b) for a, b in ends if levels[a] == levels[b] and site.get(a) == site.get(b)]
    far = {(a, b) for a, b in ends if site.get(a) != site.get(b)}
    gates: dict[int | None, set[int]] = defaultdict(set)
    for a, _ in far:
        gates[site.get(a)].add(a)
    return not level and all(len(switches) == 1 for switches in gates.values())


def _site_of(topology: Topology) -> dict[int, int]:
    """The site of every node: a switch is where the rank is that reaches it first."""
    if not topology.places:
        return {}
    out: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for src, dst, _, latency_s, _ in topology.links:
        out[src].append((dst, latency_s))
    found: dict[int, int] = {}
    queue = [(0.0, 0, rank, place[0]) for rank, place in enumerate(topology.places)]
    while queue:
        late, hops, node, site = heappop(queue)
        if node not in found:
            found[node] = site
            for after, latency_s in out[node]:
                heappush(queue, (late + latency_s, hops + 1, after, site))
    return found


def _layers(topology: Topology, nodes: Iterable[int], levels: Mapping[int, int]) -> dict[int, Point]:
    """Ranks in a row, each switch above the middle of what is below it, spread where that is the same."""
    rows: dict[int, list[int]] = defaultdict(list)
    for node in sorted(nodes):
        rows[levels[node]].append(node)
    near = neighbours(topology)
    at: dict[int, Point] = {}
    width = max(1.0, len(rows[0]) - 1.0)
    for level, row in sorted(rows.items()):
        if level == 0:
            at.update(zip(row, _hosts_in_a_row(row, near), strict=True))
            width = max(1.0, max(at[node][0] for node in row))
            continue
        below = {node: [at[other][0] for other in near[node] if other in at] for node in row}
        middles = {node: sum(xs) / len(xs) for node, xs in below.items()}
        if len({round(x, 6) for x in middles.values()}) < len(row):
            middles = {node: width * (2 * nth + 1) / (2 * len(row)) for nth, node in enumerate(row)}
        height = level * max(1.0, width / 6)
        at.update({node: (x, height) for node, x in middles.items()})
    return at


def _hosts_in_a_row(row: Sequence[int], near: Mapping[int, set[int]]) -> list[Point]:
    """A gap wherever the switch above is another one."""
    points, x, before = [], 0.0, near[row[0]]
    for nth, node in enumerate(row):
        if nth:
            x += 1.0 if near[node] == before else 1.6
        before = near[node]
        points.append((x, 0.0))
    return points


def _halves(topology: Topology) -> tuple[list[int], list[int]] | None:
    """Two sets of switches with hosts that are linked across only, if there are."""
    near = neighbours(topology)
    switches = range(topology.ranks, topology.nodes)
    hosts = [near[rank] & set(range(topology.ranks)) for rank in range(topology.ranks)]
    if any(hosts) or any(not near[switch] & set(range(topology.ranks)) for switch in switches):
        return None
    side: dict[int, int] = {}
    for start in switches:
        front = [start] if side.setdefault(start, 0) == 0 else []
        for node in front:
            for other in near[node] - set(range(topology.ranks)):
                if other not in side:
                    side[other] = 1 - side[node]
                    front.append(other)
                elif side[other] == side[node]:
                    return None
    low, high = ([switch for switch in switches if side[switch] == half] for half in (0, 1))
    return (low, high) if low and high else None


def _facing(topology: Topology, halves: tuple[list[int], list[int]]) -> dict[int, Point]:
    """Hosts below the one half of the switches and above the other."""
    near = neighbours(topology)
    at: dict[int, Point] = {}
    for switches, switch_y, host_y in ((halves[0], 1.0, 0.0), (halves[1], 3.0, 4.0)):
        hosts = sorted({node for switch in switches for node in near[switch] if node < topology.ranks})
        stretch = max(1.0, len(hosts) / 10)
        points = _hosts_in_a_row(hosts, near)
        at.update({host: (x, host_y * stretch) for host, (x, _) in zip(hosts, points, strict=True)})
        width = points[-1][0]
        for nth, switch in enumerate(switches):
            at[switch] = (width * (nth + 0.5) / len(switches), switch_y * stretch)
    return at


# --- Circles and boxes.


def _circle(nodes: Sequence[int], radius: float, start: float = pi / 2) -> dict[int, Point]:
    turn = 2 * pi / len(nodes)
    return {
        node: (radius * cos(start - nth * turn), radius * sin(start - nth * turn))
        for nth, node in enumerate(nodes)
    }


def _hub(topology: Topology) -> dict[int, Point]:
    """Hosts on a circle; switches on one inside, in the order of their hosts and close to them."""
    radius = max(1.5, topology.ranks / 6)
    outer = {rank: complex(x, y) for rank, (x, y) in _circle(range(topology.ranks), radius).items()}
    near = neighbours(topology)
    switches = range(topology.ranks, topology.nodes)
    wanted = {node: sum((outer[host] for host in near[node] if host in outer), 0j) for node in switches}
    order = sorted(switches, key=lambda node: (-phase(wanted[node] / 1j), node))
    evenly = {node: complex(x, y) for node, (x, y) in _circle(order, 0.72 * radius).items()}
    turned = sum((wanted[node] * evenly[node].conjugate() for node in order), 0j)
    turn = turned / abs(turned) if abs(turned) > 1e-9 else 1
    points = {**outer, **{node: point * turn for node, point in evenly.items()}}
    return {node: (point.real, point.imag) for node, point in points.items()}


def _sites(topology: Topology, levels: Mapping[int, int], sites: Sequence[int]) -> Layout:
    """Boxes side by side, in a row or in two."""
    site = _site_of(topology)
    inside = {name: [node for node in range(topology.nodes) if site[node] == name] for name in sites}
    at: dict[int, Point] = {}
    boxes = []
    per_row = len(sites) if len(sites) <= 3 else -(-len(sites) // 2)
    left = bottom = tallest = 0.0
    for nth, name in enumerate(sites):
        if nth and nth % per_row == 0:
            left, bottom, tallest = 0.0, bottom - tallest - 2.4, 0.0
        points = _layers(topology, inside[name], levels)
        width, height = (max(point[axis] for point in points.values()) for axis in (0, 1))
        at.update({node: (left + x, bottom + y) for node, (x, y) in points.items()})
        box = Box(left - 0.6, bottom - 0.6, left + width + 0.6, bottom + height + 0.6, f"site {name}")
        boxes.append(box)
        left, tallest = left + width + 2.6, max(tallest, height)
    return Layout(at, tuple(boxes))
