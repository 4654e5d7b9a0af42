"""Training by virtual members that are killed and come back: who is a member, which step counts, whose samples.

    run = train(gradient, start, Sampler(GlobalOrder(1797), 64), members=8, steps=1000, kills=500, seed=1)
    run.params, run.epochs, run.taken

Each worker has what a live one has: a `MemberNode`, which agrees on epochs with the others, a `Commit` and a
`Sampler`. What is virtual is the network between them, which delivers a message with the next tick, and death:
before a worker has contributed, or within the exchange, so that any part of the survivors has the result. More
may die while the survivors agree. At all times more than half of an epoch live, or they would wait for good.
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
from tweed.data.sampler import Deal, Sampler
from tweed.exchange.commit import Commit, SumAnew, Take, compare, mean

#: The sum of the gradients of samples at parameters `[numel]`: `[numel]`.
Gradient = Callable[[Tensor, Sequence[int]], Tensor]
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_SETTINGS = {"beat": 3, "silence": 12, "batch": 1, "stagger": 3, "penalty": 0, "lead_steps": 0, "seed": 0}
#: Agreeing takes a few ticks; after so many it is a defect.
_MOST_TICKS = 1000
_TICKS_PER_STEP = 2


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

    def __init__(self, node: _core.MemberNode, params: Tensor, make: MakeOptimizer, sampler: Sampler) -> None:
        self.node, self.sampler, self.commit = node, sampler, Commit()
        self.params = nn.Parameter(params.clone())
        self.optimizer = make([self.params])

    def copy_state(self, donor: _Worker) -> None:
        """All that members share."""
        with torch.no_grad():
            self.params.copy_(donor.params)
        self.optimizer.load_state_dict(copy.deepcopy(donor.optimizer.state_dict()))
        self.sampler, self.commit = donor.sampler, copy.deepcopy(donor.commit)

    def count(self, deal: Deal, result: Tensor) -> None:
        """The step counts here."""
        self.commit.count(deal.step, result)
        self.params.grad = result
        self.optimizer.step()


class _Members:
    """The living workers by key, the messages between them, and what they agree on."""

    def __init__(self, count: int, fewest: int, start: Tensor, make: MakeOptimizer, sampler: Sampler) -> None:
        self.settings = {**_SETTINGS, "min_members": fewest, "max_members": count}
        self._new = lambda node: _Worker(node, start, make, sampler)
        first = [(f"{number:064x}", 0) for number in range(count)]
        self.workers = {
            me[0]: self._new(_core.MemberNode.founder(me, first, [], self.settings)) for me in first
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
            worker.node.step(worker.commit.counted)
            worker.node.tick()
            self._under_way += [(key, to, message) for to, message in worker.node.poll()]

    def kill(self, key: str) -> None:
        """The others' kernels tell of it."""
        del self.workers[key]
        for worker in self.workers.values():
            worker.node.lost(key)

    def restart(self, key: str) -> None:
        """A process of the same key wants to join."""
        self._lives += 1
        node = _core.MemberNode.joiner((key, self._lives), list(self.workers), self.settings)
        self.workers[key] = self._new(node)

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


def train(
    gradient: Gradient,
    start: Tensor,
    sampler: Sampler,
    optimizer: MakeOptimizer,
    *,
    members: int,
    steps: int,
    kills: int = 0,
    seed: int = 0,
) -> Run:
    """Trains while members die at random and come back; members' models are compared bit by bit at each step.

    Args:
      gradient: see there.
      start: `[numel]`, of the type that is trained in.
      sampler: where to begin, and the batch: of all together, or lost samples come later.
      optimizer: makes each worker's.
      members: workers.
      steps: that are to count.
      kills: about so many workers die, spread over the steps.
      seed: of who dies when.

    Raises: AssertionError if members differ or do not agree: a defect of tweed.
    Cost: `steps` times `members` gradients, and about 10 messages per pair of members and kill.
    """
    rng = np.random.default_rng(seed)
    group = _Members(members, 1, start, optimizer, sampler)
    run, away = Run(start), Counter[str]()
    for _ in range(steps):
        ranks = _let_in(group, away)
        doomed = _draw(rng, ranks, kills / steps)
        _step(group, gradient, ranks, doomed, rng, run)
        dead = [key for key in doomed if key not in group.workers]  # the step may have counted before the others
        run.kills += len(dead)
        away.update({key: int(rng.integers(1, 4)) for key in dead})
    run.params, run.epochs = group.workers[group.settle()[0]].params.detach(), group.number() - 1
    return run


