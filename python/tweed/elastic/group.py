"""The process group of an epoch: its members meet by a store that one of them makes for it.

It is torch's default group. Where a member is several processes, which have the default group among
themselves (`training/sharded_member`), it is one beside that, in which the first process of each is a rank.

a meeting   moved by                                               to
PASSED      the first that all reach cannot be called              CALLED, by the one that it names
CALLED      the first that all reach has a store, and says where   TRIED, by whoever hears of it
TRIED       all members have come                                  the group stands
            a next epoch is known, as a member or a link was lost  none: the meeting of that one follows
            it failed at this process alone                        TRIED again, or the next that is called

Calls of a group that stands fail by themselves when the kernel says that a member is gone. If one is silent,
they would wait for their timeout: they are aborted when the next epoch is known. So it is with a link between
two that others reach: the next group's schedules do without it, and what needs the pair goes through a third.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from tweed.elastic.change import Change, change
from tweed.elastic.control import Control
from tweed.elastic.epoch import Epoch
from tweed.elastic.messages import Meeting
from tweed.errors import DeadlineExceeded, PeerLost
from tweed.exchange.communicator import Wait
from tweed.exchange.engine import GroupRequest
from tweed.exchange.store import open_store, reach_store

log = logging.getLogger("tweed")

#: A group failed though nobody is lost, as when a link broke: after so long its members meet again.
_AGAIN_S = 2.0
#: A meeting that failed here alone is tried again after so long.
_RETRY_S = 0.2
#: A store that has been called to answers in so long.
_STORE_S = 3.0


class Groups:
    """The group of members, made anew for each epoch. See the module.

    Args:
      control: this process among the members.
      timeout_s: of collectives, and of the wait for a group.

    Attributes:
      group: that stands; None: none does.
      change: what has brought its epoch about, as far as this process was in the one before.
    """

    def __init__(self, control: Control, timeout_s: float) -> None:
        self._control, self._timeout_s = control, timeout_s
        self._members: tuple[str, ...] = ()  # of the group that stands; none: it may not be aborted
        self._without: frozenset[frozenset[str]] = frozenset()  # links that it does not use
        self._lives: Mapping[str, int] = {}  # of its members
        self._standing = Lock()
        self._beside = dist.is_initialized()  # there is a default group, of other processes
        self.group: dist.ProcessGroup | None = None
        self._last, self.change = Epoch(0), Change()
        self._meeting = self._tried = Meeting(0, 0, 0, "")  # the last that came about, that was tried
        self._store: Any = None  # of the group, where this process is its rank 0
        control.when_changed(self._changed)  # last: from now on it may be called

    @property
    def epoch(self) -> int:
        """The number of that whose group stands, or stood last; 0: none has."""
        return self._meeting.epoch

    def form(self) -> tuple[str, ...]:
        """Makes the group of the next epoch, in place of the last one. Returns its members' keys, by rank.

        Raises:
          PeerLost, DistError: a member was lost meanwhile: the next one may come about.
          DeadlineExceeded: there is none within the time.
        """
        self.leave()
        wait = Wait()
        epoch, meeting = self._next_meeting()
        self._tried = meeting
        # The members of an epoch meet under its number, so nothing of an old one is taken for theirs.
        place = self._store or reach_store(meeting.host, meeting.port, _STORE_S)
        name = f"epoch {meeting.epoch}.{meeting.attempt}"
        make = _made_beside if self._beside else _made_default
        group = make(
            name,
            _WhileItHolds(PrefixStore(name, place), self._control, meeting),
            (epoch.members.index(self._control.key), len(epoch.members)),
            timedelta(seconds=self._timeout_s),
            # Nothing here goes by wall clocks: one that is set, or a joiner's, may not end the run.
            GroupRequest(compare_clocks=False, missing=epoch.missing, epoch=epoch.number),
        )
        self._meeting, self.group = meeting, group
        self._control.in_group = True
        wait.end()
        self.change, self._last = change(self._last, epoch), epoch
        log.info("epoch %d has %d members. %s", epoch.number, len(epoch.members), self.change.words)
        with self._standing:
            self._members, self._without = epoch.members, epoch.cut
            self._lives = dict(zip(epoch.members, epoch.lives, strict=False))
        self._changed(self._control.epoch)  # the next one may have come while there was nothing to abort
        return epoch.members

    def leave(self) -> None:
        """Ends the group, if there is one."""
        self._control.in_group = False
        with self._standing:
            self._members = ()
        group, self.group = self.group, None
        if group is not None and self._beside:
            dist.destroy_process_group(group)
        elif not self._beside:
            if dist.is_initialized():
                dist.destroy_process_group()
            # Torch names groups by their count, failed ones too: the next has one name at all members.
            dist.distributed_c10d._world.group_count = 0

    def _changed(self, epoch: Epoch) -> None:
        """There is a next epoch: calls that wait for who is lost with it are aborted."""
        with self._standing:
            if breaks(self._members, self._meeting.epoch, epoch, self._without, self._lives):
                self.abort()

    def abort(self) -> None:
        """Ends the calls of the group, if there is one, at all its members."""
        if self.group is not None:
            self.group._get_backend(torch.device("cpu")).abort()

    def _next_meeting(self) -> tuple[Epoch, Meeting]:
        """One of the last epoch has the store, and says where; the others wait for that.

        Who is in no later epoch waits until it is told that the others have gone on without it.
        """
        key, last, tried, self._store = self._control.key, self._meeting, self._tried, None

        def is_called(epoch: Epoch, meeting: Meeting, after: Meeting = last) -> bool:
            is_of = key in epoch.members and meeting.epoch == epoch.number
            return is_of and meeting > after and meeting.port > 0

        def calls(epoch: Epoch, meeting: Meeting) -> bool:
            passed = meeting.epoch == epoch.number and meeting.port == 0
            return (meeting.host if passed else epoch.caller) == key

        def is_next(epoch: Epoch, meeting: Meeting) -> bool:
            return epoch.number > last.epoch and key in epoch.members

        try:
            # Nobody is lost where a call was broken off at a member, and one that has met already calls.
            again = partial(is_called, after=max(last, tried))
            epoch, _ = self._control.wait_for(
                lambda epoch, meeting: (
                    is_next(epoch, meeting) or (again(epoch, meeting) and not calls(epoch, meeting))
                ),
                _AGAIN_S,
            )
        except DeadlineExceeded:
            # Nobody is lost, and all meet again; or there can be no next epoch yet, and they wait for one.
            epoch, _ = self._control.wait_for(
                lambda epoch, meeting: is_next(epoch, meeting) or not self._control.is_paused,
                self._timeout_s,
            )
        while not (calls(epoch, self._control.meeting) and self._control.address):
            if calls(epoch, self._control.meeting):
                self._control.delegate(epoch, self._attempt(epoch))
            if tried > last:  # it failed here; there may be another, or others may still meet there
                with contextlib.suppress(DeadlineExceeded):
                    return self._control.wait_for(partial(is_called, after=tried), _RETRY_S)
            # If who was to call is lost, in the next epoch it may be this one's turn.
            epoch, meeting = self._control.wait_for(
                lambda epoch, meeting: calls(epoch, meeting) or is_called(epoch, meeting), self._timeout_s
            )
            if is_called(epoch, meeting):
                return epoch, meeting
        self._store = open_store(self._control.host)
        # Before others hear of it: whatever comes between, the next one has another number.
        self._tried = Meeting(epoch.number, self._attempt(epoch), self._store.port, self._control.host)
        self._control.call_meeting(self._tried)
        return epoch, self._tried

    def _attempt(self, epoch: Epoch) -> int:
        """The number of the next one to meet in an epoch."""
        told = self._control.meeting
        passed = told.attempt if told.epoch == epoch.number else 0
        return max(passed, self._tried.attempt + 1 if epoch.number == self._tried.epoch else 0)


def _made_default(
    name: str, store: Store, place: tuple[int, int], timeout: timedelta, request: GroupRequest
) -> dist.ProcessGroup:
    """Torch's default group. `place`: this process's rank, and how many there are."""
    rank, size = place
    dist.init_process_group(
        "tweed", store=store, rank=rank, world_size=size, timeout=timeout, pg_options=request
    )
    return dist.distributed_c10d._get_default_group()


def _made_beside(
    name: str, store: Store, place: tuple[int, int], timeout: timedelta, request: GroupRequest
) -> dist.ProcessGroup:
    """One of other processes than the default group's. `new_group` makes groups of the default group's alone,
    so this is what stands beneath it and beneath `init_process_group`."""
    rank, size = place
    make: Any = dist.distributed_c10d._new_process_group_helper
    group: dist.ProcessGroup
    group, _ = make(size, rank, [], "tweed", store, name, request, timeout, group_desc="members")
    dist.distributed_c10d._world.pg_group_ranks[group] = {one: one for one in range(size)}
    return group


class _WhileItHolds(Store):
    """A store for a meeting: when there is a next epoch, because a member was lost before it came, nobody
    waits for that any longer; nor when the members are called to another meeting."""

    def __init__(self, store: Any, control: Control, meeting: Meeting) -> None:
        super().__init__()
        self._store, self._control, self._meeting = store, control, meeting

    def _held(self) -> Any:
        if self._control.epoch.number > self._meeting.epoch:
            raise PeerLost(
                f"epoch {self._meeting.epoch} is over: a member of it was lost before its group was made"
            )
        if self._control.meeting > self._meeting:
            raise PeerLost(f"the members of epoch {self._meeting.epoch} meet once more, elsewhere")
        return self._store

    @property
    def underlying_store(self) -> Any:
        """The store beneath, which torch asks a `PrefixStore` for."""
        return self._store

    def set(self, key: str, value: Any) -> None:
        self._held().set(key, value)

    def get(self, key: str) -> Any:
        return self._held().get(key)

    def check(self, keys: list[str]) -> Any:
        return self._held().check(keys)

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        return self._held().compare_set(key, expected, desired)

    def add(self, key: str, amount: int) -> Any:
        return self._held().add(key, amount)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._held().wait(keys, *(() if timeout is None else (timeout,)))


def breaks(
    members: Sequence[str],
    last: int,
    epoch: Epoch,
    without: Collection[frozenset[str]] = (),
    lives: Mapping[str, int] | None = None,
) -> bool:
    """Whether calls of the group that these members made for epoch `last` may wait for a member that is lost,
    or over a link that it is not `without`. Who is in again as another of its `lives` was lost."""
    unknown = epoch.number > last + 1  # of those between nothing is known
    now = dict(zip(epoch.members, epoch.lives, strict=False))
    replaced = any(now.get(key, life) != life for key, life in (lives or {}).items() if key in members)
    lost = replaced or not set(members) <= set(epoch.members)
    cut = any(pair <= set(members) for pair in epoch.cut - set(without))
    return (lost or cut) and (epoch.broken or unknown)
