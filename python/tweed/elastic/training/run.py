"""`tweed.attach(elastic=...)`: a plain loop of members that are lost, return and arrive.

    the loop ── draws ──> `Loader`, of torch's DataLoader ──> its batch      which samples: `member_steps`
    backward ── hooks ──> `MemberGradients` ──> `MemberSteps` ──> `tweed.elastic.ElasticRun`

A member may be several processes, over which torch's FSDP2 spreads the model: `sharded_member`.
What members agree on, and how a step counts for all or for none, is at the head of `tweed.elastic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from tweed.cadence import LocalSteps
from tweed.elastic import Checkpoints, Control, Elastic
from tweed.elastic.change import Change
from tweed.elastic.run import leaving
from tweed.elastic.state import Stateful
from tweed.elastic.training.checks import check_strategy
from tweed.elastic.training.closure import Closure, forget
from tweed.elastic.training.connect import MemberRendezvous
from tweed.elastic.training.ddp import check_alone
from tweed.elastic.training.loader import Loader, check_loader, partitioned
from tweed.elastic.training.loop import RoundLoop, StepLoop
from tweed.elastic.training.rounds import MemberRounds
from tweed.elastic.training.steps import MemberSteps
from tweed.errors import UsageError
from tweed.exchange.encoding import structure
from tweed.hooks.base_run import BaseRun
from tweed.hooks.deferred_steps import say_at_once
from tweed.hooks.gradient import Beside
from tweed.hooks.settings import Settings
from tweed.hooks.setup import Setup
from tweed.strategy import Strategy

if TYPE_CHECKING:
    import signal


class ElasticTraining(BaseRun):
    """What `tweed.attach(elastic=...)` returns: a run whose samples are dealt to the members there are.

        run = tweed.attach(model, optimizer, elastic=Elastic(2, 8))
        run.keep("schedule", schedule)
        with run, run.leaving_on(signal.SIGTERM):
            for x, y in run.batches(dataset, steps=1000, batch=512, num_workers=2):
                loss(model(x), y).backward()  # the mean over the batch
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()

    Args:
      model, optimizer, strategy: as for `attach`.
      elastic: how many members, or this process among them.
      settings: of the run.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        strategy: Strategy,
        elastic: Elastic | Control,
        settings: Settings,
    ) -> None:
        check_strategy(strategy)
        if strategy.cadence.deferred:
            say_at_once("a step of members counts for all of them or for none")
        ddp = model if isinstance(model, DistributedDataParallel) else None
        if ddp is not None:
            check_alone(ddp)
            model = ddp.module
        if not settings.sync_buffers:
            raise UsageError("elastic: members hold the same bits, buffers too: leave sync_buffers out")
        # Torch's default group, if there is one, is that of the processes which are one member.
        alone = ddp is not None or not dist.is_initialized()
        self._rendezvous = rendezvous = MemberRendezvous(elastic, None if alone else model, strategy)
        setup = Setup(model, optimizer, strategy, rendezvous, settings, spread=True)
        self._terms = setup.terms
        self._loop: StepLoop | RoundLoop
        if isinstance(strategy.cadence, LocalSteps):
            self._loop = RoundLoop(setup, rendezvous, strategy.cadence)
        else:
            self._loop = StepLoop(setup, rendezvous, ddp, Beside(self._snapshot, self._take_back))
        super().__init__(setup, self._loop.exchange)
        if ddp is not None:
            self._no_ddp.remove()

    @property
    def steps_done(self) -> int:
        """Steps that the model has in it."""
        return 0 if self._loop.run is None else self._loop.run.steps_done * self._loop.every

    @property
    def counted(self) -> int:
        """The name that `steps_done` had before."""
        return self.steps_done

    @property
    def members(self) -> tuple[str, ...]:
        """Keys of the members that this process has met last, in the order of their ranks."""
        return () if self._loop.run is None else self._loop.run.members

    @property
    def epochs(self) -> list[int]:
        """Numbers of the epochs that this process was a member of."""
        return [] if self._loop.run is None else self._loop.run.epochs

    @property
    def changes(self) -> list[Change]:
        """What has brought each of them about."""
        return [] if self._loop.run is None else self._loop.run.changes

    @property
    def paused_s(self) -> float:
        """Seconds in which this process had no group to go on with, those of sums that broke included."""
        return 0.0 if self._loop.run is None else self._loop.run.paused_s

    @property
    def rank(self) -> int | None:
        """The rank of this member among all, which changes with them; None: it is no member yet."""
        return self.members.index(self._rendezvous.key) if self._rendezvous.key in self.members else None

    @property
    def address(self) -> str:
        """ "host:port" at which others join: `TWEED_JOIN`."""
        return self._rendezvous.address

    @property
    def left(self) -> bool:
        """This process has left in good order."""
        steps = self._loop.gradients.steps
        return steps is not None and steps.left

    def keep(self, name: str, kept: Stateful) -> None:
        """Has members keep this too, such as a schedule, a gradient scaler or an average of the model: who
        joins gets a copy, and an iteration that does not count leaves it as it was. Under local steps nothing
        that follows from the model, which members have in common at the begin of a round alone.

        Args:
          kept: has `state_dict` and `load_state_dict`, and changes as a step does, alike at all members. Its
            state is of plain values and tensors.

        Raises: UsageError after the first batch, for a name that is taken, and for what has no such state.

        Cost: a copy of its state per batch.
        """
        if self._loop.run is not None:
            raise UsageError(f"keep({name!r}): members have begun already; call it before run.batches()")
        if name in self._loop.trained or name in self._loop.kept:
            raise UsageError(f"keep({name!r}): this name is taken; give another")
        self._loop.check_kept(name, kept)
        if not (hasattr(kept, "state_dict") and hasattr(kept, "load_state_dict")):
            raise UsageError(
                f"keep({name!r}, {type(kept).__name__}): it needs state_dict() and load_state_dict()"
            )
        structure(kept.state_dict())  # who joins could not read anything else
        self._loop.kept[name] = kept

    def closure(self, loss: Callable[[Any], Tensor]) -> Callable[[], Tensor]:
        """A closure for optimizers that ask for the loss and its gradient several times in a step.

            closure = run.closure(lambda batch: criterion(model(batch[0]), batch[1]))
            for _ in run.batches(dataset, steps=100, batch=512):
                optimizer.step(closure)

        It sets gradients to zero, and computes those of this member's share of the step's samples, the same
        in each evaluation; and of a lost member's, if one is lost. What it returns, and gradients then, are
        means over all samples of the step, equal at all members. With local steps they are of the batch of
        this member, as the step is.

        Args:
          loss: of a batch as it comes out of `batches`, the mean over it; a scalar that backward passes begin
            with. What it computes must not change from call to call but by the model.

        Raises: UsageError after the first batch. The closure raises it outside of the loop.

        Cost: per evaluation what a step costs with other optimizers. Per step a copy of all that is kept; in
          memory the batches of the share, and a gradient per evaluation, until the step is over.
        """
        loop = self._loop
        if loop.run is not None or loop.closure is not None:
            raise UsageError("run.closure(): call it once, before run.batches()")
        loop.closure = Closure(self._params, loop.gradients, loss)
        if loop.evaluates:
            self._terms += ["an optimizer with a closure"]
        return loop.closure.evaluate

    def batches(  # noqa: PLR0913 - options of a user, by their names
        self,
        dataset: Any,
        steps: int,
        batch: int | None = None,
        *,
        per_member: int | None = None,
        seed: int = 0,
        at_most: int | None = None,
        first: Callable[[], None] | None = None,
        check_every: int = 0,
        checkpoints: Checkpoints | None = None,
        timeout_s: float = 60.0,
        **loader: Any,
    ) -> Iterator[Any]:
        """This member's batches, until `steps` steps count, or this process has left.

        A step takes the next `batch` samples of a shuffled order, the same whoever the members are; each
        computes its share, with one backward pass and one `optimizer.step()` per batch that comes out here.
        The loss is the mean over the batch. A step counts when all its samples are computed. Until then an
        iteration leaves the model as it is, and all that is kept: so when a member is lost, and the others
        are given its samples. With `per_member` a step takes so many samples for each member that there is,
        and counts without those of a lost one, which come in the next step. See docs/elastic.md.

        Args:
          dataset: all samples, the same at all members; with a length and items by number.
          steps: of the whole run, those before this process came included; with local steps a whole number
            of rounds.
          batch: samples of a step, of all members together; the result does not depend on how many they are.
          per_member: in its place, samples of a step of each member; of a sharded member all
            of its processes together.
          seed: of the order.
          at_most: samples of one batch here, for what memory there is: a share that is larger comes in
            several, and fewer members have larger ones. None: the whole share.
          first: what is to be done once with the model as it is, such as an evaluation: rank 0 calls it
            before its part of a step, and its successor does if it is lost before that counts. Of a
            sharded member all processes do.
          check_every: so many steps apart members compare all that they keep, by a digest; 0: never.
          checkpoints: where the run goes on from, and writes, each member its part.
          timeout_s: the longest that a collective, or the wait for other members, may take.
          loader: of torch's DataLoader, such as `num_workers` and `collate_fn`. What it has loaded ahead for
            another share, when members have changed, is passed over.

        Raises:
          UsageError: the data set has no numbers, or an option says which samples come when; or what the loop
            does with a batch does not fit.
          ShapeMismatch: members hold another model, or other settings.
          PeerLost, Evicted, DeadlineExceeded: see `ElasticRun`.

        Cost: per step what the strategy sends. Without a codec the sum of a bucket begins while the backward
          pass still computes, where one batch is the whole share. Memory: three copies of the gradients:
          what this member has contributed, the last mean, and the sum.
        """
        check_loader(loader)
        loop = self._loop
        run = loop.begin(
            partitioned(dataset, batch, per_member, seed, loop.every), (check_every, checkpoints, timeout_s)
        )
        began = (lambda: None) if self._proximal is None else self._proximal.exchanged
        now = loop.iterations(run, len(dataset), at_most, began)
        loads, closure = Loader(dataset, now.upcoming, loader), loop.closure
        if closure is not None:
            closure.loader = loads
        while (samples := self._next(now, steps, first)) is not None:
            loads.drop()
            loop.gradients.drawn()
            yield loads.load(samples) if closure is None else loads.keep(samples)

    def _next(
        self, now: MemberSteps | MemberRounds, steps: int, first: Callable[[], None] | None
    ) -> tuple[int, ...] | None:
        if isinstance(now, MemberRounds):
            self._optimizers.end_round()
        return now.begin(steps, first)

    def _before_step(self, has_closure: bool) -> None:
        if has_closure != (self._loop.closure is not None):
            raise UsageError(
                "an optimizer's closure has to learn from the run which samples are its own, also of a lost "
                "member: make it by closure = run.closure(loss) before run.batches(), where loss(batch) is "
                "the mean over a batch, and call optimizer.step(closure); or take an optimizer without one"
            )
        super()._before_step(has_closure)
        if not has_closure:
            forget(self._params, self._loop.gradients.unused)

    def _after_step(self) -> None:
        steps = self._loop.gradients.steps
        assert steps is not None  # `_before_step` has looked
        if not steps.is_void:
            super()._after_step()
        steps.stepped()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Raises UsageError: `batches(at_most=...)` adds up over several batches."""
        raise UsageError(
            "run.no_sync(): members that come and go add gradients up themselves, over batches of "
            "run.batches(at_most=n)"
        )
        yield

    def leave(self) -> None:
        """This process leaves in good order, as `ElasticRun.leave` has it; then `batches` ends."""
        self._rendezvous.leave()

    def leaving_on(self, *signals: signal.Signals) -> AbstractContextManager[None]:
        """A body in which the first of these signals has this process leave, see `ElasticRun.leaving_on`."""
        return leaving(self.leave, *signals)

    @property
    def told(self) -> list[Any]:
        """After `finish`: what each member has told there, by rank."""
        return [] if self._loop.run is None else self._loop.run.told

    def finish(self, first: Callable[[], None] | None = None, tell: Any = None) -> None:
        """Waits until all members have the last step. No steps follow.

        Args:
          first: as in `batches`, once with the last model.
          tell: what this member says at the end, a small plain value, for `told`.
        """
        self._loop.end()
        if self._loop.run is not None:
            self._loop.run.finish(first, tell)

    def detach(self) -> None:
        """Ends the run here, as `Run.detach`; to the others this process is lost if it was not done."""
        super().detach()
        if self._loop.run is not None:
            self._loop.run.close()
        self._rendezvous.close()
