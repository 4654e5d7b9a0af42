"""Links between all members, and who is in: a thread drives the `MemberNode` of this process.

Two threads use a `Control`: one trains, and calls what is public; `tweed-members` drives the links. Shared:

    under `_lock`                 _transfers, _meetings, _discovery (which says what is the driver's alone),
                                  _noted, _hold_from, _stepped, _waits_for, _failed
    by locks of their own         _node and _links, which are Rust's; _turns, a queue
    assigned by who trains        in_group, _leaves, _closed, _ticks, _when_changed: read a tick later
    changed by the driver alone   _member_links: the other one looks a key up, and sends
    as it was made                key, address, elastic, joins, _thread

`_lock` is not held while one of them waits, while a donor forms digests, or while `_when_changed` is called.
Both wait in C alone: a signal's handler that raises within a `Condition` may leave its lock taken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import RLock, Thread
from typing import Any

from torch import Tensor

from tweed import _core
from tweed.elastic.discovery import Discovery
from tweed.elastic.epoch import Epoch
from tweed.elastic.join_transfers import JoinTransfers
from tweed.elastic.member_links import TICK_S, MemberLinks
from tweed.elastic.messages import CHUNK, Candidate, Chunk, Hello, Known, Meeting, Meetings, packed, read
from tweed.elastic.settings import Elastic
from tweed.elastic.state import State
from tweed.elastic.state_to_joiner import mark_of
from tweed.elastic.terms import shortened
from tweed.errors import DeadlineExceeded, Evicted, Left, PeerLost, TweedError

log = logging.getLogger("tweed")

_NEVER = 1 << 63
#: A step is under way for so long, and there can be no next epoch: it may wait for who is lost.
_LATE_S = 2.0
#: Others need so long at most to go on without one that leaves while no step is under way.
_PART_S = 5.0


class Control:
    """One process among the members. See the module; `start` and `join` make it.

    Args:
      links: to the others.
      node: of this process.
      linked: by number of a link, the key at its other end; and where each process is called.
      early: what has happened on the links already.
      address: of this process.
      elastic: what holds for all members.

    Attributes:
      key: of this process.
      address: "host:port" that joiners call; empty: nobody can.
      joins: it is a joiner that has yet to be let in.
      in_group: the group of an epoch stands, so steps may count.
    """

    def __init__(
        self,
        links: _core.HubLinks,
        node: _core.MemberNode,
        linked: tuple[Mapping[int, str], Mapping[str, str]],
        early: list[Any],
        address: str,
        elastic: Elastic,
    ) -> None:
        self.key, self.address, self.elastic = links.key, address, elastic
        self.joins = node.epoch() is None
        self._links, self._node = links, node
        self._member_links = MemberLinks(
            links, node, linked[0], self._heard, self._lost, turned=self._note_epoch
        )
        self._discovery = Discovery(self._member_links, elastic, dict(linked[1]) | {self.key: address})
        self._meetings, self._stepped = Meetings(), time.monotonic()
        self._known = Epoch.of(node.epoch())
        self._lock, self._closed, self._ticks = RLock(), False, not self.joins
        self._turns = SimpleQueue[None]()  # has something: a turn has ended that none has waited for
        given = elastic.joiner_mbit
        self._transfers = JoinTransfers(links.key, None if given is None else given * 1e6 / 8)
        self._transfers.terms = None  # until a run says them
        self._leaves, self._waits_for, self.in_group = False, "", False
        self._noted, self._hold_from = 0, dict[int, int]()  # the last epoch; by number, from which step
        self._failed: BaseException | None = None
        self._when_changed: Callable[[Epoch], None] = lambda epoch: None
        for link, what in early:
            self._member_links.handle(link, what)
        self._thread = Thread(target=self._run, name="tweed-members", daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        """The host at which others reach this process."""
        return self.address.rpartition(":")[0]

    @property
    def epoch(self) -> Epoch:
        """The last one that this process knows."""
        if self._known.number != self._node.epoch_number():
            self._known = Epoch.of(self._node.epoch())
        return self._known

    @property
    def is_paused(self) -> bool:
        """No step counts, and there can be no next epoch, until others come."""
        return not self.in_group and self._node.standing()[0] == "waiting"

    @property
    def meeting(self) -> Meeting:
        """The last one that was called, of no later epoch than this process knows."""
        with self._lock:
            return self._meetings.last(self._node.epoch_number())

    def begin(self, terms: Sequence[str]) -> None:
        """A run begins: what all its members must hold alike, a line each. A joiner that holds something else
        is refused before it is in any epoch."""
        with self._lock:
            self._transfers.begin(shortened(terms), self._discovery.members(self.epoch))

    def step(self, step: int) -> None:
        """This step is the next that is not counted."""
        self._node.step(step)
        with self._lock:
            self._stepped = time.monotonic()
            self._transfers.step(step)

    def when_changed(self, call: Callable[[Epoch], None]) -> None:
        """Has this called with each next epoch, by the thread of the links: so it must not wait."""
        self._when_changed = call

    def leave(self) -> None:
        """Says to all that this process leaves; it is a member until an epoch without it holds."""
        self._leaves = True
        self._node.leave()

    def part(self) -> None:
        """Leaves, and ends the links when the others have gone on, or after some seconds."""
        self.leave()
        with suppress(TweedError):
            self.wait_for(lambda epoch, meeting: False, _PART_S)
        self.close(0.0)

    def is_out(self, step: int, group: int) -> bool:
        """It leaves, and at this step its group, of epoch `group`, is over, and none follows that it is in.
        Logs what keeps it in."""
        is_in = self.key in self.epoch.members
        if self._leaves and is_in:
            self._tell("cannot leave yet", self._node.standing()[1])
        return self._leaves and not is_in and (group == 0 or step >= self.holds_from(group))

    def holds_from(self, group: int) -> int:
        """The step from which there is a later epoch than `group`. Of several the first counts: so all leave
        their group at the same step, though some may not know of the last one yet."""
        with self._lock:
            self._hold_from = {number: step for number, step in self._hold_from.items() if number > group}
            return min(self._hold_from.values(), default=_NEVER)

    def call_meeting(self, meeting: Meeting) -> None:
        """Says where the group of an epoch meets to all members."""
        with self._lock:
            self._note(meeting)

    def delegate(self, epoch: Epoch, attempt: int) -> None:
        """This process is to call the others of an epoch to a meeting, and nobody can call it: another one
        does so, the first that can be called, of those that all reach if there is such.

        Raises: PeerLost if there is none.
        """
        with self._lock:
            self._note(Meeting(epoch.number, attempt, 0, self._discovery.listener(epoch)))

    def wait_for(
        self,
        condition: Callable[[Epoch, Meeting], bool],
        timeout_s: float,
        what: str = "next group of members",
    ) -> tuple[Epoch, Meeting]:
        """Waits until the last epoch and the last meeting fulfil it.

        Args:
          what: is waited for, in words.

        Raises:
          Evicted: the others have gone on without this process; it says what to do.
          Left: so they have, as it was to leave.
          PeerLost: this joiner is linked to nobody any more.
          DeadlineExceeded: it took too long; says why, if there is no next epoch.
        """
        until = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if self._failed is not None:
                    text = "the thread that drives the links to members has failed"
                    raise TweedError(text) from self._failed
                epoch = self.epoch
                meeting = self._meetings.last(epoch.number)
                standing, why = self._node.standing()
                if self._leaves and self.key not in epoch.members:
                    raise Left(f"this process has left, and the others go on in epoch {epoch.number}")
                if standing == "evicted":
                    raise Evicted(
                        f"the others have gone on without this process, in epoch {epoch.number}: it was not "
                        "heard for a second. Start it again to join them"
                    )
                if condition(epoch, meeting):
                    return epoch, meeting
                if self.joins and self._noted == 0:  # it is in no epoch yet
                    self._discovery.reached()
                self._tell("waiting for members", why)
                if time.monotonic() >= until:
                    raise DeadlineExceeded(
                        f"no {what} within {timeout_s:.3g} s. {why or f'This process: {standing}'}"
                    )
            self._turn_ends()

    def _turn_ends(self) -> None:
        """Waits until its thread has done what was due, for a tick at most."""
        with suppress(Empty):
            self._turns.get(timeout=TICK_S)

    def give_state(self, step: int, state: Callable[[], State]) -> None:
        """This step begins: copies what joiners are to get of the state.

        Digests are formed before others have to wait for this process: heartbeats leave meanwhile.
        """
        with self._lock:
            numbers = self._transfers.donors_at(step)
        if numbers:
            found = state()
            for donors in numbers:
                found.digests(donors)
            state = lambda: found  # noqa: E731 - with its digests
        with self._lock:
            self._transfers.give_state(step, state, time.monotonic())

    def give_result(self, step: int, result: Tensor, where: Sequence[int]) -> None:
        """This step counts, with this result, `[numel]`, and the steps are there then, as `Sampler.where` has
        it: joiners get both."""
        # No digest of it is formed under the lock that heartbeats need; who is no donor yet needs none.
        mark = mark_of(result, where) if self._gives else 0
        with self._lock:
            self._transfers.give_result(step, result, where, mark, time.monotonic())
        if self._gives:
            self._links.wake()

    @property
    def _gives(self) -> bool:
        """Something is kept for a joiner."""
        with self._lock:
            return self._transfers.gives

    def entered(self, members: tuple[str, ...], *, behind: bool) -> None:
        """All of these have entered their epoch; `behind`: this one has yet to take results."""
        with self._lock:
            self._transfers.entered(members)
            if not behind:
                self._transfers.is_in()

    def take_state(self, own_bytes: int, timeout_s: float) -> State | None:
        """Asks for a copy of the state, and waits for it; None: this attempt has failed, or this process is
        to be let in first (`must_ask_again` is false then).

        Args:
          own_bytes: of what it is copied into.

        Raises:
          PeerLost: it was refused for good, and why.
          DeadlineExceeded: it did not come in time.
        """
        with self._lock:
            self._transfers.ask(self._discovery.reached(), own_bytes)
        found: list[State] = []

        def come(epoch: Epoch, meeting: Meeting) -> bool:
            state = self._transfers.state()
            found.extend([] if state is None else [state])
            return bool(found) or self._transfers.refused is not None

        self.wait_for(come, timeout_s, "copy of the state of members, which give it while they count steps,")
        with self._lock:
            self._ticks = self._ticks or self._transfers.asks_in
            refused = self._transfers.refused
        if not found and refused is not None and refused.final:
            raise PeerLost(f"this process cannot join: {refused.reason}")
        return found[0] if found else None

    @property
    def cut_off(self) -> bool:
        """A member was lost while it gave to this joiner: results may not come any more."""
        with self._lock:
            return self._transfers.refused is not None

    @property
    def must_ask_again(self) -> bool:
        """It is cut off, and has not asked to be let in: it copies a later state."""
        return self.cut_off and not self._ticks

    def take_result(self, step: int, like: Tensor) -> tuple[Tensor, Sequence[int]] | None:
        """The result of a step, if it is there, as `JoinTransfers.result` has it. Asks to be let in when this
        process is near to the others."""
        with self._lock:
            result = self._transfers.result(step, like)
            self._ticks = self._ticks or self._transfers.asks_in
            return result

    def cut_short(self) -> None:
        """This joiner was interrupted while it took what members give: it is cut off from that."""
        with self._lock:
            self._transfers.cut_short()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the links, when joiners have what is kept for them: the others see this process as lost."""
        until = time.monotonic() + timeout_s
        with self._lock:
            self._transfers.entered()
        while self._gives and time.monotonic() < until:
            self._turn_ends()
        self._closed = True
        self._thread.join()
        self._links.close()
        self._discovery.close()

    def _tell(self, what: str, why: str) -> None:
        """Logs why this process waits, once for each reason."""
        with self._lock:
            if why and why != self._waits_for:
                log.warning("%s: %s", what, why)
            self._waits_for = why

    def _tell_of_a_late_step(self) -> None:
        """Logs why this process waits if a step is late: where the network is split, the side that cannot go
        on may be within a call that nothing aborts."""
        standing, why = self._node.standing()
        with self._lock:
            if standing == "waiting" and time.monotonic() > self._stepped + _LATE_S:
                self._tell("waiting for members", why)

    def _run(self) -> None:
        try:
            self._drive()
        except BaseException as error:  # noqa: BLE001 - whoever waits for this thread gets it
            with self._lock:
                self._failed = error
            self._turns.put(None)

    def _drive(self) -> None:
        while not self._closed:
            self._discovery.turn()
            self._member_links.turn(ticks=self._ticks)
            self._tell_of_a_late_step()
            with self._lock:
                self._transfers.pause(self.is_paused)
                while (said := self._transfers.poll(time.monotonic())) is not None:
                    self._member_links.say(*said)
            if self._turns.empty():
                self._turns.put(None)

    def _note_epoch(self) -> None:
        """The first is one that this process is in."""
        if self._node.epoch_number() <= self._noted:
            return  # as after nearly every message
        epoch = self.epoch
        if self._noted > 0 or self.key in epoch.members:
            with self._lock:
                self._discovery.enter(epoch)
                self._noted, self._hold_from[epoch.number] = epoch.number, epoch.first_step
                if epoch.broken:
                    self._transfers.handle_members(epoch.members)
            self._when_changed(epoch)

    def _lost(self, key: str) -> None:
        with self._lock:
            self._transfers.handle_lost(key)
            self._discovery.lost(key)

    def _heard(self, key: str, what: bytearray) -> None:
        said = Chunk.read(what) if what[0] == CHUNK else read(what)
        with self._lock:
            if isinstance(said, Meeting):
                self._note(said)
            elif isinstance(said, Hello):
                self._discovery.hello(key, said.address)
            elif isinstance(said, Known):
                self._discovery.hear_of(said.others)
            elif isinstance(said, Candidate):
                self._discovery.dial(said.key, said.address)
            else:
                self._transfers.handle(key, said, self._discovery.members(self.epoch))

    def _note(self, meeting: Meeting) -> None:
        """Who hears of a meeting says so to all: a link between two members may be missing."""
        if self._meetings.note(meeting, self._node.epoch_number()):
            for key in self.epoch.members:
                self._member_links.say(key, packed(meeting))
