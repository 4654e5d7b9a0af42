"""What the loop of a member computes, and the run by which it counts: steps, or rounds of local steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tweed.cadence import LocalSteps
from tweed.data.sampler import Sampler
from tweed.elastic import Checkpoints, ElasticRun
from tweed.elastic.state import Stateful
from tweed.elastic.sums import Sum, WholeSums
from tweed.elastic.training.buffers import WholeModel
from tweed.elastic.training.checks import follows_models
from tweed.elastic.training.closure import Closure
from tweed.elastic.training.connect import MemberRendezvous
from tweed.elastic.training.ddp import DdpExchange
from tweed.elastic.training.evaluations import MemberEvaluations
from tweed.elastic.training.gradients import MemberGradients
from tweed.elastic.training.movement import MemberMovement
from tweed.elastic.training.rounds import MemberRounds
from tweed.elastic.training.sharded_member import ShardedMemberRun
from tweed.elastic.training.steps import MemberSteps, OptimizerSettings, filler_of
from tweed.elastic.training.sums import PackedSums
from tweed.errors import UsageError
from tweed.exchange.context import Ungrouped
from tweed.hooks.gradient import Beside, GradientExchange
from tweed.hooks.setup import Setup


class MemberLoop(ABC):
    """What both kinds of loop share.

    Args:
      setup, rendezvous: of the run.

    Attributes:
      exchange: that the hooks of the run drive.
      gradients: what sums are made of.
      every: local steps of what counts.
      run: by which it counts; None before the first batch.
      trained, kept: what members have in common, by name: the model and its optimizers; and what the program
        has named.
      closure: of the optimizers; None: they need none.
    """

    exchange: GradientExchange | MemberMovement
    gradients: MemberGradients | MemberMovement
    every = 1

    def __init__(self, setup: Setup[Ungrouped], rendezvous: MemberRendezvous) -> None:
        self._setup, self._control = setup, rendezvous.control
        self._sharded_member = rendezvous.sharded_member
        self._optimizers = list(setup.optimizers)
        self.run: ElasticRun | ShardedMemberRun | None = None
        self.trained: dict[str, Stateful] = {"model": WholeModel(setup.model)}
        self.kept: dict[str, Stateful] = {}
        self.closure: Closure | None = None

    @property
    def evaluates(self) -> bool:
        """A closure computes the gradients of a step as often as the optimizer asks."""
        return False

    @abstractmethod
    def check_kept(self, name: str, kept: Stateful) -> None:
        """Raises UsageError if members have no such state in common."""

    @abstractmethod
    def iterations(
        self, run: ElasticRun | ShardedMemberRun, numel: int, at_most: int | None, began: Callable[[], None]
    ) -> MemberSteps | MemberRounds:
        """What iterations are to what counts, of `numel` samples. `began` is called when a round begins."""

    @abstractmethod
    def end(self) -> None:
        """The loop was left, or no steps follow."""

    @abstractmethod
    def _whole_sums(self) -> Sum:
        """Sums without a codec."""

    def begin(
        self, sampler: Sampler, options: tuple[int, Checkpoints | None, float]
    ) -> ElasticRun | ShardedMemberRun:
        """The run, over the samples of `sampler`. Raises: UsageError if it has others."""
        if self.evaluates and sampler.per_member:
            raise UsageError(
                "run.batches(per_member=...) leaves the samples of a lost member to the next step, and all "
                "evaluations of a closure in a step are over the same samples: give batch="
            )
        if self.run is None:
            loaded = self.gradients.loaded
            begin = sampler if loaded is None else sampler.resumed(loaded)
            if self.evaluates:  # they are counted on from the steps
                begin = replace(begin, step=begin.cursor // begin.batch)
            self.run = self._made(begin, options)
        elif self.run.samples != sampler.samples:
            raise UsageError("run.batches(): a run has one data set, one seed and one batch to its end")
        return self.run

    def _made(
        self, begin: Sampler, options: tuple[int, Checkpoints | None, float]
    ) -> ElasticRun | ShardedMemberRun:
        check_every, checkpoints, timeout_s = options
        total, terms = self._sums(), self._setup.terms

        def made(keep: Mapping[str, Stateful]) -> ElasticRun:
            assert self._control is not None  # this is the process that is the member
            return ElasticRun(self._control, begin, keep, timeout_s, check_every, checkpoints, terms, total)

        keep, gradients = self.trained | self.kept, self.gradients
        if self._sharded_member is None:
            return made(keep)
        return ShardedMemberRun(self._sharded_member, gradients.sizes, gradients.like, keep, made)

    def _sums(self) -> Sum:
        memory, own = self._setup.strategy.memory, self.gradients.buckets
        if memory is None:
            return self._whole_sums()
        buckets = own if self._sharded_member is None else self._sharded_member.buckets(own)
        return PackedSums(memory, buckets, self._setup.stats)

    def _buffers(self) -> list[Tensor]:
        return list(self._setup.model.buffers())

    def _position(self) -> Any:
        return None if self.run is None else self.run.position

    @property
    def _process(self) -> tuple[int, int]:
        """Which process of the member this is, of how many."""
        return (0, 1) if (member := self._sharded_member) is None else (member.rank, member.size)


class StepLoop(MemberLoop):
    """Gradients of a step are summed.

    Args:
      setup, rendezvous: of the run.
      ddp: the model is in it; None: it is not.
      beside: what the run has beside gradients.
    """

    gradients: MemberGradients

    def __init__(
        self,
        setup: Setup[Ungrouped],
        rendezvous: MemberRendezvous,
        ddp: DistributedDataParallel | None,
        beside: Beside,
    ) -> None:
        super().__init__(setup, rendezvous)

        def made(groups: Any) -> MemberGradients:
            return MemberGradients(groups, self._buffers, self._position)

        make = GradientExchange if ddp is None else partial(DdpExchange, ddp)
        self.exchange = make(setup.params, setup.context, setup.settings.bucket_bytes, made, beside)
        assert isinstance(self.exchange.reducer, MemberGradients)  # just made
        self.gradients = self.exchange.reducer
        each = self._optimizers
        names = ["optimizer"] if len(each) == 1 else [f"optimizer {number}" for number in range(len(each))]
        self.trained |= dict(zip(names, each, strict=True))

    @property
    def evaluates(self) -> bool:
        return self.closure is not None

    def check_kept(self, name: str, kept: Stateful) -> None:
        """Does nothing, as members have one model between steps."""

    def iterations(
        self, run: ElasticRun | ShardedMemberRun, numel: int, at_most: int | None, began: Callable[[], None]
    ) -> MemberSteps:
        if self.gradients.steps is not None:
            self.gradients.steps.end()
        made = MemberEvaluations if self.evaluates else MemberSteps
        self.gradients.steps = made(run, numel, at_most, self.kept, self._optimizers, self._process)
        return self.gradients.steps

    def end(self) -> None:
        """Does nothing, as the model is that of the last step."""

    def _whole_sums(self) -> Sum:
        if self._sharded_member is not None:  # shards of several processes
            return WholeSums(stats=self._setup.stats)
        return WholeSums(self.gradients.parts, self._setup.stats)


class RoundLoop(MemberLoop):
    """Movements of rounds of local steps are summed.

    Args:
      setup, rendezvous: of the run.
      cadence: of its strategy.
    """

    gradients: MemberMovement

    def __init__(self, setup: Setup[Ungrouped], rendezvous: MemberRendezvous, cadence: LocalSteps) -> None:
        super().__init__(setup, rendezvous)
        self.every = cadence.every
        counts, size = setup.context.end_exchange, setup.settings.bucket_bytes
        self.exchange = self.gradients = MemberMovement(
            setup.params, self._buffers, cadence.outer, size, counts, self._position
        )
        # An inner optimizer's state is a member's own.
        self.trained |= {"outer": self.gradients, "settings": OptimizerSettings(self._optimizers)}

    def check_kept(self, name: str, kept: Stateful) -> None:
        if follows_models(kept, self._optimizers):
            raise UsageError(
                f"keep({name!r}, {type(kept).__name__}): within a round of local steps members' models and "
                "inner optimizers differ, and so would what follows from them. Leave it out; an average of "
                "models may be taken in run.batches(first=...)"
            )

    def iterations(
        self, run: ElasticRun | ShardedMemberRun, numel: int, at_most: int | None, began: Callable[[], None]
    ) -> MemberRounds:
        """Raises UsageError for `at_most`."""
        if at_most is not None:
            raise UsageError(
                "run.batches(at_most=...) adds gradients up over several batches, and each local step takes "
                "one: give a smaller batch"
            )
        self.end()  # a loop that was left
        common = (self.kept, self._optimizers, self.gradients, self._process, began)
        self.gradients.steps = MemberRounds(run, self.every, filler_of(numel), *common)
        return self.gradients.steps

    def end(self) -> None:
        if self.gradients.steps is not None:
            self.gradients.steps.end()

    def _whole_sums(self) -> Sum:
        return WholeSums(stats=self._setup.stats)  # what is there all at once
