"""Training by virtual members that are killed, stopped and cut off from each other, and come back.

    training = Training(gradient, start, sgd, Sampler(GlobalOrder(1797), 64))
    plan = Plan.drawn(8, {"kill": 500, "cut": 20}, seed=1, mean_steps=2)    # tweed.testbed.faults
    run = train(training, members=8, steps=1000, faults=plan.by_step(), seed=1)
    run.params, run.epochs, run.taken

Each worker has what a live one has: a `MemberNode`, which agrees on epochs with the others, and a `Member`,
which knows what it does about a step. What is virtual is the network between them, which delivers a message
with the next tick, and what befalls workers: before one has contributed, or within the exchange, so that any
part of the others has the result. Ticks of silence are to seconds as they are live. At all times more than
half of an epoch live, or they would wait for good: a fault waits for that, and for those whom it befalls.
When all steps have counted nothing befalls them any more, and all come back in.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tweed import _core
from tweed.data.sampler import Sampler
from tweed.elastic.commit import SumAnew, Take
from tweed.elastic.member import Member
from tweed.errors import UsageError

#: The sum of the gradients of samples at parameters `[numel]`: `[numel]`.
Gradient = Callable[[Tensor, Sequence[int]], Tensor]
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_SETTINGS = {
    "heartbeat": 3,
    "silence": 12,
    "batch": 1,
    "stagger": 3,
    "penalty": 0,
    "lead_steps": 0,
    "seed": 0,
}
#: Agreeing takes a few ticks; after so many it is a defect.
_MOST_TICKS = 1000
_TICKS_PER_STEP = 2
#: What a ballot asks for may be under way for so long, and is seen by nobody.
_VOTE_TICKS = 5 * _SETTINGS["stagger"]
#: Live, a member is lost after a second of silence.
_TICKS_PER_S = _SETTINGS["silence"]
_KINDS = ("kill", "stop", "cut")


class Fault(Protocol):
    """What befalls members; `tweed.testbed.faults.Fault` says what its attributes are, and is one."""

    @property
    def kind(self) -> str:
        """ "kill", "stop" or "cut"."""

    @property
    def members(self) -> tuple[int, ...]:
        """Whom it befalls; the two ends of a cut."""

    @property
    def seconds(self) -> float:
        """How long it lasts."""

    @property
    def one_way(self) -> bool:
        """Only what the first end sends is lost."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained.

    Attributes:
      gradient: see there.
      start: `[numel]`, of the type that is trained in.
      optimizer: makes each worker's.
      sampler: where to begin, and the batch of all together, or of each.
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
      sampler: where the steps are then.
      counts: by sample, how often it is in an update that counted.
      faults: that came about, by kind.
      epochs: that were agreed after the first.
      kills: workers that died.
      evicted: workers that were stopped, or not heard, until the others went on without them.
      taken: losses after which some took the result of others.
      anew: losses after which the kept contributions were summed anew.
    """

    params: Tensor
    sampler: Sampler
    counts: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    kills: int = 0
    evicted: int = 0
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
        self.epoch = 0  # that it has entered
        self.knows = node.epoch_number()
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
        self.member.summed(total.clone())
        self._update()

    def take(self, giver: Member) -> None:
        """The step counts there."""
        assert giver.commit.result is not None  # that of the step
        self.member.take(giver.commit.result.clone(), giver.sampler.where)
        self._update()

    def _update(self) -> None:
        self.params.grad = self.member.commit.result
        self.optimizer.step()


def _key(number: int) -> str:
    """The key of a member, from its number."""
    return f"{number:064x}"


class _Members:
    """The living workers by key, the messages between them, and what they agree on.

    Attributes:
      epochs: all that came about, by number, as the first that knew it had it.
      ways: from one to another, that are cut.
    """

    def __init__(self, count: int, training: Training) -> None:
        self.settings = {**_SETTINGS, "min_members": 1, "max_members": count}
        self._training = training
        first = [(_key(number), 0) for number in range(count)]
        self.workers = {
            me[0]: _Worker(_core.MemberNode.founder(me, first, [], self.settings), me[0], training, None)
            for me in first
        }
        self.epochs: dict[int, Any] = {1: self.workers[_key(0)].node.epoch()}
        self._lives = 0
        self._under_way: list[tuple[str, str, bytes]] = []
        self.stopped: set[str] = set()
        self.ways: set[tuple[str, str]] = set()

    def tick(self) -> None:
        """Delivers what was sent, and lets time pass. What is for a stopped process waits for it."""
        arriving, self._under_way = self._under_way, []
        for sender, to, message in arriving:
            if to in self.stopped:
                self._under_way.append((sender, to, message))
            elif to in self.workers and (sender, to) not in self.ways:
                self.workers[to].node.receive(sender, message)
        for key, worker in self.workers.items():
            if key in self.stopped:
                continue
            worker.node.step(worker.member.steps_done)
            worker.node.tick()
            self._under_way += [(key, to, message) for to, message in worker.node.poll()]
            if worker.node.epoch_number() > worker.knows:
                self._note(worker)

    def _note(self, worker: _Worker) -> None:
        """Notes that a worker knows another epoch."""
        epoch, worker.knows = worker.node.epoch(), worker.node.epoch_number()
        agreed = self.epochs.setdefault(worker.knows, epoch)
        assert epoch == agreed, f"an epoch is agreed twice: {epoch} and {agreed}"

    def kill(self, key: str) -> None:
        """Kills a member: the others' kernels tell of it."""
        del self.workers[key]
        for worker in self.workers.values():
            worker.node.lost(key)

    def restart(self, key: str) -> None:
        """Starts a process of the same key that wants to join, with a copy of another's state."""
        self._lives += 1
        node = _core.MemberNode.joiner((key, self._lives), list(self.workers), self.settings)
        self.workers[key] = _Worker(node, key, self._training, self.furthest())

    def furthest(self) -> _Worker:
        """The member of the newest epoch that has counted the most steps: others may be out and not know
        it."""
        members = (self.workers.get(key) for key, _ in self.epochs[self.number()][1])
        return max(filter(None, members), key=lambda worker: worker.member.steps_done)

    def number(self) -> int:
        """The number of the newest epoch that any member knows."""
        return max(worker.knows for worker in self.workers.values())

    def leave_evicted(self) -> list[str]:
        """Processes that have been told that the others go on without them end."""
        found = [key for key, worker in self.workers.items() if worker.node.standing()[0] == "evicted"]
        for key in found:
            self.kill(key)
        return found

    def settle(self, *, calm: bool = False) -> list[str]:
        """Lets them agree. Returns the keys of members in the order of their ranks.

        Args:
          calm: none of them wants another epoch either, for as long as a vote may be open.
        """
        still = 0
        for _ in range(_MOST_TICKS):
            ranks = self._agreed()
            still = 0 if ranks is None or self._change(ranks) else still + 1
            if ranks is not None and (still > _VOTE_TICKS or not calm):
                return ranks
            self.tick()
        raise AssertionError({key: worker.node.standing() for key, worker in self.workers.items()})

    def _change(self, ranks: list[str]) -> bool:
        return any(self.workers[key].node.standing()[0] != "settled" for key in ranks)

    def _agreed(self) -> list[str] | None:
        last = self.number()
        ranks = [key for key, _ in self.epochs[last][1]]
        known = all(key in self.workers and self.workers[key].knows == last for key in ranks)
        return ranks if known else None