def _let_in(group: _Members, away: Counter[str]) -> list[str]:
    """Starts those again whose time has come, and lets who was admitted take the others' state."""
    for key in list(away):
        away[key] -= 1
        if away[key] == 0:
            del away[key]
            group.restart(key)
    for _ in range(_TICKS_PER_STEP):
        group.tick()
    ranks = group.settle()
    donor = max((group.workers[key] for key in ranks), key=lambda worker: worker.commit.counted)
    for key in ranks:
        if group.workers[key].commit.counted < donor.commit.counted:
            group.workers[key].copy_state(donor)
    return ranks


def _draw(rng: np.random.Generator, ranks: list[str], rate: float) -> list[str]:
    """Who dies in this step: fewer than half of the members, in any order."""
    count = min(int(rng.poisson(rate)), (len(ranks) - 1) // 2)
    return [str(key) for key in rng.permutation(ranks)[:count]]


def _step(
    group: _Members, gradient: Gradient, ranks: list[str], doomed: list[str], rng: np.random.Generator, run: Run
) -> None:
    """One step, until it counts at all members that are left."""
    sampler, doomed = group.workers[ranks[0]].sampler, list(doomed)
    deal = sampler.deal(ranks)
    computed: dict[str, tuple[int, ...]] = {}
    while True:
        dies = doomed.pop() if doomed else None
        early = dies is not None and rng.random() < 0.3
        if early:
            group.kill(str(dies))
        living = [key for key in ranks if key in group.workers]
        for key in living:
            _contribute(group.workers[key], gradient, deal, key, computed, sampler)
        if dies is None:
            break
        if not early:
            whole = all(len(computed.get(key, ())) == len(share) for key, share in deal.shares)
            _exchange_in_part(group, deal, living, dies, whole, rng)
        ranks = [key for key in group.settle() if key in computed or key in ranks]
        deal, done = _after_loss(group, deal, ranks, run)
        if done:
            break
    _finish(group, deal, ranks, sampler, run)


def _contribute(
    worker: _Worker,
    gradient: Gradient,
    deal: Deal,
    key: str,
    computed: dict[str, tuple[int, ...]],
    sampler: Sampler,
) -> None:
    """Computes what it has not yet of its share."""
    before = computed.get(key, ())
    places = [place for place in deal.share(key) if place not in before]
    if places or key not in computed:
        total = gradient(worker.params.detach(), sampler.order.samples(places))
        worker.commit.contribute(deal.step, total, len(places))
        computed[key] = (*before, *places)


def _exchange_in_part(
    group: _Members, deal: Deal, living: list[str], dies: str, whole: bool, rng: np.random.Generator
) -> None:
    """Someone dies within the exchange: any of the others have its result, if all contributed to it."""
    if whole:
        result = _sum(group, living)
        for key in living:
            if rng.random() < 0.5:
                group.workers[key].count(deal, result)
    group.kill(dies)


def _sum(group: _Members, ranks: list[str]) -> Tensor:
    parts = {}
    for rank, key in enumerate(ranks):
        commit = group.workers[key].commit
        assert commit.contribution is not None  # all have contributed
        parts[rank] = commit.contribution, commit.samples
    return mean(parts)


def _after_loss(group: _Members, deal: Deal, ranks: list[str], run: Run) -> tuple[Deal, bool]:
    """What survivors do; returns how the step goes on, and whether it counts at all of them."""
    plan = compare({rank: group.workers[key].commit.position for rank, key in enumerate(ranks)})
    if isinstance(plan, Take):
        result = group.workers[ranks[plan.giver]].commit.result
        assert result is not None  # it has counted the step
        for rank in plan.takers:
            group.workers[ranks[rank]].count(deal, result.clone())
        run.taken += 1
        return deal, True
    assert isinstance(plan, SumAnew)
    if plan.step > deal.step:
        return deal, True
    run.anew += 1
    return deal.again(ranks), False


def _finish(group: _Members, deal: Deal, ranks: list[str], sampler: Sampler, run: Run) -> None:
    """The step counts at all that have not counted it; their models are compared."""
    if group.workers[ranks[0]].commit.counted == deal.step:
        result = _sum(group, ranks)
        for key in ranks:
            group.workers[key].count(deal, result.clone())
    run.counts.update(sampler.order.samples(deal.places))
    first = group.workers[ranks[0]].params
    for key in ranks:
        group.workers[key].sampler = sampler.counted(deal)
        assert torch.equal(group.workers[key].params, first), f"members differ after step {deal.step}"
