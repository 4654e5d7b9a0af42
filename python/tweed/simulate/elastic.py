"""Training by virtual members that are killed and come back.

    training = Training(gradient, start, sgd, Sampler(GlobalOrder(1797), 64))
    run = train(training, members=8, steps=1000, kills=500, seed=1)
    run.params, run.epochs, run.taken

Each worker has what a live one has: a `MemberNode`, which agrees on epochs with the others, and a `Member`,
which knows what it does about a step. What is virtual is the network between them, which delivers a message
with the next tick, and death: before a worker has contributed, or within the exchange, so that any part of
the survivors has the result. At all times more than half of an epoch live, or they would wait for good.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from tweed import _core
from tweed.data.sampler import Sampler
from tweed.exchange.commit import SumAnew, Take
from tweed.exchange.member import Member

#: The sum of the gradients of samples at parameters `[numel]`: `[numel]`.
Gradient = Callable[[Tensor, Sequence[int]], Tensor]
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_SETTINGS = {"beat": 3, "silence": 12, "batch": 1, "stagger": 3, "penalty": 0, "lead_steps": 0, "seed": 0}
#: Agreeing takes a few ticks; after so many it is a defect.
_MOST_TICKS = 1000
_TICKS_PER_STEP = 2


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained.

    Attributes:
      gradient: see there.
      start: `[numel]`, of the type that is trained in.
      optimizer: makes each worker's.
      sampler: where to begin, and the batch of all together.
    """

    gradient: Gradient
    start: Tensor
    optimizer: MakeOptimizer
    sampler: Sampler


@dataclass(slots=True)
class Run:
    """What came of a run.

    Attributes:
      params: of all members at the end, `[numel]`.
      counts: by sample, how often it is in an update that counted.
      epochs: that were agreed after the first.
      kills: workers that died.
      taken: losses after which some took the result of others.
      anew: losses after which the kept contributions were summed anew.
    """

    params: Tensor
    counts: Counter[int] = field(default_factory=Counter)
    epochs: int = 0
    kills: int = 0
    taken: int = 0
    anew: int = 0


class _Worker:
    """One life of a virtual process."""

    def __init__(self, node: _core.MemberNode, key: str, training: Training, donor: _Worker | None) -> None:
        self.node = node
        start = training.start if donor is None else donor.params.detach()
        self.params: nn.Parameter = nn.Parameter(start.clone())
        self.optimizer = training.optimizer([self.params])
        self.member = Member(key, training.sampler)
        self.epoch = 0
        if donor is not None:
            self.optimizer.load_state_dict(copy.deepcopy(donor.optimizer.state_dict()))
            self.member = Member(key, donor.member.sampler, result=donor.member.commit.result)

    def compute(self, gradient: Gradient) -> None:
        """What is not computed yet of its share."""
        samples = self.member.samples()
        if samples is not None:
            self.member.contribute(gradient(self.params.detach(), samples))

    def count(self, total: Tensor) -> None:
        """The step counts here, by the sum of all."""
        self.member.summed(total)
        self._update()

    def take(self, result: Tensor) -> None:
        """The step counts elsewhere, with this result."""
        self.member.take(result)
        self._update()

    def _update(self) -> None:
        self.params.grad = self.member.commit.result
        self.optimizer.step()


class _Members:
    """The living workers by key, the messages between them, and what they agree on."""

    def __init__(self, count: int, training: Training) -> None:
        self.settings = {**_SETTINGS, "min_members": 1, "max_members": count}
        self._training = training
        first = [(f"{number:064x}", 0) for number in range(count)]
        self.workers = {
            me[0]: _Worker(_core.MemberNode.founder(me, first, [], self.settings), me[0], training, None)
            for me in first
        }
        self._lives = 0
        self._under_way: list[tuple[str, str, bytes]] = []

    def tick(self) -> None:
        """Delivers what was sent, and lets time pass."""
        arriving, self._under_way = self._under_way, []
        for sender, to, message in arriving:
            if to in self.workers:
                self.workers[to].node.receive(sender, message)
        for key, worker in self.workers.items():
            worker.node.step(worker.member.counted)
            worker.node.tick()
            self._under_way += [(key, to, message) for to, message in worker.node.poll()]

    def kill(self, key: str) -> None:
        """The others' kernels tell of it."""
        del self.workers[key]
        for worker in self.workers.values():
            worker.node.lost(key)

    def restart(self, key: str) -> None:
        """A process of the same key wants to join, with a copy of another's state."""
        self._lives += 1
        node = _core.MemberNode.joiner((key, self._lives), list(self.workers), self.settings)
        donor = max(self.workers.values(), key=lambda worker: worker.member.counted)
        self.workers[key] = _Worker(node, key, self._training, donor)

    def number(self) -> int:
        """Of the newest epoch that any of them knows."""
        return max(epoch[0] for worker in self.workers.values() if (epoch := worker.node.epoch()))

    def settle(self) -> list[str]:
        """Lets them agree. Returns the keys of members in the order of their ranks."""
        for _ in range(_MOST_TICKS):
            if (ranks := self._agreed()) is not None:
                return ranks
            self.tick()
        raise AssertionError({key: worker.node.standing() for key, worker in self.workers.items()})

    def _agreed(self) -> list[str] | None:
        epochs = {key: worker.node.epoch() for key, worker in self.workers.items()}
        last = max((epoch for epoch in epochs.values() if epoch), key=lambda epoch: epoch[0])
        ranks = [key for key, _ in last[1]]
        return ranks if all(epochs.get(key) == last for key in ranks) else None


