"""`Run`: one model, one optimizer and the ranks that train it, tied together by hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from tweed import metrics
from tweed.attach import checks
from tweed.attach.auto import AutoGradientExchange
from tweed.attach.averaged import means, replaced
from tweed.attach.gradient import GradientExchange
from tweed.attach.model import ModelExchange
from tweed.attach.moved import MovementExchange
from tweed.attach.ordered import OrderedGradientExchange
from tweed.attach.pace import Pace
from tweed.attach.packed import PackedGradientExchange
from tweed.attach.residual import Delivered
from tweed.attach.steps import StepLength
from tweed.attach.wire import Stats, Wire, gather
from tweed.cadence import Ordered, Outer, Ready, StepDone, Stop
from tweed.collective import Plan
from tweed.compress import Auto, Direct, Identity, Memory
from tweed.errors import StrategyError, UsageError
from tweed.strategy import Strategy

Exchange = GradientExchange | ModelExchange | MovementExchange
#: Exchanges that have more to keep than the model.
_STATEFUL = PackedGradientExchange | MovementExchange | OrderedGradientExchange


class Run:
    """What `tweed.attach` returns. See there.

    Attributes:
      strategy: the strategy that is carried out.
      stats: counters, see `Stats`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        strategy: Strategy,
        group: dist.ProcessGroup | None,
        bucket_bytes: int,
        sync_buffers: bool,
    ) -> None:
        checks.check_group(group)
        checks.check_model(model, optimizer)
        checks.check_strategy(strategy)
        checks.check_place(strategy, model, dist.get_world_size(group))
        self.strategy = strategy
        self.stats = Stats()
        metrics.follow(self.stats)
        self._model = model
        self._optimizer = optimizer
        self._params = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self._sync_buffers = sync_buffers
        settings = {"bucket_bytes": bucket_bytes, "sync_buffers": sync_buffers}
        checks.check_agreement(gather(group, checks.terms(model, strategy, settings)))
        self._wire = Wire(group, strategy, self.stats)
        self._wire.receive(self._wire.broadcast([*model.parameters(), *model.buffers()]))
        self._pace = Pace(strategy.cadence, self._wire.contributor, self._wire.contributors)
        self._length = StepLength(self._params.values()) if self._pace.weighs else None
        self._exchange = self._make_exchange(bucket_bytes)
        self._buffers_on_the_way: list[Any] = []
        self._apart = False  # may ranks' models differ?
        before = optimizer.register_step_pre_hook(self._before_step)
        after = optimizer.register_step_post_hook(self._after_step)
        self._hooks = [before, after]
        checks.attached.add(model)

    def _make_exchange(self, bucket_bytes: int) -> Exchange:
        cadence, server = self.strategy.cadence, self.strategy.collective
        if isinstance(cadence, Ordered):
            assert server is not None  # the strategy was checked
            return OrderedGradientExchange(self._params, self._wire, bucket_bytes, cadence, server.rank)
        memory, outer = self.strategy.memory, getattr(self.strategy.cadence, "outer", None)
        if memory is not None or outer is not None:
            return self._make_packed(memory or Direct(Identity()), outer, bucket_bytes)
        if self.strategy.exchange == "gradient":
            return GradientExchange(self._params, self._wire, bucket_bytes, self._pace.decide)
        anchored = self.strategy.exchange in ("step", "difference")
        return ModelExchange(self._averaged, self._wire, bucket_bytes, anchored=anchored)

    def _make_packed(self, memory: Memory[Any], outer: Outer[Any] | None, bucket_bytes: int) -> Exchange:
        if self.strategy.exchange == "gradient":
            overlaps = isinstance(memory, Auto) and not self.strategy.cadence.may_be_silent
            kind = AutoGradientExchange if overlaps else PackedGradientExchange
            return kind(self._params, self._wire, bucket_bytes, self._pace, memory)
        rest = None
        if self._buffers():
            rest = ModelExchange(self._buffers, self._wire, bucket_bytes, anchored=False)
        return MovementExchange(self._params, rest, self._wire, bucket_bytes, memory, outer)

    def _averaged(self) -> list[Tensor]:
        return [*self._params.values(), *self._buffers()]

    def _buffers(self) -> list[Tensor]:
        buffers = self._model.buffers() if self._sync_buffers else ()
        return [buffer for buffer in buffers if buffer.is_floating_point()]

    def _maybe_exchange(self) -> None:
        """Exchanges models or movements if the cadence says so."""
        if isinstance(self._exchange, GradientExchange) or not self._pace.decide():
            return
        if isinstance(self._exchange, MovementExchange):
            self._exchange.exchange(silent=self._pace.silent)
        else:
            self._exchange.exchange()
        self._apart = self.strategy.memory is not None and self.strategy.memory.forks

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trouble = "was added or began to require a gradient after attach; detach() and attach again"
        checks.check_covered(optimizer, set(self._params.values()), trouble)
        if self._length is not None:
            self._length.begin()
        if not isinstance(self._exchange, GradientExchange):
            return
        has_closure = any(callable(arg) for arg in (*args, *kwargs.values()))
        if not has_closure:  # one has its backward passes still before it
            self._exchange.before_step()
            self._check_finite()
        if self._sync_buffers:
            self._buffers_on_the_way = self._wire.broadcast(list(self._model.buffers()))

    def _check_finite(self) -> None:
        scaler_found = getattr(self._optimizer, "found_inf", None)  # then the step changes nothing
        known = PackedGradientExchange | OrderedGradientExchange
        if isinstance(self._exchange, known) and not scaler_found:
            self._exchange.check_finite()

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._check_finite()  # of the backward passes of a closure
        self.stats.steps += 1
        norm = self._length.measure() if self._length else None
        self._pace.tell(StepDone(norm))
        if isinstance(self._exchange, OrderedGradientExchange):
            self._exchange.moved(norm)
        self._wire.receive(self._buffers_on_the_way)
        self._buffers_on_the_way = []
        if self._pace.weighs and isinstance(self._exchange, MovementExchange):
            self._pace.tell(Ready(self._exchange.weigh()))
        self._apart = not isinstance(self._exchange, GradientExchange)
        self._maybe_exchange()

    @property
    def serves(self) -> bool:
        """Whether this rank is the strategy's server: it has no data, and calls `serve` instead of a loop."""
        return self._wire.serves

    def serve(self, steps: int = 1) -> None:
        """The server's training loop: takes `steps` steps with what the workers contribute.

        A step without a backward pass, `optimizer.step()` then `optimizer.zero_grad()`, contributes nothing
        and takes the workers' average. So a server may as well go through the workers' own loop without data,
        which is how it follows a learning rate that changes. Workers must exchange once per step: gradients
        that are accumulated go under `accumulate`.

        Raises: UsageError if this rank is no server.
        """
        if not self.serves:
            raise UsageError(f"this rank is no server of {self.strategy!r}: it trains with data of its own")
        for _ in range(steps):
            self._optimizer.step()
            self._optimizer.zero_grad()

    @property
    def delivered(self) -> Sequence[Delivered]:
        """How much arrived in each of the last 10,000 exchanges. Empty where the transport loses nothing."""
        return () if self._wire.losses is None else tuple(self._wire.losses.record)

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        """Backward passes inside add to the gradients and exchange nothing, as in DDP's `no_sync`.

        The next backward pass outside exchanges the sum; if none comes before `optimizer.step()`, that call
        does. Nothing changes for a strategy that exchanges no gradients. Must be entered on all ranks alike.
        """
        if not isinstance(self._exchange, GradientExchange):
            yield
            return
        before, self._exchange.paused = self._exchange.paused, True
        try:
            yield
        finally:
            self._exchange.paused = before

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
        tensors = self._averaged()
        with replaced(tensors, self._average_of(tensors)):
            yield

    def _average_of(self, tensors: list[Tensor]) -> list[Tensor]:
        if isinstance(self._exchange, MovementExchange):
            references = self._exchange.references()
            if references is not None:
                return [*references, *tensors[len(references) :]]
        return means(tensors, self._wire) if self._apart else tensors

    def finish(self) -> None:
        """Makes the model equal on all ranks, if the strategy has let it differ. All ranks must call it.

        Call it when training ends, and before one rank evaluates or stores the model for all. Training may go
        on.
        """
        self._pace.tell(Stop())
        self._maybe_exchange()
        if isinstance(self._exchange, MovementExchange):
            self._exchange.unite()
        self._apart = False

    def detach(self) -> None:
        """Ends the run: no hook is left, gradients are ordinary tensors, the model can be attached again.

        Exchanges nothing, so that it works after a failure; call `finish` first for one model on all ranks.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if isinstance(self._exchange, GradientExchange):
            self._exchange.close()
        self._wire.close()
        checks.attached.discard(self._model)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, as plain values and tensors; store it beside the model's and the optimizer's.

        Under a strategy with local steps each rank has its own model, optimizer state and run state between
        exchanges: store all three per rank, or call `finish` first and accept that the round ends there.
        """
        anchor = self._exchange.anchor if isinstance(self._exchange, ModelExchange) else None
        packed = None
        if isinstance(self._exchange, _STATEFUL):
            packed = self._exchange.state()
        return {
            "strategy": repr(self.strategy),
            "cadence": self._pace.state(),
            "stats": asdict(self.stats),
            "anchor": None if anchor is None else [tensor.clone() for tensor in anchor],
            "packed": packed,
            "owed": [] if self._wire.losses is None else self._wire.losses.state(),
            "plan": self._wire.plan(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was taken. Load the model and the optimizer as well; the order does not
        matter.

        Raises:
          StrategyError: the state is of another strategy; the text names both.
          UsageError: the group runs other schedules than when the state was taken, so that sums could round
            differently; or the state is of a model or of buckets of other sizes.
        """
        if state["strategy"] != repr(self.strategy):
            raise StrategyError(f"the state is of {state['strategy']}, but the run is of {self.strategy!r}")
        if state["plan"] is not None and not _same_schedules(state["plan"], self._wire.plan()):
            raise UsageError(
                "the group runs other schedules than the stored run, so results would not be the same; "
                "give the stored plan to the group when it is made (tweed.torch.Options(plan=...)), "
                "or drop state['plan'] to go on without"
            )
        self._pace.load(state["cadence"])
        for name, value in state["stats"].items():
            setattr(self.stats, name, value)
        if isinstance(self._exchange, ModelExchange) and state["anchor"] is not None:
            self._exchange.load_anchor(state["anchor"])
        if isinstance(self._exchange, _STATEFUL):
            self._exchange.load(state["packed"])
        self._apart = not isinstance(self._exchange, GradientExchange)
        if self._wire.losses is not None:
            self._wire.losses.load(state["owed"])


def _same_schedules(kept: str, now: str | None) -> bool:
    """Whether two plans as text run the same; their reasons may differ."""
    return now is not None and (
        kept == now or Plan.from_json(kept).schedules == Plan.from_json(now).schedules
    )
