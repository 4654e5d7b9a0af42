"""All-reduces between network namespaces, Gloo and tweed in turns, with iperf3 before and after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from bench import iperf
from bench.run import TIMEOUT_S, Launch, Measurement, Row, timings
from tweed.errors import NoTestbed
from tweed.systems.harness.benchmark import Config, Contender, benchmark
from tweed.testbed import LiveNetwork, Network, Ranks, opened

MB = 1 << 20
RANKS = 4
PART = "all_reduce between namespaces"


@dataclass(frozen=True, slots=True)
class Scope:
    """One network, and how to measure in it.

    Attributes:
      network: as `Network.parse` reads it; "" is a network that is not slowed.
      flows_s: seconds of each run of iperf3; 0 for none.
    """

    network: str
    size_bytes: int
    config: Config
    flows_s: int = 0


_SHAPED, _FAST, _LOSSY = Config(5, 4.0, 10, 20, 2), Config(5, 2.0, 10, 100), Config(5, 3.0, 5, 30, 1)
FULL = (
    Scope("rate=1gbit", 25 * MB, _SHAPED, flows_s=3),
    Scope("congestion=cubic", 25 * MB, _FAST),
    Scope("congestion=bbr", 25 * MB, _FAST),
    *(
        Scope(f"rate=1gbit,loss={loss},congestion={congestion}", 25 * MB, _LOSSY)
        for loss in ("0.1%", "1%")
        for congestion in ("cubic", "bbr")
    ),
    *(Scope(f"rate=100mbit,loss={loss}", 4 * MB, _LOSSY) for loss in ("0.1%", "1%")),
)
QUICK = (
    Scope("rate=1gbit", 4 * MB, Config(2, 0.5, 4, 10, 1), flows_s=1),
    Scope("rate=1gbit,loss=1%", 1 * MB, Config(2, 0.5, 2, 10, 1)),
)


def all_reduces(scopes: tuple[Scope, ...]) -> Iterator[Row]:
    """Rows of every network; where none can be built, one row that says why."""
    for scope in scopes:
        yield from on_network(Network.parse(scope.network), lambda bed, scope=scope: _measured(bed, scope))


def on_network(
    network: Network, measure: Callable[[LiveNetwork], Iterator[Row]], ranks: int = RANKS
) -> Iterator[Row]:
    """What `measure` gives in a testbed of so many hosts, with the network's name in each row."""
    try:
        with opened(network, ranks) as bed:
            for row in measure(bed):
                yield row | {"network": str(network)}
    except NoTestbed as error:
        yield {"part": "no testbed", "network": str(network), "why": str(error)}


def inside(bed: LiveNetwork, timeout_s: float = TIMEOUT_S) -> Launch:
    """Starts ranks in the namespaces of `bed`, and waits for them so long."""

    def launch(fn: Callable[..., Any], ranks: int, *args: object) -> list[Any]:
        with Ranks(fn, ranks, *args, backend="tweed", bed=bed) as started:
            return started.join(timeout_s)

    return launch


def _measured(bed: LiveNetwork, scope: Scope) -> Iterator[Row]:
    yield from iperf.flows(bed, scope.flows_s, "before")
    yield from timings(_all_reduce, RANKS, scope.size_bytes, scope.config, launch=inside(bed))
    yield _carried(bed)
    yield from iperf.flows(bed, scope.flows_s, "after")


def _carried(bed: LiveNetwork) -> Row:
    """What all links together have counted so far."""
    links = bed.counters()
    return {
        "part": "links",
        "sent_packets": sum(link.sent_packets for link in links),
        "lost_packets": sum(link.lost_packets for link in links),
        "overflowed_packets": sum(link.overflowed_packets for link in links),
    }


def _all_reduce(rank: int, ranks: int, size_bytes: int, config: Config) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    tensor = torch.zeros(size_bytes // 4)
    contenders = [
        Contender("gloo", lambda: dist.all_reduce(tensor, group=gloo)),
        Contender("tweed", lambda: dist.all_reduce(tensor)),
    ]
    return [Measurement(PART, size_bytes, benchmark(contenders, config, lockstep=True))]