def train(training: Training, *, members: int, steps: int, kills: int = 0, seed: int = 0) -> Run:
    """Trains while members die at random and come back; members' models are compared bit by bit at each step.

    Args:
      members: workers.
      steps: that are to count.
      kills: about so many workers die, spread over the steps.
      seed: of who dies when.

    Raises: AssertionError if members differ or do not agree: a defect of tweed.
    Cost: `steps` times `members` gradients, and some 10 messages per pair of members and step.
    """
    rng = np.random.default_rng(seed)
    group, run, away = _Members(members, training), Run(training.start), Counter[str]()
    for _ in range(steps):
        ranks = _let_in(group, away)
        doomed = _draw(rng, ranks, kills / steps)
        _Step(group, training, ranks, run, rng).walk(list(doomed))
        dead = [key for key in doomed if key not in group.workers]  # the step may have counted before
        run.kills += len(dead)
        away.update({key: int(rng.integers(1, 4)) for key in dead})
    run.params, run.epochs = group.workers[group.settle()[0]].params.detach(), group.number() - 1
    return run


def _let_in(group: _Members, away: Counter[str]) -> list[str]:
    """Starts those again whose time has come, and lets members enter the epoch that is agreed."""
    for key in list(away):
        away[key] -= 1
        if away[key] == 0:
            del away[key]
            group.restart(key)
    for _ in range(_TICKS_PER_STEP):
        group.tick()
    ranks = group.settle()
    _enter(group, ranks)
    _feed(group)
    return ranks


def _enter(group: _Members, ranks: list[str]) -> Take | SumAnew | None:
    """Members of an epoch that is new to one of them tell each other where they stand. None: it is old."""
    workers = [group.workers[key] for key in ranks]
    if all(worker.epoch == group.number() for worker in workers):
        return None
    standings = {rank: worker.member.standing(cut_off=False) for rank, worker in enumerate(workers)}
    plans = [worker.member.enter(ranks, standings) for worker in workers]
    for worker in workers:
        worker.epoch = group.number()
    assert all(plan == plans[0] for plan in plans)
    return plans[0]


def _feed(group: _Members) -> None:
    """Who has joined or waits to be let in takes the result of the last step."""
    given = max(group.workers.values(), key=lambda worker: worker.member.counted).member
    for worker in group.workers.values():
        if worker.member.behind and worker.member.counted < given.counted:
            assert given.commit.result is not None  # it has counted more steps than another
            worker.take(given.commit.result.clone())


def _draw(rng: np.random.Generator, ranks: list[str], rate: float) -> list[str]:
    """Who dies in this step: fewer than half of the members, in any order."""
    count = min(int(rng.poisson(rate)), (len(ranks) - 1) // 2)
    return [str(key) for key in rng.permutation(ranks)[:count]]


class _Step:
    """One step of all members, until it counts at all that are left."""

    def __init__(
        self, group: _Members, training: Training, ranks: list[str], run: Run, rng: np.random.Generator
    ) -> None:
        self.group, self.training, self.run, self.rng = group, training, run, rng
        self.ranks, self.sampler = ranks, group.workers[ranks[0]].member.sampler

    def walk(self, doomed: list[str]) -> None:
        """`doomed` die one after the other, as long as the step does not count."""
        while doomed and not self._loses(doomed.pop()):
            pass
        self._contribute()
        self._finish()

    def _loses(self, dies: str) -> bool:
        """One dies, the others agree. Whether the step counts at all of them then."""
        early = self.rng.random() < 0.3
        if early:
            self.group.kill(dies)
        self._contribute()
        if not early:
            self._exchange_in_part()
            self.group.kill(dies)
        self.ranks = self.group.settle()
        return self._after_loss()

    def _living(self) -> list[_Worker]:
        workers = self.group.workers
        return [workers[key] for key in self.ranks if key in workers]

    def _contribute(self) -> None:
        """Each computes what it has not yet of its share."""
        for worker in self._living():
            if worker.member.counted == self.sampler.step:
                worker.compute(self.training.gradient)

    def _exchange_in_part(self) -> None:
        """Any of the members have the result, if all have contributed to it."""
        workers = self._living()
        if len(workers) < len(self.ranks) or any(
            worker.member.counted > self.sampler.step for worker in workers
        ):
            return
        total = self._sum()
        for worker in workers:
            if self.rng.random() < 0.5:
                worker.count(total)

    def _sum(self) -> Tensor:
        addends = [worker.member.addend() for worker in self._living()]
        return torch.stack(addends).sum(0)

    def _after_loss(self) -> bool:
        """What survivors do. Whether the step counts at all of them."""
        plan = _enter(self.group, self.ranks)
        workers = self._living()
        if isinstance(plan, Take):
            result = workers[plan.giver].member.commit.result
            assert result is not None  # it has counted the step
            for rank in plan.takers:
                workers[rank].take(result.clone())
            self.run.taken += 1
        elif workers[0].member.counted == self.sampler.step:
            self.run.anew += 1
            return False
        _feed(self.group)
        return True

    def _finish(self) -> None:
        """The step counts at all that have not counted it; their models are compared."""
        workers = self._living()
        places = self.sampler.deal(self.ranks).places
        if workers[0].member.counted == self.sampler.step:
            total = self._sum()
            for worker in workers:
                worker.count(total)
        self.run.counts.update(self.sampler.order.samples(places))
        for worker in workers:
            same = torch.equal(worker.params, workers[0].params)
            assert same, f"members differ after step {self.sampler.step}"
