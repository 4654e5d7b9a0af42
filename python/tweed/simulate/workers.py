"""Virtual workers: a strategy's stages, run for as many models as you like in one process.

    workers = Workers(model, lambda params: torch.optim.SGD(params, lr=0.1), named_strategy("ef_sgd"), 8)
    for step in range(300):
        loss = workers.step(lambda rank, model: F.cross_entropy(model(x(rank, step)), y(rank, step)))
    accuracy = score(workers.average())

Cadence, codecs, memories and the exchange of a buffer are those that run live. There is no network and no
clock: what a worker sends to others is there at once, and for the cadence a step takes a second. Bytes are
those of packets that were really packed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tweed.cadence import ByShards, Decision, Event, Joined, Ordered, Outer, Ready, StepDone, Stop
from tweed.compress import Direct, Identity, MeasuresNorm, Turn, Update
from tweed.errors import UsageError
from tweed.exchange.owners import Owners
from tweed.exchange.proximal import Proximal
from tweed.exchange.transfers import BufferState, exchange_buffer
from tweed.simulate.attacks import Attack
from tweed.simulate.exchanges import PacketLoss, VirtualNetwork
from tweed.simulate.flat import Flat
from tweed.simulate.fragments import VirtualFragments
from tweed.strategy import Strategy

#: The loss of a worker's next batch, by its rank, with its own model.
Loss = Callable[[int, nn.Module], Tensor]
#: Makes a worker's optimizer; it is given one parameter, which holds all of the model's values side by side.
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


@dataclass(slots=True)
class Worker:
    """One virtual worker.

    Attributes:
      model: its own.
      flat: the model's values side by side.
      optimizer: of those.
      reference: `[numel]`, where it stood after the last exchange, without the offset.
      offset: `[numel]`, how far from there its gradients are taken; None: there.
      buffer: what memory and codecs keep.
      cadence: the cadence's state.
      outer: the cadence's outer optimizer and its state, if it has one.
      proximal: what pulls its local steps back, if the cadence wants that.
      before: `[numel]`, where it stood before its last step, if the cadence needs that.
    """

    model: nn.Module
    flat: Flat
    optimizer: Optimizer
    reference: Tensor
    offset: Tensor | None
    buffer: BufferState
    cadence: Any
    outer: tuple[Outer[Any], Any] | None
    proximal: Proximal | None
    before: Tensor | None = None

    def step_norm(self) -> float | None:
        """Length of its last step, if the cadence needs that."""
        return None if self.before is None else float((self.flat.values - self.before).norm())

    def apply(self, update: Update, exchange: str) -> None:
        """Puts what came of an exchange into the gradient or the model."""
        if exchange in ("gradient", "factors"):
            self.flat.grads.copy_(update.delta)
        elif exchange == "model":
            self.flat.values.copy_(update.delta)
        else:
            delta = update.delta
            if self.outer is not None:
                delta = self.outer[0].advance(delta, self.outer[1])
            self.reference.add_(delta)
            self.offset = update.offset
            self.flat.values.copy_(self.reference)
            if update.offset is not None:
                self.flat.values.add_(update.offset)


class Workers:
    """`size` ranks that begin as copies of `model` and keep to `strategy`.

    Args:
      model: float32, on any device; it becomes the first worker's. Buffers, such as those of batch norm, stay
        each worker's own.
      optimizer: makes a worker's optimizer. It must treat every value alike, as SGD and Adam do.
      strategy: what counts of it: what is exchanged, cadence, compress, server and aggregate; of a transport
        what an average divides by.
      size: how many ranks; a server is one of them, and has no data.
      loss: what the strategy's transport loses; None: nothing.
      hostile: the last so many of those that contribute send what `attack` says.
      attack: on what they send; None: there are none.

    Attributes:
      traffic: of all exchanges so far.

    Raises: UsageError for an `Ordered` cadence, which `tweed.simulate.ordered` walks, or `ByShards`; or for a
      loss under a strategy that loses nothing.
    Cost: per worker, memory for five models.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: MakeOptimizer,
        strategy: Strategy,
        size: int,
        loss: PacketLoss | None = None,
        hostile: int = 0,
        attack: Attack | None = None,
    ) -> None:
        if isinstance(strategy.cadence, Ordered):
            raise UsageError(f"{strategy.cadence!r} hears ranks one by one: simulate it by simulate.ordered")
        if isinstance(strategy.cadence, ByShards):
            raise UsageError(
                f"{strategy.cadence!r} goes by who is first, and there is no clock here: "
                "data.coding.times says how long its steps take, and what is trained is synchronous training"
            )
        if strategy.hub is not None:
            raise UsageError(f"{strategy.hub!r} hears workers one by one: simulate it by simulate.hub")
        if loss is not None and not strategy.may_lose:
            raise UsageError(f"loss={loss!r}: transport={strategy.transport!r} loses nothing; give Ltp()")
        if attack is not None and strategy.cadence.overlapped:
            raise UsageError(f"attack={attack!r} is on movements that all exchange at once: give delay=0")
        self.strategy = strategy
        self._owners = [Owners.of(strategy, rank, size) for rank in range(size)]
        self._network = VirtualNetwork(self._owners[0], loss)
        self.traffic = self._network.traffic
        self.exchanges = 0
        self._hostile, self._attack = hostile, attack
        self._steps = 0
        self._plain = strategy.is_plain_sum and loss is None
        models = zip((model, *copies(model, size - 1)), self._owners, strict=True)
        self.all = [self._worker(one, optimizer, owners) for one, owners in models]
        for rank, owners in enumerate(self._owners):
            self._handle(rank, Joined(owners.contributor, owners.contributors))
        self._values = [torch.empty_like(worker.reference) for worker in self.all]
        self._average: tuple[nn.Module, Flat] | None = None
        self._fragments: VirtualFragments | None = None
        if strategy.cadence.overlapped:
            self._fragments = VirtualFragments(
                [worker.model for worker in self.all], strategy, self._owners, self._network
            )

    def _worker(self, model: nn.Module, optimizer: MakeOptimizer, owners: Owners) -> Worker:
        flat = Flat(model)
        memory = self.strategy.memory or Direct(Identity())
        buffer = BufferState.start(memory, flat.spec, flat.values, owners)
        outer = self.strategy.cadence.outer
        return Worker(
            model=model,
            flat=flat,
            optimizer=optimizer([flat.param]),
            reference=flat.values.clone(),
            offset=None,
            buffer=buffer,
            cadence=self.strategy.cadence.start(),
            outer=None if outer is None else (outer, outer.start(flat.values)),
            proximal=Proximal([flat.param], self.strategy.cadence.proximal)
            if self.strategy.cadence.proximal
            else None,
        )

    def step(self, loss: Loss) -> float:
        """One training step of every worker, with an exchange where the cadence wants one.

        Returns: the mean of the workers' losses.
        """
        losses = [self._learn(rank, loss) for rank, owners in enumerate(self._owners) if owners.contributes]
        gradients = self.strategy.exchanges_gradients
        if gradients:
            self._maybe_exchange()
        for worker in self.all:
            worker.before = worker.flat.values.clone() if self.strategy.cadence.needs_norm else None
            if gradients or worker.buffer.owners.contributes:  # else a server has nothing to step by
                worker.optimizer.step()
        self._steps += 1
        for rank, worker in enumerate(self.all):
            self._handle(rank, StepDone(worker.step_norm()))
        if self._fragments is not None:
            self._fragments.step()
        if not gradients:
            self._maybe_exchange()
        return sum(losses) / len(losses)

    def _learn(self, rank: int, loss: Loss) -> float:
        worker = self.all[rank]
        worker.flat.grads.zero_()
        value = loss(rank, worker.model)
        value.backward()  # type: ignore[no-untyped-call]
        if worker.proximal is not None:
            worker.proximal.pull()
        return value.item()

    def finish(self) -> None:
        """Exchanges what the cadence has left open. Of gradients nothing is."""
        if self.strategy.exchanges_gradients:
            return
        if self._fragments is not None:
            self._fragments.settle()
        for rank in range(len(self.all)):
            self._handle(rank, Stop())
        self._maybe_exchange()
        if self._fragments is not None:
            self._fragments.join()

    def _handle(self, rank: int, event: Event) -> None:
        worker = self.all[rank]
        worker.cadence = self.strategy.cadence.handle(event, worker.cadence, float(self._steps))

    @torch.no_grad()
    def _maybe_exchange(self) -> None:
        if self.strategy.cadence.needs_norm:
            self._measure()
        decisions: list[Decision] = []
        for worker in self.all:
            decision, worker.cadence = self.strategy.cadence.poll(worker.cadence, float(self._steps))
            decisions.append(decision)
        if not decisions[0].exchange:
            return
        if self._fragments is None:
            self._exchange([decision.silent for decision in decisions])
        elif decisions[0] is Decision.LAST_ROUND:
            self._fragments.exchange_all()
        else:
            self._fragments.exchange()
        self.exchanges += 1

    def _measure(self) -> None:
        self._gather()
        for rank, (worker, value) in enumerate(zip(self.all, self._values, strict=True)):
            memory = worker.buffer.memory
            assert isinstance(memory, MeasuresNorm)  # Strategy refuses others
            self._handle(rank, Ready(memory.pending(value, worker.buffer.state) ** 0.5))

    def _gather(self) -> None:
        """Leaves what each worker has to send in `_values`."""
        for worker, value in zip(self.all, self._values, strict=True):
            if self.strategy.exchanges_gradients:
                value.copy_(worker.flat.grads)
            elif self._takes_models:
                value.copy_(worker.flat.values)
            else:
                torch.sub(worker.flat.values, worker.reference, out=value)
        if self._attack is not None:
            self._send_attack(self._attack)

    def _send_attack(self, attack: Attack) -> None:
        """Puts what hostile workers send in the place of what they have to send."""
        pairs = zip(self._values, self._owners, strict=True)
        values = [value for value, owners in pairs if owners.contributes]
        first = len(values) - self._hostile
        own, honest = torch.stack(values[first:]), torch.stack(values[:first])
        for value, sent in zip(
            values[first:], attack.contributions(own, honest, self.exchanges), strict=True
        ):
            value.copy_(sent)

    def _exchange(self, silent: Sequence[bool]) -> None:
        self._gather()
        if self._plain:
            updates = self._network.sum([value.mul_(1 / self.traffic.size) for value in self._values])
        else:
            exchanges = [
                exchange_buffer(worker.buffer, value, self._turn(worker), silent[rank])
                for rank, (worker, value) in enumerate(zip(self.all, self._values, strict=True))
            ]
            updates = self._network.run(exchanges)
        moves = self.strategy.exchange == "model" and not self._takes_models
        for worker, update in zip(self.all, updates, strict=True):
            worker.apply(update, "difference" if moves else self.strategy.exchange)
            if worker.proximal is not None:
                worker.proximal.exchanged()

    @property
    def _takes_models(self) -> bool:
        """A sum of models is a model; what else is made of them is made of movements from a common point."""
        return self.strategy.exchange == "model" and self._plain

    def _turn(self, worker: Worker) -> Turn:
        owners = worker.buffer.owners
        return Turn(worker.flat.spec, self.exchanges, rank=owners.contributor, size=owners.contributors)

    @torch.no_grad()
    def average(self) -> nn.Module:
        """The average of all workers' models, without offsets, and with what is under way: what a strategy is
        judged by whose replicas diverge.

        The model is made at the first call and overwritten by the next. Its buffers are the first worker's.
        """
        if self._average is None:
            [model] = copies(self.all[0].model, 1)
            self._average = (model, Flat(model))
        model, flat = self._average
        flat.values.zero_()
        contributors = [worker for worker in self.all if worker.buffer.owners.contributes]
        for worker in contributors:
            flat.values.add_(worker.flat.values)
            if worker.offset is not None:
                flat.values.sub_(worker.offset)
        if self._fragments is not None:
            self._fragments.add_known(dict(model.named_parameters()))
        flat.values.div_(len(contributors))
        return model


def copies(model: nn.Module, count: int) -> list[nn.Module]:
    """As many copies of a model, with parameters of their own."""
    return [copy.deepcopy(model) for _ in range(count)]
