"""What split learning learns by its share phi, and how long its rounds take by the model of the radio."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from tweed.data import Partition, deal, load
from tweed.errors import NonFinite
from tweed.exchange.allocation import Demand, Owners, Radio, allocate, fastest_power
from tweed.report.notes import Line, Notes
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.tuning import Side, accuracy, together
from tweed.workloads.split import SplitClient, SplitServer, split_step
from tweed.workloads.split.latency import Layers, drop

#: Seeds of searches: by label, one seed's best rate is often another one's worst.
SEARCHED = (SEARCH_SEED, SEARCH_SEED + 1, SEARCH_SEED + 2)
#: Test samples, and steps between looks at them.
_TESTED, _EVERY = 2000, 25


def share(phi: str, steps: int) -> Callable[[int], float]:
    """phi by step: a number, or "1 to 0", which is 0 in the last third of the steps."""
    if phi == "1 to 0":
        return lambda step: 1.0 if step < 2 * steps / 3 else 0.0
    return lambda step: float(phi)


def perceptron(inputs: int = 784) -> tuple[nn.Sequential, nn.Sequential]:
    """The model that is trained: a client's layers, and the server's."""
    wide = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU()), nn.Sequential(*wide)


@dataclass(frozen=True, slots=True)
class Training:
    """A training of several clients in one process.

    Attributes:
      data, partition: a set of pictures, and how it is dealt to clients.
      phi: as of `share`.
      clients, batch, steps: so many; rows of a client's batch.
    """

    data: str
    partition: str
    phi: str
    clients: int
    batch: int
    steps: int

    def side(self, grid: Grid, seeds: range) -> Side:
        """It at its best learning rate: lines of kind "training"."""
        facts = {"data": self.data, "partition": self.partition, "phi": self.phi, "clients": self.clients}
        name = ", ".join(map(str, facts.values()))
        score, searched = (accuracy, SEARCHED[:1]) if self.partition == "iid" else (_of_own_classes, SEARCHED)
        return Side(name, {"kind": "training", **facts}, self.run, grid, seeds, score, searched)

    def run(self, rate: float, seed: int) -> Line:
        """The mean accuracy of the clients' models: of all classes, of those that each has, and by steps."""
        torch.set_num_threads(1)
        (x, y), test = _split(self.data)
        parts = deal(y.numpy(), self.clients, Partition.parse(self.partition), seed)
        torch.manual_seed(seed)
        lower, upper = perceptron(x.shape[1])
        lowers = [copy.deepcopy(lower) for _ in parts]
        sgd = partial(torch.optim.SGD, lr=rate, momentum=0.9)
        clients = [SplitClient(one, sgd(one.parameters())) for one in lowers]
        phi = share(self.phi, self.steps)
        server = SplitServer(upper, sgd(upper.parameters()), nn.functional.cross_entropy, phi)
        random, curve = np.random.default_rng(seed), []
        try:
            for step in range(self.steps):
                drawn = [torch.from_numpy(random.choice(part, self.batch)) for part in parts]
                split_step(server, clients, [(x[rows], y[rows]) for rows in drawn])
                if step % _EVERY == _EVERY - 1:
                    curve.append(_accuracy(lowers, upper, test, None))
        except NonFinite:
            return {"diverged": True, "accuracy": 0.0, "own": 0.0, "curve": curve}
        own = _accuracy(lowers, upper, test, [torch.unique(y[torch.from_numpy(part)]) for part in parts])
        return {"accuracy": _accuracy(lowers, upper, test, None), "own": own, "curve": curve}


def _of_own_classes(line: Line) -> float | None:
    """A score for searches, by what is judged."""
    return None if line.get("diverged") else float(line["own"])


def _accuracy(
    lowers: Sequence[nn.Module], upper: nn.Module, test: tuple[Tensor, Tensor], own: list[Tensor] | None
) -> float:
    x, y = test[0][:_TESTED], test[1][:_TESTED]
    found = []
    with torch.no_grad():
        for number, lower in enumerate(lowers):
            right = upper(lower(x)).argmax(1) == y
            mine = torch.ones_like(right) if own is None else torch.isin(y, own[number])
            found.append(float(right[mine].float().mean()))
    return fmean(found)


