"""How the group of the next epoch comes about, and what its members do first.

They meet, and tell each other what they have. Who is cut off from the results of others, or has just begun,
gets the whole state of one that has all; who lacks the last step gets its result. Then all can go on, or form
the last step anew from what they have kept: `tweed.elastic.member` says which.

a group   moved by                                        to
WHOLE     `calls`: those begin that all members make      BROKEN, until they have ended
BROKEN    they have ended here                            WHOLE
          a loss, or any other exception out of them      BROKEN, until there is another group
          `regroup`: all meet                             WHOLE, the next one

A call that was broken off at one member, as by a signal's handler, would be met by the next one of another.
So there is no next one: the group ends at all, and they meet again, in the same epoch if nobody is lost.

Where they called unlike collectives, they tell each other what when they meet. Whose fault it is leaves with
the error, and the others meet once more, without it; if that cannot be told, all end (`unlike`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch.distributed as dist

from tweed.elastic.change import Change
from tweed.elastic.checkpoint import writers
from tweed.elastic.commit import Position, Take
from tweed.elastic.control import Control
from tweed.elastic.epoch import Epoch
from tweed.elastic.group import Groups
from tweed.elastic.local_state import LocalState
from tweed.elastic.member import Standing
from tweed.elastic.messages import Meeting
from tweed.elastic.state import broadcast
from tweed.elastic.unlike import Call, are_over, at_fault, fault
from tweed.errors import Aborted, DeadlineExceeded, Evicted, PeerLost, ShapeMismatch
from tweed.exchange.values import gather

log = logging.getLogger("tweed")

#: What a lost member makes of calls: of tweed's, and of torch's store at rank 0.
LOSSES = (PeerLost, DeadlineExceeded, Aborted, dist.DistError)


class EpochTransition:
    """See the module.

    Args:
      control: this process among the members.
      local: what it has.
      timeout_s: the longest that a collective, or the wait for a next group, may take.
      place: of its checkpoints; empty: it writes none.

    Attributes:
      epochs, changes, members: see `ElasticRun`.
      writers: ranks of those that write parts of a checkpoint.
      is_broken: calls of the group have begun here that have not ended as they should.
    """

    def __init__(self, control: Control, local: LocalState, timeout_s: float, place: str) -> None:
        self._control, self._local, self._place = control, local, place
        self._groups = Groups(control, timeout_s)
        self._is_new = not control.joins  # a founder that has yet to get the state that all begin with
        self.epochs: list[int] = []
        self.changes: list[Change] = []
        self.members: tuple[str, ...] = ()
        self.writers: list[int] = []
        self.is_broken = False
        self._call = Call()  # the last in the group
        self._fault = ""  # why this process cannot go on

    @property
    def epoch(self) -> int:
        """The number of that whose group stands, or stood last; 0: none has."""
        return self._groups.epoch

    @property
    def stands(self) -> bool:
        """There is a group."""
        return self._groups.group is not None

    @property
    def group(self) -> dist.ProcessGroup:
        """The group that stands now."""
        assert self._groups.group is not None  # from `enter` on
        return self._groups.group

    def leave(self) -> None:
        """Ends the group, if there is one."""
        self._groups.leave()

    def abort(self) -> None:
        """Ends the calls of the group, if there is one, at all its members."""
        self._groups.abort()

    @contextmanager
    def calls(self) -> Iterator[None]:
        """A body of calls that all members make. Any exception out of it is an end of the group, at all."""
        self.is_broken = True  # first: while one exception is handled another may come
        try:
            yield
        except LOSSES:
            raise  # the others see so too
        except BaseException as error:
            self.abort()
            if isinstance(error, ShapeMismatch) and self._call.what:  # when they meet they find whose fault
                self._call = replace(self._call, unlike=str(error))
                raise Aborted(str(error)) from None
            raise
        self.is_broken = False

    def call(self, what: str) -> None:
        """This process makes a call next, in a line that is the same at all that make the same."""
        self._call = Call(what, self.epochs[0], self.members)

    def is_in(self, epoch: Epoch, meeting: Meeting) -> bool:
        """This process is a member of it."""
        return self._control.key in epoch.members

    def may_enter(self, epoch: Epoch, meeting: Meeting) -> bool:
        """There is a next epoch, and it holds from this step on, or its members meet already, as the one
        before it broke; if this process is to call them to the meeting, it does."""
        if epoch.number <= self.epoch or not self.is_in(epoch, meeting):
            return False
        member = self._local.member
        calls = epoch.caller == self._control.key and member.behind
        holds = member.steps_done >= self._control.holds_from(self.epoch)
        return calls or holds or meeting.epoch == epoch.number

    def regroup(self) -> None:
        """The group of the next epoch, after a loss; returns when its members know what to do first.

        Raises: ShapeMismatch: members called unlike collectives, which is this one's fault, or may be.
        """
        while True:
            if self._fault:
                raise ShapeMismatch(self._fault)
            try:
                self.abort()  # others may wait in what was broken off here
                with self.calls():
                    self.enter()
                return
            except LOSSES as error:
                ends = isinstance(error, DeadlineExceeded) and not self.stands
                if ends or isinstance(error, Evicted):
                    raise

    def enter(self) -> None:
        """As `regroup`, once, within `calls`. Raises: `LOSSES`."""
        members = self.members = self._groups.form()
        self.epochs.append(self.epoch)
        self.changes.append(self._groups.change)
        member = self._local.member
        standing = member.standing(cut_off=self._control.cut_off)
        own = (standing, self._place, self._is_new, self._call)
        given = gather(self.group, own, classes=(Standing, Position, Call))
        standings: dict[int, Standing] = {rank: standing for rank, (standing, *_) in enumerate(given)}
        self._judge({rank: call for rank, (*_, call) in enumerate(given)})
        self.writers = writers([place for _, place, *_ in given])
        plan = member.enter(members, standings)
        giver, takers = member.cut_off(standings)
        if takers:
            log.warning(
                "ranks %s get the whole state from rank %d: members waited for others to come, or who gave "
                "them results was lost",
                takers,
                giver,
            )
        self._give_whole(giver, takers)
        if isinstance(plan, Take):
            self._take(plan, takers, standings[plan.giver].where)
        self._found([is_new for _, _, is_new, _ in given], standings)
        self._control.entered(members, behind=self._local.member.behind)

    def _take(self, plan: Take, have_all: Sequence[int], where: Sequence[int]) -> None:
        """Who lacks the last step gets its result, and where the giver's steps are with it.

        Args:
          have_all: ranks that have just got the whole state.
        """
        rank, commit = self.group.rank(), self._local.member.commit
        takes = rank in plan.takers and rank not in have_all
        kept = commit.contribution if takes else commit.result
        assert kept is not None  # all have contributed to a step that counts anywhere, or were given its like
        result = kept.clone()
        dist.broadcast(result, group=self.group, group_src=plan.giver)
        if takes:
            self._local.take(result, where)

    def _found(self, new: Sequence[bool], standings: Mapping[int, Standing]) -> None:
        """Founders begin with the state of one of them: rank 0's, or that with which others have begun."""
        able = [rank for rank, standing in standings.items() if not standing.behind]
        giver = min(able, key=lambda rank: (new[rank], rank))
        self._give_whole(giver, [rank for rank, is_new in enumerate(new) if is_new and rank != giver])
        self._is_new = False

    def _give_whole(self, giver: int, takers: Sequence[int]) -> None:
        """Some get the whole state of another member, while all wait."""
        if not takers:
            return
        rank = self.group.rank()
        own, own_bytes = self._local.now if rank == giver else None, self._local.kept.now.bytes
        state = broadcast(own, self.group, giver, own_bytes)
        if rank in takers:
            self._local.replace(state)

    def _judge(self, calls: Mapping[int, Call]) -> None:
        """Members called unlike collectives in the last group, or did not.

        Raises: PeerLost: some of them go, of which this process may be one.
        """
        if are_over(calls, self.members):
            self._call = Call()
            return
        odd = at_fault(calls)
        text = fault(calls, odd)
        if odd and self.group.rank() not in odd:
            log.warning(text)
            raise PeerLost(text)
        self._fault = text
        if odd:
            self._groups.leave()
            self._control.part()
        raise PeerLost(text)
