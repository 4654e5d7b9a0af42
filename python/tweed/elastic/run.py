"""Steps that count for all members or for none, while some are lost and others join.

A step is a sum over all members' contributions. If it fails because a member is lost, the survivors wait for
the next epoch, form its group in the same processes, and tell each other what they have
(`tweed.elastic.member`): who lacks the last step takes its result, or the step is summed anew when the
samples of the lost are in it. A joiner has a copy of the members' state, and takes the results of their
steps from them until it is let in (`tweed.elastic.state_to_joiner`); its loop is the one that they have.

`tweed.attach(elastic=...)` drives it from hooks on a model; `step` is for a loop that has its gradients flat.
"""

from __future__ import annotations

import logging
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import Tensor

from tweed.data.sampler import Sampler
from tweed.elastic.checkpoint import Checkpoints
from tweed.elastic.control import Control
from tweed.elastic.epoch import Epoch
from tweed.elastic.epoch_transition import LOSSES, EpochTransition
from tweed.elastic.local_state import LocalState
from tweed.elastic.member import Ahead, Member
from tweed.elastic.messages import Meeting
from tweed.elastic.results import Results
from tweed.elastic.state import Stateful
from tweed.elastic.sums import Sum, WholeSums
from tweed.errors import Aborted, Left, ShapeMismatch
from tweed.exchange.engine import settings
from tweed.exchange.finite import is_finite
from tweed.exchange.values import gather

log = logging.getLogger("tweed")