@cache
def _split(name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    found = load(name)
    scale = 16 if name == "digits" else 255
    parts = [
        (
            torch.from_numpy(np.array(part.x)).float().flatten(1) / scale,
            torch.from_numpy(np.array(part.y)).long(),
        )
        for part in (found.train, found.test)
    ]
    return parts[0], parts[1]


def rows(notes: Notes, clients: int, batch: int, phi: float) -> None:
    """Rows that the server has propagated backwards, as its layers count them, and rows that it has sent."""
    if notes.has(kind="rows", clients=clients, batch=batch, phi=phi):
        return
    upper, counted = nn.Linear(4, 3), []
    upper.register_full_backward_hook(lambda layer, given, out: counted.append(len(next(iter(out)))))
    lowers = [nn.Linear(4, 4) for _ in range(clients)]
    parties = [SplitClient(one, torch.optim.SGD(one.parameters(), 0.1)) for one in lowers]
    server = SplitServer(upper, torch.optim.SGD(upper.parameters(), 0.1), nn.functional.cross_entropy, phi)
    given = [(torch.ones(batch, 4), torch.zeros(batch, dtype=torch.int64)) for _ in parties]
    split_step(server, parties, given)
    down = server.rows.broadcast + server.rows.unicast
    facts = {"kind": "rows", "clients": clients, "batch": batch, "phi": phi}
    notes.add({**facts, "backward": counted[0], "down": down})


def residual_profile() -> Layers:
    """Layers of a network with the sizes of ResNet-18 on pictures of 28 x 28, without its shortcuts."""
    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    blocks = [
        nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.ReLU())
        for i, o, s in (*sizes, (256, 512, 2), (512, 512, 1))
    ]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return Layers.of(nn.Sequential(nn.Conv2d(1, 64, 3, 1, 1), *blocks, *ends), torch.zeros(1, 1, 28, 28))


def perceptron_profile() -> tuple[Layers, int]:
    """Layers of the model that is trained, and where it is cut."""
    lower, upper = perceptron()
    return Layers.of(nn.Sequential(*lower, *upper), torch.zeros(1, 784)), len(lower)


def drops(notes: Notes, count: int) -> None:
    """Rounds of 5 clients at so many places, by allocations: lines of kind "drop"."""
    todo = [(seed,) for seed in range(count) if not notes.has(kind="drop", seed=seed)]
    for line in together(_drop, todo):
        notes.add(line)


def _drop(seed: int) -> Line:
    layers = residual_profile()
    setting = drop(layers, 5, seed)
    radio, demands = setting.radio, [setting.demand(cut, 0.5) for cut in layers.cuts()]
    found = allocate(radio, demands)
    is_monotone = all(b <= a for a, b in zip(found.history, found.history[1:], strict=False))
    owners = np.arange(radio.subchannels) % radio.clients
    random = np.random.default_rng(seed).permutation(owners)
    return {
        "kind": "drop",
        "seed": seed,
        "monotone": is_monotone,
        "found": found.seconds,
        "uniform": _least(radio, demands, owners),
        "random": _least(radio, demands, random),
        "fixed cut": allocate(radio, [demands[len(demands) // 2]]).seconds,
    }


def _least(radio: Radio, demands: Sequence[Demand], owners: Owners) -> float:
    """At equal power and the best cut."""
    return min(one.seconds(radio, owners, radio.equal_power(owners)) for one in demands)


def tiny(notes: Notes, count: int) -> None:
    """The descent beside the best of all, 3 clients, 6 subchannels, 3 cuts: lines of kind "tiny"."""
    layers = residual_profile()
    for seed in range(count):
        if notes.has(kind="tiny", seed=seed):
            continue
        setting = drop(layers, 3, seed, subchannels=6)
        radio, demands = setting.radio, [setting.demand(cut, 0.5) for cut in layers.cuts()[::4]]
        every = [np.array(one) for one in product(range(3), repeat=6) if len(set(one)) == 3]
        best = min(
            one.seconds(radio, owners, fastest_power(radio, one, owners))
            for one in demands
            for owners in every
        )
        notes.add({"kind": "tiny", "seed": seed, "ratio": allocate(radio, demands).seconds / best})


def rounds(notes: Notes, clients: Sequence[int], seeds: int) -> None:
    """Mean seconds of a round by schemes, the best allocation and cut for each: lines of kind "rounds"."""
    todo = [(many, seed) for many in clients for seed in range(seeds)]
    todo = [one for one in todo if not notes.has(kind="rounds", clients=one[0], seed=one[1])]
    for line in together(_rounds, todo):
        notes.add(line)


def _rounds(clients: int, seed: int) -> Line:
    setting = drop(residual_profile(), clients, seed)
    found = {f"phi = {phi:g}": setting.epsl_s(phi) for phi in (1.0, 0.5, 0.0)}
    others = {"federated": setting.federated_s(), "sequential": setting.sequential_s()}
    return {"kind": "rounds", "clients": clients, "seed": seed, **found, **others}


def trained_rounds(notes: Notes, clients: Sequence[int], batch: int, seeds: int) -> None:
    """Seconds of a round of the model that is trained, at its cut: lines of kind "trained round"."""
    layers, cut = perceptron_profile()
    for many, phi in product(clients, (0.0, 0.5, 1.0)):
        if not notes.has(kind="trained round", clients=many, phi=phi):
            settings = [drop(layers, many, seed, batch=batch) for seed in range(seeds)]
            took = [allocate(one.radio, [one.demand(cut, phi)]).seconds for one in settings]
            notes.add({"kind": "trained round", "clients": many, "phi": phi, "seconds": fmean(took)})
