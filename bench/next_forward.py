"""Steps whose next forward pass begins before the last gradient is there, beside DDP on Gloo.

Four workers train one model on one machine. In each round every side has a turn: a step that is not counted,
then some from one return of `optimizer.step()` to the next, and then what is still under way is waited for.
Beside the sides: a step that exchanges nothing, and the exchange of its gradients alone. No step can be
shorter than the longer of the two, with the exchange's own work on the processors added to computing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tweed
from bench import networks
from bench.run import Row
from bench.units import grid, seconds
from tweed.report.comparison import median_interval
from tweed.testbed import LiveNetwork, Network, Ranks

PART, RANKS, CORES = "the next forward pass", 4, 2
PEER, EVERY, ALONE, EXCHANGE = "DDP on Gloo", "every_step", "no exchange", "exchange alone"
ORDERED = ("urgent", "p3", "bytescheduler", "prophet")
BUCKET_BYTES = 2**20
TIMEOUT_S = 1800.0
#: Where the exchange takes 0.5 to 2 of computing: DDP's step over ours, and the bound over ours (fixed by the
#: issue, 2026-11-28).
GAIN, BOUND, BETWEEN = 1.3, 0.9, (0.5, 2.0)


class Cell(NamedTuple):
    """What is trained over which links: model, Mbit/s, samples of a rank's step; and steps of a turn."""

    model: str
    mbit: float
    batch: int
    steps: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Cells, and rounds of each."""

    cells: tuple[Cell, ...]
    rounds: int


#: Batches are such that the exchange takes about as long as computing, except at 10 Mbit/s.
FULL = Scope(
    (
        Cell("CNN", 100, 64, 4),
        Cell("CNN", 50, 96, 3),
        Cell("CNN", 20, 256, 1),
        Cell("CNN", 10, 256, 1),
        Cell("transformer", 100, 64, 1),
        Cell("transformer", 50, 128, 1),
    ),
    3,
)
QUICK = Scope((Cell("CNN", 100, 64, 2),), 2)


def cnn() -> nn.Module:
    """2.2 million parameters, on pictures of `[3, 32, 32]`."""
    widths = (3, 64, 128, 128, 256, 256)
    layers: list[nn.Module] = []
    for place, (before, width) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if place in (0, 2, 4) else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 16, 256), nn.ReLU(), nn.Linear(256, 10))


def transformer() -> nn.Module:
    """9.5 million parameters, on `[32, 256]` numbers a sample."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "CNN": (cnn, (3, 32, 32)),
    "transformer": (transformer, (32, 256)),
}


def rows(scope: Scope) -> Iterator[Row]:
    """A row for each cell and side; where no network can be built, one that says why."""
    for cell in scope.cells:
        network = Network.parse(f"rate={cell.mbit:g}mbit")
        yield from networks.on_network(
            network, lambda bed, cell=cell: _measured(bed, cell, scope.rounds), RANKS
        )


def _measured(bed: LiveNetwork, cell: Cell, rounds: int) -> Iterator[Row]:
    with Ranks(_turns, RANKS, cell, rounds, backend="tweed", bed=bed) as ranks:
        found = ranks.join(TIMEOUT_S)
    for side in found[0]:
        turns = [max(of_rank) for of_rank in zip(*(one[side].steps_s for one in found), strict=True)]
        cpu_s = sum(one[side].cpu_s for one in found)
        apart = max(one[side].apart for one in found)
        yield {"part": PART, **cell._asdict(), "side": side, "turns_s": turns, "cpu_s": cpu_s, "apart": apart}


@dataclass(slots=True)
class _Side:
    """A side on one rank: a step, what waits for the last one, its model; and of each turn so far the seconds
    of a step, of the last one its processor seconds."""

    step: Callable[[], object]
    end: Callable[[], object]
    params: list[Tensor]
    steps_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


class _Turns(NamedTuple):
    """What one rank has measured of a side, and how far its model is from that of `EVERY`."""

    steps_s: list[float]
    cpu_s: float
    apart: float


