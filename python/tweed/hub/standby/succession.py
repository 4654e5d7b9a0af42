"""When a standby may take over, so that no two hubs commit beside each other.

Nobody can tell a process that is gone from one whose links are cut. So neither hub nor standby decides that
alone. The members that the hub last had do, each by one of two words that exclude each other. A *promise* to
the standby: "I have lost the hub, and do not call it until you answer". A *renunciation* to the hub: "I never
promise anything to that standby". More than half of the members can promise, or at least half can renounce;
never both.

    the hub, `Guard`                                                to
    SINGLE      names a standby: the next appointment               GUARDED
    GUARDED     the link to the standby has ended                   PAUSED: members are asked to renounce it
                the standby goes for good, and says so              SINGLE
    PAUSED      enough members have renounced it                    SINGLE: commits go on
                the standby is back                                 GUARDED
    any         the standby says that it is the hub                 OVER

    the standby, `Successor`
    EMPTY       the state of the hub is there                       FOLLOWING
    FOLLOWING   the link to the hub has ended                       ALONE
    ALONE       there is a link to the hub again                    FOLLOWING: promises are void, and released
                more than half of the members have promised         SERVING
                the hub's own key says that it was started anew     SERVING, or from FOLLOWING

    a member, `Voter`
    FREE        it has lost the hub, and there is a standby         PROMISED: it does not call the hub
                the hub asks it to renounce the standby             FREE; it never promises to that one
    PROMISED    the standby releases it                             FREE
                the standby is the hub                              FREE, of the next hub

Of whom is it "half"? Of the members that were linked to the hub: the *electorate*. It changes as members come
and go; the hub sends the standby one change at a time, and the next when that is agreed. So it knows that the
standby goes by the last one agreed or by the one that is under way, and asks for half of both. Each naming of
a standby has a number of its own, the *appointment*, and so has each promise and each renunciation.

What is promised: once a hub has seen that its standby's link has ended, it commits nothing until it can rule
out that the standby takes over; a standby takes over only if most members are lost to the hub.

What is not: a hub that has not seen it yet goes on with the members that it still has. What it so commits is
not in the standby's model; their members keep it, and send it to the standby, where it counts once. And if
hub and most members lose each other while the standby is gone as well, all wait until one of both is back.

What cannot happen: that a hub has seen the end of the link to its standby, may commit, and the standby is
SERVING; a member that is linked to the hub and has promised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class GuardState(Enum):
    """Whether a hub has a standby, and may commit: see the module."""

    SINGLE = "single"
    GUARDED = "guarded"
    PAUSED = "paused"
    OVER = "over"


@dataclass(slots=True)
class Guard:
    """The hub's side, see above.

    Attributes:
      state: see above.
      appointment: number of the last one.
      present: the members that are linked.
    """

    state: GuardState = GuardState.SINGLE
    appointment: int = 0
    present: set[int] = field(default_factory=set)
    _possible: list[frozenset[int]] = field(
        default_factory=list
    )  # by which a standby may go, the newest last
    _renounced: set[int] = field(default_factory=set)

    @property
    def may_commit(self) -> bool:
        """Whether no other hub can be, as far as this one has seen."""
        return self.state in (GuardState.SINGLE, GuardState.GUARDED)

    def appoint(self) -> frozenset[int]:
        """A standby is named. Returns the electorate, which it hears of before it has the state."""
        if self.state is GuardState.SINGLE:  # else the same one may still go by an earlier appointment
            self._possible = []
        self.state, self.appointment = GuardState.GUARDED, self.appointment + 1
        return self._propose()

    def change(self) -> tuple[frozenset[int], frozenset[int]] | None:
        """Who has come and who has gone since the last change, for the standby; None: nobody, or that one is
        not agreed yet."""
        if self.state is not GuardState.GUARDED or len(self._possible) > 1:
            return None
        before = self._possible[0]
        if self.present == before:
            return None
        now = self._propose()
        return now - before, before - now

    def agreed(self) -> None:
        """The standby goes by the last change, or by the electorate that it was named with."""
        self._possible = self._possible[-1:]

    def standby_lost(self) -> None:
        """Its link has ended. Members are to be asked, also those that come later."""
        if self.state is GuardState.GUARDED:
            self.state, self._renounced = GuardState.PAUSED, set()
            self._go_on()

    def standby_back(self) -> frozenset[int] | None:
        """It has called again. Returns the electorate, if it is the standby still; None: it has to be named
        anew."""
        if self.state is GuardState.SINGLE or (self.state is GuardState.PAUSED and self._renounced):
            return None
        self.state = GuardState.GUARDED
        return self._propose()

    def standby_left(self) -> None:
        """It goes for good, and does not take over."""
        if self.state is not GuardState.OVER:
            self.state = GuardState.SINGLE

    def standby_serves(self) -> None:
        """It is the hub."""
        self.state = GuardState.OVER

    def renounced(self, member: int, appointment: int) -> None:
        """A member never promises anything to the standby of this appointment, or an earlier one."""
        if appointment == self.appointment and self.state is GuardState.PAUSED:
            self._renounced.add(member)
            self._go_on()

    def _propose(self) -> frozenset[int]:
        self._possible.append(frozenset(self.present))
        return self._possible[-1]

    def _go_on(self) -> None:
        if all(2 * len(self._renounced & some) >= len(some) for some in self._possible):
            self.state = GuardState.SINGLE


class SuccessorState(Enum):
    """How far a standby is: see the module."""

    EMPTY = "empty"
    FOLLOWING = "following"
    ALONE = "alone"
    SERVING = "serving"


@dataclass(slots=True)
class Successor:
    """The standby's side, see above.

    Attributes:
      state: see above.
      appointment: that it is of; 0: of none.
      electorate: the members that the hub last had.
      promised: those of which it has the promise.
    """

    state: SuccessorState = SuccessorState.EMPTY
    appointment: int = 0
    electorate: set[int] = field(default_factory=set)
    promised: set[int] = field(default_factory=set)

    def hub_back(self) -> list[int]:
        """There is a link to the hub again. Returns who is to be released: promises are void."""
        released, self.promised = sorted(self.promised), set()
        if self.state is SuccessorState.ALONE:
            self.state = SuccessorState.FOLLOWING
        return released

    def appointed(self, appointment: int, electorate: Iterable[int]) -> None:
        """The hub has named it, or goes on with it."""
        if appointment != self.appointment:
            self.state = SuccessorState.EMPTY
        self.appointment, self.electorate = appointment, set(electorate)

    def changed(self, joined: Iterable[int], left: Iterable[int]) -> None:
        """Takes a change of who may elect this process, as `Guard.change` says it."""
        self.electorate = (self.electorate | set(joined)) - set(left)

    def filled(self) -> None:
        """The state of the hub is there."""
        if self.state is SuccessorState.EMPTY:
            self.state = SuccessorState.FOLLOWING

    def hub_lost(self) -> None:
        """Its link to the hub has ended."""
        if self.state is SuccessorState.FOLLOWING:
            self.state = SuccessorState.ALONE
            self._take_over_if_most()

    def hub_restarted(self) -> bool:
        """The hub's own key says that its process was started anew: what it knew is gone. Whether this one is
        the hub now; without a state it is not, and never by this appointment."""
        if self.state is not SuccessorState.EMPTY:
            self.state = SuccessorState.SERVING
            return True
        self.appointment = 0
        return False

    def promise(self, member: int, appointment: int) -> bool:
        """A member has lost the hub. Whether that is of use: if not it is to be released."""
        if self.state is not SuccessorState.ALONE or appointment != self.appointment:
            return False
        self.promised.add(member)
        self._take_over_if_most()
        return True

    def unlinked(self, member: int) -> None:
        """The link to a member has ended; it promises again when it is back."""
        self.promised.discard(member)

    def _take_over_if_most(self) -> None:
        if 2 * len(self.promised & self.electorate) > len(self.electorate):
            self.state = SuccessorState.SERVING


@dataclass(slots=True)
class Voter:
    """A member's side, see above.

    Attributes:
      appointment: of the standby that it knows; 0: it knows none.
      promised: it has, and does not call the hub.
    """

    appointment: int = 0
    promised: bool = False

    def named(self, appointment: int) -> None:
        """The hub names a standby."""
        self.appointment, self.promised = appointment, False

    def renounce(self, appointment: int) -> bool:
        """The hub asks for it, of this appointment and earlier ones. Whether it is so."""
        if not self.promised and self.appointment <= appointment:
            self.appointment = 0
        return not self.promised

    def promise(self) -> bool:
        """It has lost the hub. Whether there is a standby that is to hear so."""
        self.promised = self.appointment != 0
        return self.promised

    def released(self) -> None:
        """The standby does not need the promise, or is the hub."""
        self.promised = False
