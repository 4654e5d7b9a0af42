"""What split learning learns with aggregated rows, and how long rounds take over radio links, simulated."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from tweed.data import Partition, deal, load
from tweed.errors import DataError
from tweed.exchange.allocation import Allocation, powered, spread_evenly
from tweed.experiments.learning_rates import Grid
from tweed.experiments.notes import Line, Notes
from tweed.experiments.tuning import Side
from tweed.workloads.split import (
    SplitClient,
    SplitServer,
    federated_round,
    parallel_round,
    sequential_round,
)
from tweed.workloads.split.latency import Profile, Setting, at_random, descended, drop

#: Ways to train by their keys: the share of rows that are aggregated, by progress from 0 to 1.
WAYS: dict[str, Callable[[float], float]] = {
    "phi 0": lambda progress: 0.0,
    "phi 0.5": lambda progress: 0.5,
    "phi 1": lambda progress: 1.0,
    "phi 1, then 0": lambda progress: 1.0 if progress < 0.5 else 0.0,
    "federated": lambda progress: 0.0,
    "sequential": lambda progress: 0.0,
}
#: Steps between two looks at the test samples, of which every fifth counts.
_EVERY, _FIFTH = 20, 5
#: ResNet-18 on pictures of 28 x 28, roughly: cuts after its first, second and third stage.
RESNET = Profile((9e7, 2.0e8, 3.2e8), 4.4e8, (1.6e6, 8e5, 4e5), (4.7e6, 2.2e7, 8.9e7))
#: Operations per second of the slowest and the quickest client, and of the server.
CLIENT_FLOPS, SERVER_FLOPS = (1e10, 1.6e10), 5e12


@dataclass(frozen=True, slots=True)
class Config:
    """A training: clients with equal parts of a data set, by a perceptron that is cut after its first layer.

    Attributes:
      scale: the largest value of a pixel.
      partition: as `Partition.parse` reads it.
      batch, rounds: of each client.
    """

    data: str
    partition: str = "iid"
    scale: float = 255.0
    clients: int = 5
    batch: int = 32
    rounds: int = 400
    width: int = 128

    def side(self, way: str, grid: Grid, seeds: range) -> Side:
        """A way to train at its best learning rate: lines of kind "learned"."""
        facts = {"kind": "learned", "data": self.data, "partition": self.partition, "way": way}
        name = f"{self.data}, {self.partition}, {way}"
        return Side(name, facts | {"clients": self.clients}, partial(self.run, way), grid, seeds)

    def run(self, way: str, rate: float, seed: int) -> Line:
        """Mean accuracy of the clients' models, in the end and on the way; 0 where values were not finite."""
        torch.set_num_threads(1)
        (x, y), (test_x, test_y) = _pictures(self.data, self.scale)
        hands = deal(y.numpy(), self.clients, Partition.parse(self.partition), seed)
        generator = torch.Generator().manual_seed(seed)
        server, clients = self._parties(way, rate, x.shape[1], int(y.max()) + 1, generator)
        curve: list[float] = []
        for number in range(self.rounds):
            drawn = [
                hand[torch.randint(len(hand), (self.batch,), generator=generator).numpy()] for hand in hands
            ]
            batches = [(x[which], y[which]) for which in drawn]
            try:
                if way == "sequential":
                    sequential_round(server, clients, batches)
                else:
                    (federated_round if way == "federated" else parallel_round)(server, clients, batches)
            except DataError:
                return {"accuracy": 0.0, "curve": curve}
            if number % _EVERY == _EVERY - 1:
                curve.append(_accuracy(server, clients, test_x[::_FIFTH], test_y[::_FIFTH]))
        return {"accuracy": _accuracy(server, clients, test_x, test_y), "curve": curve}

    def _parties(
        self, way: str, rate: float, inputs: int, classes: int, generator: torch.Generator
    ) -> tuple[SplitServer, list[SplitClient]]:
        lower = nn.Sequential(nn.Linear(inputs, self.width), nn.ReLU())
        upper = nn.Sequential(nn.Linear(self.width, 64), nn.ReLU(), nn.Linear(64, classes))
        for param in (*lower.parameters(), *upper.parameters()):
            if param.dim() == 2:
                nn.init.kaiming_normal_(param, generator=generator)
            else:
                nn.init.zeros_(param)
        lowers = [copy.deepcopy(lower) for _ in range(self.clients)]
        share = WAYS[way]
        server = SplitServer(upper, _sgd(upper, rate), lambda step: share(step / self.rounds))
        return server, [SplitClient(one, _sgd(one, rate)) for one in lowers]