def train(
    training: Training,
    *,
    members: int,
    steps: int,
    faults: Iterable[tuple[int, Fault]] = (),
    seed: int = 0,
) -> Run:
    """Trains while faults befall members; their models are compared bit by bit at each step.

    Args:
      members: workers.
      steps: that are to count.
      faults: each with the step within which it comes, or a later one: see the module. Those that do not come
        about within all steps are left.
      seed: of when within a step, and of how long a worker is away.

    Raises:
      UsageError: a fault that virtual members cannot have, or of one that is none of them.
      AssertionError: members differ, do not agree or do not come back: a defect of tweed.
    Cost: `steps` times `members` gradients, and some 10 messages per pair of members and step.
    """
    waiting = deque(faults)
    for _, fault in waiting:
        if fault.kind not in _KINDS or max(fault.members) >= members:
            raise UsageError(f"virtual members, 0 to {members - 1}, have {', '.join(_KINDS)}, not `{fault}`")
    rng = np.random.default_rng(seed)
    group, run, away = _Members(members, training), Run(training.start, training.sampler), Counter[str]()
    for number in range(steps):
        ranks = _let_in(group, run, away)
        step = _Step(group, training, ranks, run, rng)
        step.walk(number, waiting)
        away.update({key: int(rng.integers(1, 4)) for key in step.gone})
    _reunite(group, run, away, members)
    run.params, run.epochs = group.workers[_key(0)].params.detach(), group.number() - 1
    return run


def _reunite(group: _Members, run: Run, away: Counter[str], members: int) -> None:
    """Nothing befalls them any more: all come back, and have the same model."""
    for _ in range(_MOST_TICKS):
        if len(_let_in(group, run, away)) == members:
            _are_same([*group.workers.values()], run.sampler, "at the end")
            return
    raise AssertionError(f"of {members} members {len(group.settle())} are in")


def _are_same(workers: Sequence[_Worker], sampler: Sampler, when: str) -> None:
    same = (one.member.sampler == sampler and torch.equal(one.params, workers[0].params) for one in workers)
    assert all(same), f"members differ {when}"


def _let_in(group: _Members, run: Run, away: Counter[str]) -> list[str]:
    """Starts those again whose time has come, and lets members enter the epoch that is agreed."""
    for key in group.leave_evicted():
        run.evicted += 1
        away[key] = 1
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
    given = group.furthest().member
    for worker in group.workers.values():
        if worker.member.behind and worker.member.steps_done < given.steps_done:
            worker.take(given)