def _turns(rank: int, size: int, cell: Cell, rounds: int) -> dict[str, _Turns]:
    torch.set_num_threads(1)
    gloo = dist.new_group(backend="gloo")
    sides = {side: _made(side, cell, gloo) for side in (PEER, EVERY, *ORDERED, ALONE, EXCHANGE)}
    for turn in range(rounds):
        names = list(sides)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            _turn(sides[name], cell.steps)
    true = [one.detach().clone() for one in sides[EVERY].params]
    return {name: _Turns(side.steps_s, side.cpu_s, _apart(side.params, true)) for name, side in sides.items()}


def _apart(params: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """The largest difference of a parameter's values, over its largest value."""
    pairs = zip(params, true, strict=True)
    return max(float((one.detach() - other).abs().max() / other.abs().max()) for one, other in pairs)


def _turn(side: _Side, steps: int) -> None:
    dist.barrier()
    side.step()
    began, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(steps):
        side.step()
    side.steps_s.append((time.perf_counter() - began) / steps)
    side.cpu_s = (time.process_time() - cpu_s) / steps
    side.end()


def _made(side: str, cell: Cell, gloo: dist.ProcessGroup) -> _Side:
    torch.manual_seed(0)
    make, shape = MODELS[cell.model]
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    params = [*model.parameters()]
    torch.manual_seed(dist.get_rank())
    x = torch.randn(cell.batch, *shape)
    if side == EXCHANGE:
        flat = [
            torch.zeros(BUCKET_BYTES // 4) for _ in range(sum(one.nbytes for one in params) // BUCKET_BYTES)
        ]
        return _Side(lambda: _exchange(flat), lambda: None, params)
    tied, end = model, lambda: None
    if side == PEER:
        tied = DistributedDataParallel(model, process_group=gloo)
    elif side != ALONE:
        end = tweed.attach(model, optimizer, side, bucket_bytes=BUCKET_BYTES).finish

    def step() -> None:
        tied(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return _Side(step, end, params)


def _exchange(flat: Sequence[Tensor]) -> None:
    for work in [dist.all_reduce(one, async_op=True) for one in flat]:
        assert work is not None
        work.wait()


def table(rows: Sequence[Row]) -> str:
    """Bold where a goal is missed in a cell that has one."""
    found = [row for row in rows if row["part"] == PART]
    cells: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in found:
        cells.setdefault((row["model"], row["mbit"], row["batch"]), {})[row["side"]] = row
    body = [_line(cell, sides, side) for cell, sides in cells.items() for side in (PEER, EVERY, *ORDERED)]
    head = (
        "model",
        "Mbit/s",
        "batch",
        "computing / exchange",
        "side",
        "step",
        f"{PEER} / it",
        "bound / it",
        "apart",
    )
    return f"## The next forward pass\n\n{grid(head, body)}" if body else ""


def _line(cell: tuple[Any, ...], sides: dict[str, Row], side: str) -> Sequence[str]:
    step_s, computing_s, exchange_s = (median(sides[one]["turns_s"]) for one in (side, ALONE, EXCHANGE))
    bound_s = max(computing_s + sides[EXCHANGE]["cpu_s"] / CORES, exchange_s)
    gains = [its / own for its, own in zip(sides[PEER]["turns_s"], sides[side]["turns_s"], strict=True)]
    low, high = median_interval(gains)
    gain, near = f"{median(gains):.2f} ({low:.2f} to {high:.2f})", f"{bound_s / step_s:.2f}"
    if side in ORDERED and BETWEEN[0] <= exchange_s / computing_s <= BETWEEN[1]:
        gain = f"**{gain}**" if median(gains) < GAIN else gain
        near = f"**{near}**" if bound_s / step_s < BOUND else near
    model, mbit, batch = cell
    both = f"{seconds(computing_s)} / {seconds(exchange_s)}"
    return (
        model,
        f"{mbit:g}",
        str(batch),
        both,
        side,
        seconds(step_s),
        gain,
        near,
        f"{sides[side]['apart']:.0e}",
    )
