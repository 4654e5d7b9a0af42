"""A step over links of 10 Mbit/s up to no limit: DDP on tweed and `every_step`, beside DDP on Gloo.

Models are flat stacks of linear layers and batches have one row, so that a step is its exchange. In each
round every side makes as many steps, and the ratio is that of a round: what drifts meets all sides. Where a
step takes seconds there are fewer rounds, and where it takes longer than `LONGEST_S` by the links' rate alone
it is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import tweed
from bench import networks
from bench.run import Measurement, Row, timings
from bench.units import grid, seconds
from tweed.report.comparison import median_interval
from tweed.systems.harness.benchmark import Config, Contender, benchmark
from tweed.testbed import Network

PART, PEER = "a step over slow links", "DDP on Gloo"
LAYERS = 8
#: Layers' width, by millions of parameters.
WIDTHS = {0.2: 158, 2.0: 500, 10.0: 1118}
#: In no cell lies the interval of the ratio wholly above (fixed 2026-11-28, before the first run).
GOAL = 1.03
ROUNDS, LEAST_ROUNDS = 20, 6  # of six the median's interval is from the least to the largest
LONGEST_S = 10.0
TIMEOUT_S = 900.0
_UNSHAPED_BITS = 1e9  # what a link without a limit is taken to carry


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured: every network with every number of ranks and every model, `cell_s` seconds each.

    Attributes:
      networks: as `Network.parse` reads them; "" is one that is not slowed.
      params_m: millions of parameters.
    """

    networks: tuple[str, ...] = ("rate=10mbit", "rate=100mbit", "rate=1gbit", "")
    ranks: tuple[int, ...] = (2, 4, 8)
    params_m: tuple[float, ...] = tuple(WIDTHS)
    cell_s: float = 60.0


FULL, QUICK = Scope(), Scope(("rate=10mbit",), (2, 4), (0.2,), 20.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One model between some ranks.

    Example:
      >>> cell = Cell(4, 2.0, 1e7, 60.0)
      >>> cell.size_bytes, round(cell.ring_s, 1), cell.config.rounds
      (8000000, 9.6, 6)
    """

    ranks: int
    params_m: float
    rate_bits: float
    seconds: float

    @property
    def size_bytes(self) -> int:
        """Of all gradients."""
        return 4 * LAYERS * WIDTHS[self.params_m] ** 2

    @property
    def ring_s(self) -> float:
        """Seconds that a ring takes at least, at the full rate of the links."""
        return 2 * (self.ranks - 1) / self.ranks * self.size_bytes * 8 / self.rate_bits

    @property
    def config(self) -> Config:
        """As many rounds as there is time for, and in each a step or, of short ones, several."""
        rounds = min(max(round(self.seconds / (3 * self.ring_s)), LEAST_ROUNDS), ROUNDS)
        return Config(rounds, seconds=2.0, least=rounds, most=3 * rounds, warm=1)


def rows(scope: Scope) -> Iterator[Row]:
    """A row for each cell and side; where no network can be built, one that says why."""
    for text, ranks in product(scope.networks, scope.ranks):
        network = Network.parse(text)
        rate_bits = network.rate_bits or _UNSHAPED_BITS
        cells = [Cell(ranks, millions, rate_bits, scope.cell_s) for millions in scope.params_m]
        short = [cell for cell in cells if cell.ring_s <= LONGEST_S]
        yield from networks.on_network(network, partial(_measured, cells=short), ranks)


def _measured(bed: Any, cells: list[Cell]) -> Iterator[Row]:
    return timings(_steps, bed.size, cells, launch=networks.inside(bed, TIMEOUT_S))


def _steps(rank: int, ranks: int, cells: list[Cell]) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    sides: dict[str, Callable[[nn.Module, Optimizer], nn.Module]] = {
        PEER: lambda model, _: DistributedDataParallel(model, process_group=gloo),
        "DDP on tweed": lambda model, _: DistributedDataParallel(model),
        "every_step": _attached,
    }
    return [
        Measurement(
            PART,
            cell.size_bytes,
            benchmark([Contender(side, _stepper(cell, tie)) for side, tie in sides.items()], cell.config),
        )
        for cell in cells
    ]


def _attached(model: nn.Module, optimizer: Optimizer) -> nn.Module:
    tweed.attach(model, optimizer, "every_step")
    return model


def _stepper(cell: Cell, tie: Callable[[nn.Module, Optimizer], nn.Module]) -> Callable[[], float]:
    width = WIDTHS[cell.params_m]
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tied, x = tie(model, optimizer), torch.randn(1, width)

    def step() -> float:
        """Returns how many packets the rank's host has sent again meanwhile."""
        before = sent_again(Path("/proc/self/net/snmp").read_text())
        optimizer.zero_grad()
        tied(x).square().mean().backward()
        optimizer.step()
        return float(sent_again(Path("/proc/self/net/snmp").read_text()) - before)

    return step


def sent_again(text: str) -> int:
    """TCP segments that a host has sent again, from `/proc/net/snmp`.

    Example:
      >>> sent_again("Tcp: InSegs RetransSegs\\nTcp: 9 2")
      2
    """
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def ratios(row: Row, peer: Row) -> list[float]:
    """Of each round, the median step over the peer's."""
    return [ours / its for ours, its in zip(row["block_medians_s"], peer["block_medians_s"], strict=True)]


def table(rows: Sequence[Row]) -> str:
    """Bold where the interval lies wholly above the goal."""
    found = [row for row in rows if row["part"] == PART]
    peers = {_cell(row): row for row in found if row["side"] == PEER}
    body = [_line(row, peers[_cell(row)]) for row in found if row["side"] != PEER]
    head = ("network", "ranks", "parameters", "side", "step, median", PEER)
    head += ("ratio, median and interval", "sent again per rank and step", f"{PEER}: sent again", "rounds")
    return f"## Steps over slow links\n\n{grid(head, body)}" if body else ""


def _cell(row: Row) -> tuple[Any, ...]:
    return row["network"], row["ranks"], row["bytes"]


def _line(row: Row, peer: Row) -> Sequence[str]:
    found = ratios(row, peer)
    low, high = median_interval(found)
    shown = f"{median(found):.3f} ({low:.3f} to {high:.3f})"
    return (
        row["network"],
        str(row["ranks"]),
        f"{row['bytes'] / 4e6:.1f} M",
        row["side"],
        seconds(row["median_s"]),
        seconds(peer["median_s"]),
        f"**{shown}**" if low > GOAL else shown,
        *(f"{each['returned_mean']:.1f}" for each in (row, peer)),
        str(len(found)),
    )
