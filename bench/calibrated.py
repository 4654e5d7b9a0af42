"""What this machine takes of its own for a message, and by how much its link emulator is late.

Measured on networks of their own, these go into every prediction: the simulator knows links, not processors
that several ranks share.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from math import log
from statistics import mean

from bench.alone import plan_of, row_of, timed, tried
from bench.punctual import Turns
from bench.run import Row
from tweed.collective import topology
from tweed.collective.planning import Candidate, Host, predicted
from tweed.collective.topology import Topology, Wire
from tweed.testbed import linked
from tweed.testbed.topology_network import LEAST_DELAY_S

#: Ranks that share processors as those of the networks do, on links that are next to no hindrance.
_NEAR = topology.star(8, Wire(125_000_000, 50e-6))
_FAR = topology.ring(4, wire=Wire(12_500_000, 5e-3))
#: One message after the other, and many at once: the one shows what waking up takes, the other the handling.
_BUILDERS = ("ring", "halving_doubling", "exchange", "pairwise")
_SIZES = (1 << 10, 8 << 10)
_TURNS = Turns(3, 5)
_MESSAGE_S = tuple(2e-6 * 1.3**n for n in range(20))
_WAKE_S = tuple(20e-6 * n for n in range(26))


@dataclass(frozen=True, slots=True)
class Machine:
    """What predictions take of this machine.

    Attributes:
      message_s: a rank's own time for each message that it sends or takes in, while others share processors.
      wake_s: from a message's arrival until a rank that waits for it runs.
      late_s: how much later than asked the link emulator lets a packet through.
    """

    message_s: float
    wake_s: float = 0.0
    late_s: float = 0.0

    @property
    def host(self) -> Host:
        """For `tweed.collective.planning`."""
        return Host(message_s=self.message_s)

    def seen(self, network: Topology) -> Topology:
        """The network as it is built here: later at every rank, and where the emulator is on the way."""
        links = [(a, b, speed, self._late(b, late_s, network), n) for a, b, speed, late_s, n in network.links]
        more = {"capacities": network.capacities, "places": network.places}
        return Topology(network.ranks, links, network.name, **more)

    def _late(self, end: int, latency_s: float, network: Topology) -> float:
        wake_s = self.wake_s if end < network.ranks else 0.0
        return latency_s + wake_s + (self.late_s if latency_s >= LEAST_DELAY_S else 0.0)

    def row(self) -> Row:
        """For the raw data."""
        return {
            "part": "calibration",
            **{name: float(f"{value:.3g}") for name, value in asdict(self).items()},
        }


def measured() -> Machine:
    """Fits the figures to short all-reduces. Cost: about fifteen seconds."""
    print("  calibration", file=sys.stderr, flush=True)
    near = _medians(_NEAR)
    tried = (Machine(message_s, wake_s) for message_s, wake_s in product(_MESSAGE_S, _WAKE_S))
    found = min(tried, key=lambda machine: _error(machine, near))
    late = [
        (seconds - _predicted(found, one, numbytes, _FAR)) / one.schedule.cost(1).steps
        for (one, numbytes), seconds in _medians(_FAR).items()
        if one.builder == "ring"
    ]
    return Machine(found.message_s, found.wake_s, max(0.0, mean(late)))


def _medians(network: Topology) -> dict[tuple[Candidate, int], float]:
    chosen = {str(one): one for one in tried(network, _BUILDERS)}
    plans = {side: plan_of(one, network).to_json() for side, one in chosen.items()}
    with linked(network) as bed:
        found = timed(bed, plans, list(product(plans, _SIZES)), _TURNS)
    return {(chosen[side], n): row_of(calls)["median_s"] for (side, n), calls in found.items()}


def _error(machine: Machine, found: Mapping[tuple[Candidate, int], float]) -> float:
    return mean(log(_predicted(machine, one, n, _NEAR) / s) ** 2 for (one, n), s in found.items())


def _predicted(machine: Machine, one: Candidate, numbytes: int, network: Topology) -> float:
    return predicted(one.schedule, numbytes, machine.seen(network), machine.host)