class ElasticRun:
    """See above. Makes torch's default process group, anew for each epoch; or one beside it, if there is one.

    Args:
      control: this process among the members.
      sampler: whose batch is that of all members together, or of each; the same at all.
      keep: what all members have in the same state, such as a model and an optimizer: joiners get a copy.
      timeout_s: the longest that a collective, or the wait for a next group, may take.
      checkpoints: where it goes on from, if one is there, and writes what is kept, each member its part.
      check_every: so many steps apart members compare what they keep, byte by byte by a digest; 0: never.
      terms: what else all must have alike, a line each.
      total: sums contributions over the members of the group; None: an all-reduce of them as they are.

    Attributes:
      epochs: numbers of those whose group this process was in.
      changes: what has brought each of them about.
      paused_s: seconds in which it had no next group to go on with, those of the sums that broke included.
      told: once all members are at the end, what each has told in `finish`, by rank.

    Raises:
      UsageError: the members have other samples or another batch, or nothing that a joiner could get.
      ShapeMismatch: the members have other terms.
      PeerLost: a joiner cannot join, and why.
    """

    def __init__(  # noqa: PLR0913 - options of a user, by their names
        self,
        control: Control,
        sampler: Sampler,
        keep: Mapping[str, Stateful] | None = None,
        timeout_s: float = 60.0,
        check_every: int = 0,
        checkpoints: Checkpoints | None = None,
        terms: Sequence[str] = (),
        total: Sum | None = None,
    ) -> None:
        self._control, self._timeout_s = control, timeout_s
        self._check_every, self._checkpoints = check_every, checkpoints
        self._total = total or WholeSums()
        self._local = LocalState(control, Results(keep or {}, terms), sampler)
        place = "" if checkpoints is None else checkpoints.place
        self._transition = EpochTransition(control, self._local, timeout_s, place)
        self.epochs, self.changes = self._transition.epochs, self._transition.changes
        self.paused_s, self._since = 0.0, time.monotonic()
        self.told: list[Any] = []
        self._begun = -1  # the step before which this process, as rank 0, has done what comes first
        self._wrote = (0, 0)  # the step and the epoch of which this process has written its part
        self._offered = -1  # the step at whose begin this process has copied what joiners were to get
        self._checked = (-1, 0)  # the step and the group at which members have compared what they keep
        self._follows = False  # this joiner takes what others give
        control.begin([*settings(), f"check_every {check_every}", f"objects {sorted(keep or {})}", *terms])
        if control.joins:
            self._copy()
            return
        if checkpoints is not None:
            with suppress(OSError):  # it may be read, and not written
                checkpoints.finish()
        self._local.found(None if checkpoints is None else checkpoints.load(), secrets.token_hex(4))
        self._transition.regroup()

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the last epoch whose group this process was in: keys in the order of their ranks."""
        return self._transition.members

    @property
    def _member(self) -> Member:
        return self._local.member

    @property
    def steps_done(self) -> int:
        """Steps that the caller's model has in it. A joiner begins with those that it was given, and may be
        given a later state when a member is lost while it follows: best is `while run.steps_done < n`."""
        return self._local.step.steps

    @property
    def counted(self) -> int:
        """The name that `steps_done` had before."""
        return self.steps_done

    def begin_step(self) -> None:
        """A step of the caller's begins that may take several means, all over the same samples: those until
        this is called again. Each of them counts for all members or for none. Who joins meanwhile gets what
        is kept as it is now, and then the same means. Not with a batch per member.

        Cost: a copy of what is kept, and the means stay in memory until the step is over.
        """
        self._local.begin_step()

    @property
    def replaced(self) -> bool:
        """This joiner was cut off within a step of its caller's, which has no means any more: it gets a
        later state when it begins another one."""
        return self._local.step.is_held

    def revert(self) -> None:
        """What is kept becomes as it was when the caller's step began, as that does not count here."""
        self._local.step.revert()

    def step(
        self, gradient: Callable[[Sequence[int]], Tensor], first: Callable[[], None] | None = None
    ) -> Tensor:
        """The mean gradient over the samples of the next step, `[numel]`: the same bits at all members; in
        float32 where the gradient has a shorter type.

        Args:
          gradient: the sum of the gradients of these samples at the parameters as they are, `[numel]`; called
            again within a step for samples of lost members, and with none if there are more members than
            samples. Not called where the step's result is taken from others.
          first: what is to be done once with the model as it is, such as a file: rank 0 of the epoch calls it
            before it contributes; if it is lost before the step counts, the next rank 0 does.

        Raises:
          Evicted: the others have gone on without this process; started again, it may join.
          PeerLost: it cannot join, and why.
          Left: this process was to leave, and is out; its model has all steps in it that are counted here.
          DeadlineExceeded: there is no next group within the time; the text says who is missing.
          ShapeMismatch: members keep other bytes, or called unlike collectives, and this one differs from
            most, or came last; it has left, and the others go on. If it cannot be told, all raise it.

        Cost: an all-reduce of `numel + 1`. Keeps two copies of the gradient, and has a third while that is
        summed. With a joiner under way, a
        copy of this member's part of the state, and each step sends its part of the result.
        """
        while (samples := self.due(first)) is not None:
            self.contribute(gradient(samples).clone())  # it may be one tensor each time
        return self._local.result(copied=True)

    def due(self, first: Callable[[], None] | None = None) -> list[int] | None:
        """Goes on to where this process has samples to compute; None: the next step counts, see `result`.

        Returns: of its share, what is not computed yet, for `contribute`. The list is empty if there are more
          members than samples: it contributes zero then, once.

        Raises: see `step`.
        """
        local = self._local
        self._member.repeat(local.step.is_within)
        if self._follows:  # it was broken off here, and what came may be lost
            self._control.cut_short()
            self._follows = False
        while not local.step.is_held and self._member.steps_done == local.given:
            if self._transition.is_broken:
                self._stop_sum()
                self._transition.regroup()
                self._paused()
                continue
            if self._control.is_out(local.given, self._transition.epoch):
                self._leave()
                raise Left(f"this process has left with {local.given} steps")
            if self._offered != local.given:
                self._control.give_state(local.given, lambda: local.now)
                self._offered = local.given
            if self._member.behind:
                self._follow()
                continue
            self._since, samples = time.monotonic(), None
            # An error has hold of what was to be summed, and ends here.
            with suppress(*LOSSES), self._transition.calls():
                samples = self._go_on(first)
            if samples is not None and not self._transition.is_broken:
                return samples
        return None

    def _go_on(self, first: Callable[[], None] | None) -> list[int] | None:
        """The step counts; or there are samples to compute before."""
        transition = self._transition
        if transition.may_enter(self._control.epoch, self._control.meeting):
            self._stop_sum()
            transition.enter()
            self._paused()
        if not self._local.step.is_within:
            self._check()
            if self._checkpoints is not None and self.steps_done % self._checkpoints.every == 0:
                self._write(self._checkpoints)
        self._begin(first)
        if (samples := self._member.samples()) is not None:
            if self._total.stop():
                raise Aborted("the sum of a step had begun, and its contribution was broken off")
            return samples
        contribution, samples_in_it = self._member.contribution
        self._calls_sum(contribution)
        self._local.summed(self._total(contribution, samples_in_it, *self._sum_of))
        return None

    def _stop_sum(self) -> None:
        """This process goes on to another group: others may wait for it in what has begun in this one, and
        hear so."""
        if self._total.stop():
            self._transition.abort()

    def _leave(self) -> None:
        self._stop_sum()
        self._transition.leave()

    @property
    def _sum_of(self) -> tuple[dist.ProcessGroup, int, int]:
        """What a sum belongs to: the group, the step, and how many groups there were."""
        return self._transition.group, self._local.given, len(self.epochs)

    def _calls_sum(self, contribution: Tensor) -> None:
        """Its next call is that."""
        what = f"{contribution.numel()} values of {contribution.dtype}"
        self._transition.call(f"the sum of step {self._local.given}, {what}")

    def _paused(self) -> None:
        now = time.monotonic()
        self.paused_s, self._since = self.paused_s + now - self._since, now

    def start(self, contribution: Tensor, ready: int) -> None:
        """The first `ready` values of what is to be contributed, `[numel]`, are there, and stay as they are:
        their sum begins, beside what is still computed. Only of a contribution with all samples that are due;
        `contribute` has it whole."""
        if self._member.commit.contribution is None and not self._transition.is_broken:
            with suppress(*LOSSES), self._transition.calls():  # `due` finds it broken then
                self._calls_sum(contribution)
                self._total.start(contribution, ready, *self._sum_of)

    def contribute(self, total: Tensor, samples: int | None = None) -> None:
        """The sum of the gradients of the first `samples` of those that are due, `[numel]`; None: of all.
        It is kept as it is until the step counts, so it must stay so."""
        self._local.contribute(total, samples)

    def result(self) -> Tensor:
        """The mean of the step that has come to count, `[numel]`: the caller's model has it from now on.
        It may yet be given to others, so it must stay as it is.

        Raises: UsageError before `due` has given None.
        """
        return self._local.result()

    def is_finite(self, numel: int) -> bool:
        """Whether the first so many values of the last result are."""
        result = self._member.commit.result
        return result is None or is_finite(result[:numel])

    def leave(self) -> None:
        """This process leaves in good order: it takes part until an epoch without it holds, a few steps
        later, so that no step is broken; then `step` raises `Left`. A signal's handler may call it.

        It has to stay, and says why in the log, while fewer than the minimum would be left.
        """
        self._control.leave()

    def leaving_on(self, *signals: signal.Signals) -> AbstractContextManager[None]:
        """A body that the first of these signals lets leave in good order: it ends when this process is out.

        A second one does what it did before. Only in the main thread.

        Example:
          with run.leaving_on(signal.SIGTERM):
              while run.steps_done < steps:
                  ...  # run.step and the optimizer's
        """

        return leaving(self.leave, *signals)

    def finish(self, first: Callable[[], None] | None = None, tell: Any = None) -> None:
        """All members have the last step, a checkpoint of it is written, and rank 0 has done what is `first`,
        as in `step`. Ends the group; `Control.close` ends the links.

        Args:
          tell: what this member says at the end, a small plain value, for `told`.
        """
        self._local.end_step()
        with suppress(Left):
            if self._transition.is_broken and not self._member.behind:
                self._transition.regroup()
            while self._transition.stands and not self._member.behind:
                with suppress(*LOSSES), self._transition.calls():
                    if self._checkpoints is not None:
                        self._write(self._checkpoints)
                        self._checkpoints.wait()
                    self.told = self._gathered("the end of the loop", tell)
                    self._begin(first)
                    dist.barrier(self._transition.group)
                    break
                self._transition.regroup()
        if self._checkpoints is not None:
            self._checkpoints.wait()  # who has left may have a part to write
        self._transition.leave()

    @property
    def samples(self) -> dict[str, int]:
        """What all members must have alike of the samples, as `Sampler.samples` has it."""
        return self._member.sampler.samples

    @property
    def position(self) -> dict[str, Any]:
        """Where the steps are in which samples, as `Sampler.position` has it."""
        return self._member.sampler.position

    @property
    def ahead(self) -> Ahead:
        """This process's samples in the next step, what it has yet to compute, and in those behind it, if no
        member comes or goes; without end."""
        return self._member.ahead

    def close(self) -> None:
        """Ends the group, also after a failure."""
        self._leave()

    def _begin(self, first: Callable[[], None] | None) -> None:
        """Rank 0 does what is to be done once before the next step."""
        if first is not None and self._transition.group.rank() == 0 and self._begun != self._local.given:
            first()
            self._begun = self._local.given

    def _write(self, checkpoints: Checkpoints) -> None:
        """This member's part of a checkpoint; another one where the members have changed since."""
        transition = self._transition
        now, rank, ranks = (self.steps_done, transition.epoch), transition.group.rank(), transition.writers
        if self.steps_done > 0 and self._wrote != now and rank in ranks:
            written = (transition.epoch, self._local.kept.run)
            checkpoints.write(self.steps_done, ranks.index(rank), len(ranks), self._local.now, written)
            self._wrote = now

    def _check(self) -> None:
        """Members have the same bytes."""
        now = (self.steps_done, len(self.epochs))
        if self._check_every == 0 or self.steps_done % self._check_every != 0 or self._checked == now:
            return
        self._checked = now
        (digest,) = self._local.kept.now.digests()
        self._gathered(f"a check of what it keeps, whose digest is {digest.hex()},", None)

    def _gathered(self, what: str, value: Any) -> list[Any]:
        """What each member has for this, by rank. Raises: ShapeMismatch if another one is elsewhere."""
        self._transition.call(call := f"{what} with {self.steps_done} steps")
        found = gather(self._transition.group, (call, value))
        if any(theirs != call for theirs, _ in found):
            raise ShapeMismatch("they are at different points of their loops, or keep other bytes")
        return [value for _, value in found]

    def _copy(self) -> None:
        """This joiner gets the members' state. Where they count no steps until others come, it is let in
        without, and gets it from one of them while all wait."""
        until, state, transition = time.monotonic() + self._timeout_s, None, self._transition
        own_bytes = self._local.kept.now.bytes
        while state is None:
            state = self._control.take_state(own_bytes, max(0.0, until - time.monotonic()))
            if state is None and not self._control.must_ask_again:
                with transition.calls():
                    self._local.join(None)
                    self._control.wait_for(transition.is_in, self._timeout_s, "epoch with this process")
                transition.regroup()
                return
        self._local.join(state)

    def _follow(self) -> None:
        """This joiner takes the next step's result from the others, or enters the epoch that lets it in."""
        self._follows = True
        if self._control.must_ask_again:
            self._copy()
        else:
            self._take_next()
        self._follows = False

    def _take_next(self) -> None:
        results: list[tuple[Tensor, Sequence[int]]] = []
        like = self._member.commit.result
        assert like is not None  # it was given

        def come(epoch: Epoch, meeting: Meeting) -> bool:
            replays, at = self._local.step.replays, self._member.steps_done
            found = replays.popleft() if replays else self._control.take_result(at, like)
            results.extend([] if found is None else [found])
            may_enter = self._transition.may_enter(epoch, meeting)
            return bool(results) or may_enter or self._control.must_ask_again

        what = f"result of step {self._member.steps_done}, and no epoch with this process"
        self._control.wait_for(come, self._timeout_s, what)
        if self._control.must_ask_again:
            self._copy()
        elif results:
            self._local.follow(*results[0])
            if not self._member.behind:
                self._control.entered(self.members, behind=False)
        else:
            self._transition.regroup()


@contextmanager
def leaving(leave: Callable[[], None], *signals: signal.Signals) -> Iterator[None]:
    """A body within which the first of these signals calls `leave`; `ElasticRun.leaving_on` describes it."""

    def asked(number: int, frame: FrameType | None) -> None:
        log.warning("%s: leaving in good order; once more ends this process", signal.Signals(number).name)
        restore()
        leave()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    before = {number: signal.signal(number, asked) for number in signals}
    try:
        with suppress(Left):
            yield
    finally:
        restore()