def _sgd(part: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(part.parameters(), lr=rate, momentum=0.9)


@cache
def _pictures(name: str, scale: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    found = load(name)
    train, test = (
        (
            torch.from_numpy(np.array(part.x)).float().flatten(1) / scale,
            torch.from_numpy(np.array(part.y)).long(),
        )
        for part in (found.train, found.test)
    )
    return train, test


@torch.no_grad()
def _accuracy(server: SplitServer, clients: list[SplitClient], x: Tensor, y: Tensor) -> float:
    right = [float((server.upper(client.lower(x)).argmax(1) == y).float().mean()) for client in clients]
    return sum(right) / len(right)


def setting(seed: int, clients: int, phi: float = 0.0, channels: int = 20, batch: int = 64) -> Setting:
    """Clients at random places of a cell, of random speeds."""
    speeds = np.random.default_rng([seed, 2]).uniform(*CLIENT_FLOPS, clients)
    return Setting(RESNET, drop(seed, clients, channels), tuple(speeds.tolist()), SERVER_FLOPS, batch, phi)


def allocations(notes: Notes, drops: int) -> None:
    """Lines of kind "drop": seconds of a round with the allocation that was searched, and with others."""
    if notes.has(kind="drop"):
        return
    notes.log(f"{drops} drops of five clients")
    for seed in range(drops):
        mine = setting(seed, 5, 0.5)
        found = descended(mine)
        cuts, even, drawn = range(len(RESNET.bits)), spread_evenly(mine.radio), at_random(mine.radio, seed)
        others = {
            "even": min(mine.round_s(cut, even) for cut in cuts),
            "random": min(mine.round_s(cut, drawn) for cut in cuts),
            "first cut": mine.round_s(0, found.allocation),
        }
        longer = max(late / early for early, late in itertools.pairwise(found.rounds_s))
        notes.add({"kind": "drop", "seed": seed, "seconds": found.rounds_s[-1], "longer": longer, **others})


def small_cases(notes: Notes, cases: int) -> None:
    """Lines of kind "small": the search's round over that of the best of all allocations and cuts."""
    if notes.has(kind="small"):
        return
    for seed in range(cases):
        mine, rounds = setting(seed, 2, 0.5, channels=5), []
        for owners in itertools.product(range(2), repeat=5):
            if len({*owners}) == 2:
                for cut in range(len(RESNET.bits)):
                    begun = Allocation(owners, spread_evenly(mine.radio).powers)
                    full = powered(mine.radio, begun, partial(mine.seconds, cut))
                    rounds.append(mine.round_s(cut, full))
        notes.add({"kind": "small", "seed": seed, "over": descended(mine).rounds_s[-1] / min(rounds)})


def rounds(notes: Notes, clients: tuple[int, ...], drops: int) -> None:
    """Lines of kind "round": seconds by way, each with its own cut and allocation; federated learning has the
    allocation of phi 0."""
    for count, seed in itertools.product(clients, range(drops)):
        if notes.has(kind="round", clients=count, seed=seed):
            continue
        found = {}
        for way, phi in (("phi 1", 1.0), ("phi 0.5", 0.5), ("phi 0", 0.0)):
            mine = setting(seed, count, phi)
            chosen = descended(mine)
            found[way] = chosen.rounds_s[-1]
        found["federated"] = min(mine.federated_s(cut, chosen.allocation) for cut in range(len(RESNET.bits)))
        found["sequential"] = min(mine.sequential_s(cut) for cut in range(len(RESNET.bits)))
        notes.add({"kind": "round", "clients": count, "seed": seed, **found})