def _keys(fault: Fault) -> tuple[str, ...]:
    return tuple(map(_key, fault.members))


class _Step:
    """One step of all members, until it counts at all that are left."""

    def __init__(
        self, group: _Members, training: Training, ranks: list[str], run: Run, rng: np.random.Generator
    ) -> None:
        self.group, self.training, self.run, self.rng = group, training, run, rng
        self.ranks, self.sampler = ranks, group.workers[ranks[0]].member.sampler
        self.gone: list[str] = []  # keys of those that have died
        self._total: Tensor | None = None  # what all contributed, once it is summed

    def walk(self, number: int, waiting: deque[tuple[int, Fault]]) -> None:
        """What is due by this step befalls members, one after the other, as long as it does not count."""
        while waiting and waiting[0][0] <= number and self._may(waiting[0][1]):
            fault = waiting.popleft()[1]
            self.run.faults[fault.kind] += 1
            if self._struck(fault):
                break
        self._contribute()
        self._finish()

    def _may(self, fault: Fault) -> bool:
        """Whether those that a fault befalls are in, and more than half of the members would be left."""
        keys, here = _keys(fault), len(self.ranks)
        lost = 0 if fault.kind == "cut" and here > len(keys) else len(keys)  # a third reaches both ends
        return set(keys) <= set(self.ranks) and lost <= (here - 1) // 2

    def _struck(self, fault: Fault) -> bool:
        """It befalls them, the others agree. Whether the step counts at all of them then."""
        epoch, early = self.group.number(), fault.kind == "kill" and self.rng.random() < 0.3
        if early:
            self._kill(fault)
        self._contribute()
        if not early:
            self._exchange_in_part()
            (self._kill if fault.kind == "kill" else self._last)(fault)
        # Who was silent for a moment may be on its way out: with a next fault that could be half of them.
        self.ranks = self.group.settle(calm=True)
        if self.group.number() > epoch:
            return self._after_loss()
        return self._exchange_goes_on()

    def _kill(self, fault: Fault) -> None:
        for key in _keys(fault):
            self.group.kill(key)
            self.gone.append(key)
            self.run.kills += 1

    def _last(self, fault: Fault) -> None:
        """A stop, or a cut, from its begin to its end."""
        keys = _keys(fault)
        if fault.kind == "stop":
            self.group.stopped.update(keys)
        else:
            one, other = keys
            self.group.ways.update({(one, other)} if fault.one_way else {(one, other), (other, one)})
        for _ in range(round(fault.seconds * _TICKS_PER_S)):
            self.group.tick()
        self.group.stopped.clear()
        self.group.ways.clear()

    def _living(self) -> list[_Worker]:
        workers = self.group.workers
        return [workers[key] for key in self.ranks if key in workers]

    def _contribute(self) -> None:
        """Each computes what it has not yet of its share."""
        for worker in self._living():
            if worker.member.steps_done == self.sampler.step:
                worker.compute(self.training.gradient)

    def _exchange_in_part(self) -> None:
        """Any of the members have the result, if all have contributed to it."""
        workers = self._living()
        if len(workers) < len(self.ranks) or any(
            worker.member.steps_done > self.sampler.step for worker in workers
        ):
            return
        self._total = self._sum()
        for worker in workers:
            if self.rng.random() < 0.5:
                worker.count(self._total)

    def _exchange_goes_on(self) -> bool:
        """Nobody was lost. Whether the step counts now."""
        for worker in self._living():
            if self._total is not None and worker.member.steps_done == self.sampler.step:
                worker.count(self._total)
        return self._total is not None

    def _sum(self) -> Tensor:
        values, samples = zip(*(worker.member.contribution for worker in self._living()), strict=True)
        total = torch.stack(values).sum(0)
        return torch.cat([total, total.new_tensor([sum(samples)])])

    def _after_loss(self) -> bool:
        """What survivors do. Whether the step counts at all of them."""
        plan = _enter(self.group, self.ranks)
        workers = self._living()
        if isinstance(plan, Take):
            for rank in plan.takers:
                workers[rank].take(workers[plan.giver].member)
            self.run.taken += 1
        elif workers[0].member.steps_done == self.sampler.step:
            self.run.anew += 1
            return False
        _feed(self.group)
        return True

    def _finish(self) -> None:
        """The step counts at all that have not counted it; their models are compared."""
        workers = self._living()
        if workers[0].member.steps_done == self.sampler.step:
            total = self._sum()
            for worker in workers:
                worker.count(total)
        before, now = self.sampler, workers[0].member.sampler
        places = {*before.again, *range(before.cursor, now.cursor)}.difference(now.again)
        self.run.counts.update(now.order.samples([*places]))
        self.run.sampler = now
        _are_same(workers, now, f"after step {before.step}")
