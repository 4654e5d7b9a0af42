"""Steps that count for all members or for none, while some are lost.

A step is a sum over all members' contributions. If it fails because a member is lost, the survivors wait for
the next epoch, form its group in the same processes, and compare what they have (`tweed.exchange.commit`):
who lacks the last step takes its result, or the step is summed anew when the samples of the lost are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from tweed.data.sampler import Deal, Sampler
from tweed.elastic.control import Control, Epoch, Meeting
from tweed.errors import DeadlineExceeded, PeerLost, TweedError
from tweed.exchange.commit import Commit, Position, Take, compare

#: A group failed though nobody is lost, as when a link broke: after so long its members meet again.
_AGAIN_S = 2.0
#: What a lost member makes of calls: of tweed's, and of torch's store at rank 0.
_LOSSES = (PeerLost, DeadlineExceeded, dist.DistError)
#: To whom the samples of a step were dealt: its members, and then survivors after each loss.
_History = tuple[tuple[str, ...], ...]


class ElasticRun:
    """See above. Uses torch's default process group, which it makes anew.

    Args:
      control: this process among the members.
      sampler: whose batch is that of all members together.
      timeout_s: the longest that a collective, or the wait for a next group, may take.

    Attributes:
      epochs: numbers of those whose group this process was in.
    """

    def __init__(self, control: Control, sampler: Sampler, timeout_s: float = 60.0) -> None:
        self._control, self._sampler, self._timeout_s = control, sampler, timeout_s
        self._commit, self._given = Commit(), 0  # steps that the caller has
        self._meeting = Meeting(0, 0, 0, "")
        self._store: Any = None  # of the group, where this process is its rank 0
        self._members: tuple[str, ...] = ()
        self._history: _History = ()
        self._computed: tuple[int, ...] = ()
        self.epochs: list[int] = []
        self._regroup()

    def step(self, gradient: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """The mean gradient over the samples of the next step, `[numel]`: the same bits at all members.

        Args:
          gradient: the sum of the gradients of these samples at the parameters as they are, `[numel]`; called
            again within a step for samples of lost members, and with none if there are more members than
            samples.

        Raises:
          PeerLost: the others have gone on without this process.
          DeadlineExceeded: there is no next group within the time; the text says who is missing.

        Cost: an all-reduce of `numel + 1`. Keeps two copies of the gradient.
        """
        while self._commit.counted == self._given:
            try:
                self._contribute(gradient)
                self._sum()
            except _LOSSES:
                self._regroup()
        self._given += 1
        assert self._commit.result is not None  # of the step that just counted
        return self._commit.result

    def finish(self) -> None:
        """All members have the last step. Ends the group; `Control.close` ends the links."""
        while True:
            try:
                dist.barrier()
                break
            except _LOSSES:
                self._regroup()
        _leave()

    @property
    def _deal(self) -> Deal:
        deal = self._sampler.deal(self._history[0])
        for survivors in self._history[1:]:
            deal = deal.again(survivors)
        return deal

    def _contribute(self, gradient: Callable[[Sequence[int]], Tensor]) -> None:
        """Computes what is not computed of this process's share."""
        deal = self._deal
        places = tuple(place for place in deal.share(self._control.key) if place not in self._computed)
        if places or self._commit.contribution is None:
            total = gradient(self._sampler.order.samples(places))
            self._commit.contribute(deal.step, total, len(places))
            self._computed += places

    def _sum(self) -> None:
        assert self._commit.contribution is not None  # it was just made
        flat = torch.cat(
            [self._commit.contribution, self._commit.contribution.new_tensor([self._commit.samples])]
        )
        dist.all_reduce(flat)
        came, dealt = int(flat[-1]), len(self._deal.places)
        if came != dealt:
            raise TweedError(
                f"step {self._given} sums {came} samples of {dealt}: members differ in what was dealt"
            )
        self._count(flat[:-1] / came)

    def _count(self, result: Tensor) -> None:
        deal = self._deal
        self._commit.count(deal.step, result)
        self._sampler = self._sampler.counted(deal)
        self._history, self._computed = (self._members,), ()
        self._control.step(self._commit.counted)

    def _regroup(self) -> None:
        """The group of the next epoch; returns when its members have one state."""
        while True:
            _leave()
            try:
                self._meet()
                self._compare()
                return
            except _LOSSES as error:
                if isinstance(error, DeadlineExceeded) and not dist.is_initialized():
                    raise

    def _meet(self) -> None:
        epoch, meeting = self._next_meeting()
        # The members of an epoch meet under its number, so nothing of an old one is taken for theirs.
        place = TCPStore(meeting.host, meeting.port, is_master=False) if self._store is None else self._store
        name = f"epoch {meeting.epoch}.{meeting.attempt}"
        dist.init_process_group(
            "tweed",
            store=PrefixStore(name, place),
            rank=epoch.members.index(self._control.key),
            world_size=len(epoch.members),
            timeout=timedelta(seconds=self._timeout_s),
        )
        self._meeting, self._members = meeting, epoch.members
        self.epochs.append(epoch.number)

    def _next_meeting(self) -> tuple[Epoch, Meeting]:
        """Rank 0 of the last epoch has the store, and says where; the others wait for that."""
        last, self._store = self._meeting, None
        try:
            epoch, _ = self._control.wait_for(lambda epoch, _: epoch.number > last.epoch, _AGAIN_S)
        except DeadlineExceeded:
            epoch = self._control.epoch
        if epoch.members[0] != self._control.key:
            return self._control.wait_for(
                lambda epoch, meeting: meeting > last and meeting.epoch == epoch.number, self._timeout_s
            )
        self._store = TCPStore(self._control.host, 0, is_master=True, wait_for_workers=False)
        attempt = last.attempt + 1 if epoch.number == last.epoch else 0
        meeting = Meeting(epoch.number, attempt, self._store.port, self._control.host)
        self._control.call_meeting(meeting)
        return epoch, meeting

    def _compare(self) -> None:
        """Survivors tell each other what they have, and end in one state."""
        states: list[tuple[Position, _History] | None] = [None] * len(self._members)
        dist.all_gather_object(states, (self._commit.position, self._history))
        known = [state for state in states if state is not None]
        plan = compare({rank: position for rank, (position, _) in enumerate(known)})
        if isinstance(plan, Take):
            self._take(plan)
        most = max(position.counted for position, _ in known)
        histories = [history for position, history in known if position.counted == most]
        self._history = max(histories, key=len)
        if not self._history or self._history[-1] != self._members:
            self._history += (self._members,)

    def _take(self, plan: Take) -> None:
        """Who lacks the last step gets its result."""
        takes = dist.get_rank() in plan.takers
        kept = self._commit.contribution if takes else self._commit.result
        assert kept is not None  # all have contributed to a step that counts anywhere
        result = kept.clone()
        dist.broadcast(result, src=plan.giver)
        if takes:
            self._count(result)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
