"""`BaseRun`: what the runs of a group, of a hub and of members share, tied to a model by hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from tweed.cadence import StepDone
from tweed.collective import Plan
from tweed.errors import StrategyError, UsageError
from tweed.exchange.base import Exchange
from tweed.exchange.cadence_driver import StepNorm
from tweed.exchange.checkpoint import FORMAT, check_format, check_other_ranks
from tweed.exchange.context import Context
from tweed.exchange.losses import Delivered
from tweed.exchange.proximal import Proximal
from tweed.hooks import advice, checks
from tweed.hooks.optimizers import Optimizers
from tweed.hooks.setup import Setup


class BaseRun:
    """One model, one optimizer or several, and the processes that train it: what is the same for all roles.

    Args:
      setup: what it is made from.
      exchange: how the processes keep one model.

    Attributes:
      strategy: the strategy that is carried out.
      stats: counters, see `Stats`.
    """

    #: Exchanges look at the model themselves, and if it cannot be exchanged, all ranks raise.
    _exchange_looks: ClassVar[bool] = False

    def __init__(self, setup: Setup[Any], exchange: Exchange) -> None:
        self.strategy = strategy = setup.strategy
        self.stats = setup.stats
        self._model, self._params = setup.model, setup.params
        self._context: Context = setup.context
        self._cadence, self._exchange = setup.cadence, exchange
        self._sync_buffers = setup.settings.sync_buffers
        owners = self._context.owners
        proximal = strategy.cadence.proximal if owners.contributes else 0.0
        self._proximal = Proximal(self._params.values(), proximal) if proximal else None
        self._step_norm = StepNorm(self._params.values()) if self._cadence.needs_norm else None
        self._optimizers = Optimizers(setup.optimizers, self._params)
        self._optimizers.watch(self._before_step, self._after_step)
        self._no_ddp = advice.RefuseDdp(self._model, self._params)
        self._unfinished = advice.Unfinished(self, strategy) if owners.contributor == 0 else None
        checks.attached.add(self._model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Leaves one model on all ranks, and no hook; after an error, only the latter."""
        try:
            if kind is None:
                self.finish()
        finally:
            self.detach()

    def _before_step(self, has_closure: bool) -> None:
        self._check_covered()
        if self.strategy.exchanges_gradients and torch._C._current_graph_task_id() != -1:
            raise UsageError(
                "an optimizer steps within a backward pass, before the gradients are exchanged: it would use "
                "this rank's gradients alone. Step after backward(); or take a strategy that exchanges "
                "models, such as local_steps"
            )
        if not self._exchange_looks:
            self._look()
        if self._step_norm is not None:
            self._step_norm.begin()
        early = self.strategy.hub or (self.strategy.cadence if self._proximal else None)
        fused = any(getattr(one, "grad_scale", None) is not None for one in self._optimizers)
        if early is not None and (has_closure or fused):
            raise UsageError(
                f"{early!r} takes gradients before the step: call step() without a closure, and with a "
                "gradient scaler take an optimizer that is not fused"
            )
        if has_closure:  # one has its backward passes still before it
            self._exchange.within_step = True
        else:
            self._exchange.before_step()
            self._check_finite()
        if self._proximal is not None:
            self._proximal.pull()

    def _look(self) -> None:
        """Takes up what has changed in the model, before it is used. Raises: UsageError if that cannot be,
        unless an exchange tells the others so."""
        trouble = self._params.look()
        if trouble is not None and not self._exchange_looks:
            raise trouble

    def _check_covered(self) -> None:
        """Raises UsageError if an optimizer steps what is not trained by this run."""
        groups = (group for one in self._optimizers for group in one.param_groups)
        stepped = {id(param) for group in groups for param in group["params"] if param.requires_grad}
        if stepped <= {*map(id, self._params.objects)}:
            return
        trouble = self._params.look()
        if trouble is not None:
            raise trouble
        why = (
            "is not trained by this run: it was added, began to require a gradient, or has been replaced in "
            "the model since attach, as by load_state_dict(assign=True). Give the optimizer the parameters "
            "that the model has now; or detach() and attach again, with all optimizers"
        )
        checks.check_covered(self._optimizers, set(self._params.objects), why)

    def _check_finite(self) -> None:
        if not self._optimizers.found_inf:  # a scaler found it: the step changes nothing
            self._exchange.check_finite()

    def _after_step(self) -> None:
        self._check_finite()  # of the backward passes of a closure
        self.stats.steps += 1
        norm = self._step_norm.measure() if self._step_norm else None
        self._cadence.handle(StepDone(norm))
        before = self.stats.exchanges
        self._exchange.after_step(norm)
        if self._proximal is not None and self.stats.exchanges > before:
            self._proximal.exchanged()
        self._note_difference()

    def _note_difference(self) -> None:
        if self._unfinished is not None:
            self._unfinished.differ = self._exchange.differs

    @property
    def worker(self) -> int:
        """Which of those that contribute this process is, from 0: at a hub, the number by which it goes."""
        return self._context.owners.contributor

    @property
    def delivered(self) -> Sequence[Delivered]:
        """How much arrived in each of the last 10,000 exchanges. Empty where the transport loses nothing."""
        return () if self._context.losses is None else tuple(self._context.losses.record)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within, the model is the average of all ranks'; afterwards it is this rank's again.

            with run.averaged():
                accuracy = evaluate(model)

        Where a memory lets ranks' models differ, or steps ahead, that average is what is trained. Nothing is
        exchanged where models are equal anyhow. All ranks must call it. Do not train within.

        Raises: UsageError where the strategy's transport may lose parts.
        Cost: a copy of the model; an all-reduce of it where models differ.
        """
        self._look()
        buffers = self._model.buffers() if self._sync_buffers else ()
        tensors = [*self._params.values(), *(one for one in buffers if one.is_floating_point())]
        with _replaced(tensors, self._exchange.average(tensors)):
            yield

    def finish(self) -> None:
        """Makes the model equal on all ranks, if the strategy has let it differ. All ranks must call it.

        Call it when training ends, and before one rank evaluates or stores the model for all. Training may go
        on.
        """
        self._look()
        self._exchange.finish()
        if self._proximal is not None:
            self._proximal.exchanged()
        self._note_difference()

    def detach(self) -> None:
        """Ends the run: no hook is left, gradients are ordinary tensors, the model can be attached again.

        Exchanges nothing, so that it works after a failure; call `finish` first for one model on all ranks.
        """
        self._optimizers.forget()
        self._no_ddp.remove()
        try:
            self._exchange.close()
        finally:
            self._context.close()
            checks.attached.discard(self._model)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, as plain values and tensors; store it beside the model's and the optimizer's.
        Between `backward()` and `optimizer.step()` it is the state before that exchange.

        Under a strategy with local steps each rank has its own model, optimizer state and run state between
        exchanges: store all three per rank, or call `finish` first and accept that the round ends there.
        Under `LocalSteps(delay=...)` it waits for what is under way, so that all ranks must call it after the
        same step.
        """
        return {
            "format": FORMAT,
            "strategy": repr(self.strategy),
            "ranks": self._context.owners.size,
            "differs": self._exchange.differs,
            "proximal": None if self._proximal is None else self._proximal.state(),
            "plan": self._context.plan(),
            **(self._exchange.before() or self._snapshot()),
        }

    def _snapshot(self) -> dict[str, Any]:
        """All that an exchange changes for later ones."""
        exchange = self._exchange.state()  # first: it may wait for what is under way, which counts
        return {
            "cadence": self._cadence.state(),
            "stats": asdict(self.stats),
            "exchange": exchange,
            "residuals": [] if self._context.losses is None else self._context.losses.state(),
        }

    def _take_back(self, before: Mapping[str, Any]) -> None:
        """Everything is as it was in that snapshot, but the counters, as bytes were sent."""
        if self.strategy.hub is None:  # a hub's worker takes the newest model, and begins a round with it
            self._cadence.load(before["cadence"])
        self._exchange.load(before["exchange"])
        if self._context.losses is not None:
            self._context.losses.load(before["residuals"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was taken. Load the model and the optimizer as well; the order does not
        matter.

        Raises:
          StrategyError: the state is of another strategy; the text names both.
          UsageError: the state is of another version of tweed, or of another number of ranks and holds what
            belongs to one of them; the group runs other schedules than when the state was taken, so that sums
            could round differently; or the state is of a model or of buckets of other sizes.
        """
        check_format(state)
        if state["strategy"] != repr(self.strategy):
            raise StrategyError(
                f"the state is of {state['strategy']}, but the run is of {self.strategy!r}: attach with the "
                "former, or load the model alone and begin a new run"
            )
        ranks = self._context.owners.size
        if self.strategy.hub is None and ranks != state["ranks"]:
            check_other_ranks(state, ranks)
        elif state["plan"] is not None and not _same_schedules(state["plan"], self._context.plan()):
            raise UsageError(
                "the group runs other schedules than the stored run, so results would not be the same; "
                "give the stored plan to the group when it is made (tweed.torch.Options(plan=...)), "
                "or drop state['plan'] to go on without"
            )
        for name, value in state["stats"].items():
            setattr(self.stats, name, value)
        self._take_back(state)
        if self._proximal is not None and self.strategy.hub is None:
            self._proximal.load(state["proximal"])


@contextmanager
def _replaced(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Within, `tensors` hold `values`; afterwards again what they held before."""
    kept = [tensor.detach().clone() for tensor in tensors]
    _copy(values, tensors)
    try:
        yield
    finally:
        _copy(kept, tensors)


@torch.no_grad()
def _copy(values: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    for value, tensor in zip(values, tensors, strict=True):
        tensor.copy_(value)


def _same_schedules(kept: str, now: str | None) -> bool:
    """Whether two plans as text run the same; their reasons may differ."""
    return now is not None and (
        kept == now or Plan.from_json(kept).schedules == Plan.from_json(now).schedules
    )
