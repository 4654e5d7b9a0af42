"""A step of a wide perceptron over a slow link: gradients as sums, as factors, and by torch's PowerSGD hook.

Ten layers of 1,000 x 1,000, 10 M parameters, and 16 rows at each of four workers, whose links are shaped to
100 Mbit/s. A link must carry 60 MB of sums each way per step, or 3.84 MB of factors and 60 kB of biases.
PowerSGD sends less, and its gradients are not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import tweed
from bench import networks
from bench.run import Measurement, Row, timings
from bench.units import grid, seconds, size
from tweed.systems.harness.benchmark import Config, Contender, benchmark
from tweed.testbed import Network

PART = "a step of a wide perceptron"
_BEGINS = 2  # steps before PowerSGD's first one, as its error feedback asks


@dataclass(frozen=True, slots=True)
class Scope:
    """What is trained, and how long it is measured.

    Attributes:
      width, layers: of the perceptron.
      rows: of a worker's batch.
      network: as `Network.parse` reads it.
    """

    config: Config
    width: int = 1000
    layers: int = 10
    rows: int = 16
    network: str = "rate=100mbit"


FULL = Scope(Config(5, 10.0, 10, 60, 1))
QUICK = Scope(Config(2, 0.5, 4, 8, 1), width=256, layers=3, rows=8)

_Tie = Callable[[nn.Module, Optimizer], nn.Module]


def steps(scope: Scope) -> Iterator[Row]:
    """A row for each side; where no network can be built, one that says why."""
    measure = partial(timings, _steps, networks.RANKS, scope)
    yield from networks.on_network(
        Network.parse(scope.network), lambda bed: measure(launch=networks.inside(bed))
    )


def _steps(rank: int, ranks: int, scope: Scope) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    sides: dict[str, _Tie] = {
        "DDP on Gloo": partial(_ddp, gloo=gloo, low_rank=0),
        **{f"DDP on Gloo, PowerSGD {n}": partial(_ddp, gloo=gloo, low_rank=n) for n in (1, 2, 4)},
        "every_step": partial(_attached, strategy="every_step"),
        "factors": partial(_attached, strategy="factors"),
    }
    contenders = [
        Contender(side, _stepper(scope, tie), warm=_BEGINS + 1 if "PowerSGD" in side else 0)
        for side, tie in sides.items()
    ]
    size_bytes = 4 * scope.layers * scope.width * (scope.width + 1)
    return [Measurement(PART, size_bytes, benchmark(contenders, scope.config, lockstep=False))]


def _ddp(model: nn.Module, optimizer: Optimizer, gloo: Any, low_rank: int) -> nn.Module:
    # Of several buckets the hook's calls cross in another order at each rank, as they are made in callbacks;
    # over Gloo that ends the process. So all is one bucket.
    module = DistributedDataParallel(model, process_group=gloo, bucket_cap_mb=1000 if low_rank else None)
    if low_rank:
        state = PowerSGDState(gloo, low_rank, start_powerSGD_iter=_BEGINS)
        module.register_comm_hook(state, powerSGD_hook)
    return module


def _attached(model: nn.Module, optimizer: Optimizer, strategy: str) -> nn.Module:
    tweed.attach(model, optimizer, strategy)
    return model


def _stepper(scope: Scope, tie: _Tie) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [(nn.Linear(scope.width, scope.width), nn.ReLU()) for _ in range(scope.layers)]
    model = nn.Sequential(*(part for layer in layers for part in layer))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tied, x = tie(model, optimizer), torch.randn(scope.rows, scope.width)

    def step() -> None:
        optimizer.zero_grad()
        tied(x).square().mean().backward()
        optimizer.step()

    return step


def table(rows: Sequence[Row]) -> str:
    """Each side's step, and what left a worker's link."""
    body = [
        (
            row["network"],
            size(row["bytes"]),
            row["side"],
            seconds(row["median_s"]),
            seconds(row["p99_s"]),
            size(row["sent_bytes_per_call"]) if "sent_bytes_per_call" in row else "not counted",
            str(row["calls"]),
        )
        for row in rows
        if row["part"] == PART
    ]
    head = ("network", "gradients", "side", "step, median", "p99", "sent per step and rank", "steps")
    return f"## Gradients as factors\n\n{grid(head, body)}" if body else ""
