"""`Run`: one model, one optimizer and the ranks that train it, tied together by hooks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tweed import metrics
from tweed.aggregate import Verdict
from tweed.attach import advice, checks
from tweed.attach.factors import LinearFactors, factored_weights
from tweed.attach.gradient import Beside, GradientExchange
from tweed.attach.optimizers import Optimizers
from tweed.attach.settings import Connect, Settings
from tweed.attach.trained import Trained
from tweed.cadence import ByShards, StepDone
from tweed.collective import Plan
from tweed.errors import StrategyError, UsageError
from tweed.exchange.base import Exchange
from tweed.exchange.cadence_driver import CadenceDriver, StepLength
from tweed.exchange.checkpoint import FORMAT, check_format, check_other_ranks
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.context import Ungrouped
from tweed.exchange.factor_record import FactorRecord
from tweed.exchange.hub.live.contribution import Contribution
from tweed.exchange.hub.live.hub import HubServer
from tweed.exchange.hub.live.trusted import TrustedLoss, warn_of_rate
from tweed.exchange.hub.live.worker import HubWorker
from tweed.exchange.losses import Delivered
from tweed.exchange.proximal import Proximal
from tweed.exchange.table import Parts, gradient_reducer, hub_exchange, model_exchange
from tweed.exchange.terms import terms
from tweed.exchange.untrained import Untrained
from tweed.strategy import Strategy


class Run:
    """What `tweed.attach` and `tweed.serve` return. See there.

    Attributes:
      strategy: the strategy that is carried out.
      stats: counters, see `Stats`.
    """

    _takes_shards = False  # of parameters that are spread over processes

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        strategy: Strategy,
        connect: Connect,
        settings: Settings,
    ) -> None:
        optimizers = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
        checks.check_model(model, optimizers, spread=self._takes_shards)
        checks.check_real(model, strategy, elastic=self._takes_shards)
        self.strategy = strategy
        self.stats = Stats()
        metrics.follow(self.stats)
        self._model = model
        self._params = Trained(model)
        self._sync_buffers = settings.sync_buffers
        # A hub's model is the one that is trained; a server has none of its own.
        self._root = None if strategy.hub is None else strategy.hub.rank
        self._context = connect(terms(model, strategy, settings.agreed()), self.stats)
        self._context.receive(self._context.broadcast([*model.parameters(), *model.buffers()], self._root))
        owners = self._context.owners
        self._cadence = CadenceDriver(strategy.cadence, owners.contributor, owners.contributors)
        proximal = strategy.cadence.proximal if owners.contributes else 0.0
        self._proximal = Proximal(self._params.values(), proximal) if proximal else None
        self._length = StepLength(self._params.values()) if self._cadence.needs_norm else None
        self._untrained: Untrained | None = None  # at a hub each process has its own
        self._linears: LinearFactors | None = None  # under exchange="factors"
        self._exchange = self._make_exchange(settings)
        self._optimizers = Optimizers(optimizers, self._params)
        self._optimizers.watch(self._before_step, self._after_step)
        self._no_ddp = advice.RefuseDdp(model, self._params)
        self._unfinished = advice.Unfinished(self, strategy) if owners.contributor == 0 else None
        checks.attached.add(model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Leaves one model on all ranks, and no hook; after an error, only the latter."""
        try:
            if kind is None:
                self.finish()
        finally:
            self.detach()

    def _make_exchange(self, settings: Settings) -> Exchange:
        if self.strategy.hub is not None:
            side = hub_exchange(self.strategy, self._context, self._cadence, self._params, settings.samples)
            if isinstance(side, HubWorker) and isinstance(self._context, Ungrouped):
                side.begin()  # its model is another one than the hub's, as a rule
            return side
        assert isinstance(self._context, Communicator)  # without a hub there is a group
        self._untrained = Untrained(self._now_untrained, self._context, self._params.look)
        record = self._follow_factors() if self.strategy.exchange == "factors" else None
        parts = Parts(self.strategy, self._context, self._cadence, settings.bucket_bytes, record)
        if self.strategy.exchanges_gradients:
            reducer = partial(gradient_reducer, parts)
            # Under shards each rank is in another step, so buffers become the same at the end alone.
            shared = self._sync_buffers and not isinstance(self.strategy.cadence, ByShards)
            buffers = (lambda: list(self._model.buffers())) if shared else list
            beside = Beside(self._snapshot, self._take_back, buffers, self._root)
            return GradientExchange(self._params, self._context, settings.bucket_bytes, reducer, beside)
        return model_exchange(parts, self._params, self._untrained)

    def _follow_factors(self) -> FactorRecord:
        weights = factored_weights(self._model, self._params)
        record = FactorRecord(weights.keys(), self._context.owners.contributors)
        self._linears = LinearFactors(weights, record)
        return record

    def _now_untrained(self) -> dict[str, Tensor]:
        buffers = self._model.named_buffers() if self._sync_buffers else ()
        return {**self._params.frozen(), **dict(buffers)}

    def _before_step(self, has_closure: bool) -> None:
        self._check_covered()
        if self.strategy.exchanges_gradients and torch._C._current_graph_task_id() != -1:
            raise UsageError(
                "an optimizer steps within a backward pass, before the gradients are exchanged: it would use "
                "this rank's gradients alone. Step after backward(); or take a strategy that exchanges "
                "models, such as local_steps"
            )
        if self._untrained is None:
            self._look()
        if self._length is not None:
            self._length.begin()
        early = self.strategy.hub or (self.strategy.cadence if self._proximal else None)
        fused = any(getattr(one, "grad_scale", None) is not None for one in self._optimizers)
        if early is not None and (has_closure or fused):
            raise UsageError(
                f"{early!r} takes gradients before the step: call step() without a closure, and with a "
                "gradient scaler take an optimizer that is not fused"
            )
        if not has_closure:  # one has its backward passes still before it
            self._exchange.before_step()
            self._check_finite()
        elif isinstance(self._exchange, GradientExchange):
            self._exchange.within_step = True
        if self._proximal is not None:
            self._proximal.pull()

    def _look(self) -> None:
        """Takes up what has changed in the model, before it is used. Raises: UsageError if that cannot be;
        where ranks form a group they exchange flags, and all raise."""
        trouble = self._params.look()
        if trouble is not None and self._untrained is None:
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
        norm = self._length.measure() if self._length else None
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
    def serves(self) -> bool:
        """Whether this rank is the strategy's server: it has no data, and calls `serve` instead of a loop."""
        return not self._context.owners.contributes

    @property
    def over(self) -> bool:
        """At a worker of a hub: the hub has ended training, and the model is its last; steps do not change it
        any more."""
        return isinstance(self._exchange, HubWorker) and self._exchange.over

    def serve(
        self,
        steps: int = 1,
        trusted: TrustedLoss | None = None,
        commits: int | None = None,
        after: Callable[[int], None] = lambda version: None,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        """The server's training loop: takes `steps` steps with what the workers contribute.

        A hub serves until all workers have called `detach`, however many steps that takes; where members come
        when they like, until it is interrupted; or to the end that `commits` sets.

        A step without a backward pass, `optimizer.step()` then `optimizer.zero_grad()`, contributes nothing
        and takes the workers' average. So a server may as well go through the workers' own loop without data,
        which is how it follows a learning rate that changes. Workers must exchange once per step: gradients
        that are accumulated go under `no_sync`.

        Args:
          steps: of a server that is no hub.
          trusted: at a hub whose rule judges by samples that it trusts, the model's loss on a batch of them,
            by the batch's number: on the same samples whenever the number is the same, without draws such as
            dropout's. It is also called at other points than the model, which layers that keep statistics, as
            batch norm does, must not see: let it put these in eval mode.
          commits: a hub ends training after so many in all, those before a checkpoint included, and tells its
            workers; None: it does not.
          after: called after each commit of a hub, with the version of the model: to evaluate, or to store.
          log: a file for all that a hub's machine is given, for `tweed.server.replay`. It grows by the bytes
            of all contributions; one that is there is gone on with. None: there is none.

        Raises: UsageError if this rank is no server, the rule needs trusted samples and there are none, or
          the log cannot be gone on with; DataError if that is damaged.
        """
        if not self.serves:
            raise UsageError(
                f"this rank is not a server of {self.strategy!r}, but trains with data of its own: call "
                "run.serve() only where run.serves is true"
            )
        if isinstance(self._exchange, HubServer):
            for optimizer in self._optimizers:
                warn_of_rate(self.strategy, optimizer)
            if log is not None:
                agreed = terms(self._model, self.strategy, {})
                self._exchange.keep_log(log, agreed, self._optimizers.only("a log").state_dict())
            self._exchange.serve(self._optimizers.step, trusted, commits, after)
            return
        for _ in range(steps):
            self._optimizers.step()
        if isinstance(self._exchange, GradientExchange):
            self._exchange.finish()

    def shards(self) -> Iterator[Any]:
        """The shards of this step whose gradients this rank computes, in its order: under `cadence=ByShards`.

            for shard in run.shards():
                loss(model(xs[shard]), ys[shard]).backward()
            optimizer.step()
            optimizer.zero_grad()

        When the next shard is asked for, the gradient of the last one is sent, alone or combined with others,
        and parameters have none. Backward passes within one shard add up. It ends when all are done, or the
        server has enough; `optimizer.step()` then takes the mean over all shards. A worker that was slow goes
        through the steps that it missed without a shard. The server has none.

        Yields: numbers of shards, from 0; under a Lagrange code `tweed.data.coding.work.Half`: see `halves`.
        Raises: UsageError under another cadence, and if called twice in a step.
        """
        if not (isinstance(self.strategy.cadence, ByShards) and isinstance(self._exchange, GradientExchange)):
            raise UsageError(
                f"run.shards() belongs to cadence=ByShards(), and the run is of {self.strategy!r}: call "
                "backward() as always"
            )
        return self._exchange.shards()

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """At a hub, on the contributions of its last update: with which weight each counted, and why."""
        return self._exchange.verdicts if isinstance(self._exchange, HubServer) else ()

    def report_loss(self, loss: float) -> None:
        """Before `optimizer.step()`, at a hub whose rule goes by losses, as `QFair` does: that of the batch.

        Of the steps between two exchanges the first one's counts. It does nothing elsewhere, and under
        `Hub(privacy=...)` the hub does not learn it.
        """
        if isinstance(self._exchange, HubWorker):
            self._exchange.report_loss(float(loss))

    def epsilon(self, delta: float = 1e-5) -> float:
        """How private this worker's data are, after all that it has sent: see `compress.ClippedNoise`.

        Infinite without `Hub(privacy=...)`, and at a rank that is no hub's worker.

        Raises: UsageError if the accountant, of the extra `privacy`, is not installed.
        """
        hub = self.strategy.hub
        if hub is None or hub.privacy is None or not isinstance(self._exchange, HubWorker):
            return math.inf
        return float(hub.privacy.epsilon(self._exchange.noisy, delta))

    @property
    def contributions(self) -> Sequence[Contribution]:
        """At a hub, those of its last update: whose, how old, and with which weight each counted, and why."""
        return self._exchange.contributions if isinstance(self._exchange, HubServer) else ()

    @property
    def dropped(self) -> Sequence[int]:
        """At a hub, whose contributions were dropped between its last two updates: they were computed on too
        old a model, and did not move."""
        return self._exchange.dropped if isinstance(self._exchange, HubServer) else ()

    @property
    def worker(self) -> int:
        """Which of those that contribute this process is, from 0: at a hub, the number by which it goes."""
        return self._context.owners.contributor

    @property
    def delivered(self) -> Sequence[Delivered]:
        """How much arrived in each of the last 10,000 exchanges. Empty where the transport loses nothing."""
        return () if self._context.losses is None else tuple(self._context.losses.record)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside add to the gradients and exchange nothing, as in DDP's method of that name.

            with run.no_sync():
                for x, y in batches[:-1]:
                    loss(model(x), y).backward()
            loss(model(*batches[-1])).backward()

        The next backward pass outside exchanges the sum; if none comes before `optimizer.step()`, that call
        does. Nothing changes for a strategy that exchanges no gradients. Must be entered on all ranks alike.
        """
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
        if self._untrained is not None and isinstance(self._exchange, GradientExchange):
            self._untrained.take_first(self._params, self._root)
        if self._proximal is not None:
            self._proximal.exchanged()
        self._note_difference()

    def detach(self) -> None:
        """Ends the run: no hook is left, gradients are ordinary tensors, the model can be attached again.

        Exchanges nothing, so that it works after a failure; call `finish` first for one model on all ranks.
        """
        self._optimizers.forget()
        self._no_ddp.remove()
        if self._linears is not None:
            self._linears.remove()
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
        """
        before = self._exchange.before() if isinstance(self._exchange, GradientExchange) else None
        return {
            "format": FORMAT,
            "strategy": repr(self.strategy),
            "ranks": self._context.owners.size,
            "differs": self._exchange.differs,
            "proximal": None if self._proximal is None else self._proximal.state(),
            "plan": self._context.plan(),
            **(before or self._snapshot()),
        }

    def _snapshot(self) -> dict[str, Any]:
        """All that an exchange changes for later ones."""
        return {
            "cadence": self._cadence.state(),
            "stats": asdict(self.stats),
            "exchange": self._exchange.state(),
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
