"""What it costs to look at what a training loop has done: to parameters, to gradients, to an exchange.

One step of a small batch, two ranks over Gloo, with and without what `tweed.attach` looks at, in turns. Many
small parameters, where looks weigh most; and few large ones under codecs whose exchange can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tweed
from bench.run import Measurement, Row, forked, timings
from bench.units import grid, seconds
from tweed.hooks.gradient import GradientExchange
from tweed.systems.harness.benchmark import Config, Contender, benchmark

FULL, QUICK = Config(12, 6.0, 24, 600), Config(3, 0.5, 6, 60)
LOOKED, BLIND = "attach", "attach that does not look"
#: By name: how many layers of which width, and strategies.
MODELS = {
    "1,000 parameters of 32 x 32": (500, 32, ("every_step",)),
    "25 MB in 12 parameters": (6, 1024, ("top_k:0.01", "powersgd:2")),
}


def rows(config: Config) -> Iterator[Row]:
    """Of each model and strategy, all sides."""
    for row in timings(_steps, 2, config, launch=forked):
        yield row | {"part": "looks", "of": row["part"]}


def _steps(rank: int, ranks: int, config: Config) -> list[Measurement]:
    torch.set_num_threads(1)
    gloo = dist.new_group(backend="gloo")
    return [
        _step(f"{strategy}, {name}", layers, width, strategy, gloo, config)
        for name, (layers, width, strategies) in MODELS.items()
        for strategy in strategies
    ]


def _step(name: str, layers: int, width: int, strategy: str, gloo: Any, config: Config) -> Measurement:
    sides = {LOOKED: _attached(layers, width, strategy, gloo, looks=True)}
    sides[BLIND] = _attached(layers, width, strategy, gloo, looks=False)
    sides["DDP"] = _stepper(
        _net(layers, width), lambda model, _: DistributedDataParallel(model, process_group=gloo)
    )
    contenders = [Contender(side, call) for side, call in sides.items()]
    size_bytes = 4 * layers * width * (width + 1)
    return Measurement(name, size_bytes, benchmark(contenders, config, lockstep=False))


def _net(layers: int, width: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def _stepper(model: nn.Module, tie: Callable[[nn.Module, Any], nn.Module]) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    tied, x = tie(model, optimizer), torch.randn(8, model[0].in_features)

    def step() -> None:
        optimizer.zero_grad()
        tied(x).square().mean().backward()
        optimizer.step()

    return step


def _attached(layers: int, width: int, strategy: str, gloo: Any, *, looks: bool) -> Callable[[], None]:
    def tie(model: nn.Module, optimizer: Any) -> nn.Module:
        run = tweed.attach(model, optimizer, strategy, group=gloo)
        exchange = run._exchange
        assert isinstance(exchange, GradientExchange)
        if not looks:
            exchange._trained.look = lambda: None  # type: ignore[method-assign]
            exchange.reducer.takes_back = False
            for gradients in exchange.reducer.buckets:
                gradients.bucket.is_shared = lambda params: False  # type: ignore[method-assign]
            exchange._follow()
        return model

    return _stepper(_net(layers, width), tie)


def table(rows: Sequence[Row]) -> str:
    """Each side's step, and what looking adds."""
    found = [row for row in rows if row["part"] == "looks"]
    blind = {row["of"]: row["median_s"] for row in found if row["side"] == BLIND}
    body = [
        (
            row["of"],
            row["side"],
            seconds(row["median_s"]),
            seconds(row["p99_s"]),
            f"{100 * (row['median_s'] / blind[row['of']] - 1):+.1f} %",
        )
        for row in found
    ]
    head = ("strategy, model", "side", "step, median", "p99", "beside one that does not look")
    return f"## What looking at loops costs\n\n{grid(head, body)}" if body else ""
