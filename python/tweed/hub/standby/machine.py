"""A second hub that applies the same commits, and takes over when the first is gone.

    worker, aggregator     -> Copy(offer, payload), or Copy(sum)     -> standby
    hub                    -> Entry(version, units)                   -> standby
    standby                -> Held(tasks): it has these copies        -> hub
                           -> Kept(number): that commit is applied    -> worker

Contributions come from whoever made them, not from the hub: that sends a log of what it committed, in which
order, and nothing else. The standby applies the entries in order, each as soon as it has all copies for it:
it hands the same arrivals to the same rule, in the same order. The update, and with a copy of the optimizer
the model, so are the same bits.

    an entry    moved by                            to
    WAITING     its last copy is there, and all
                entries before it are applied       APPLIED: a Step, and `Kept` to its members
                the hub sends its whole state       (none), if that is newer
                the hub is gone                     (none): its copies are adopted

Workers keep what was counted until it is `Kept`, also what counted in a sum. When the hub is gone,
`take_over` makes the next hub: with the model, the version and the numbers of what is applied. Copies of
payloads that are not applied are counted by it at once; of what it lacks, and of what was in sums that are
not applied, workers tell it by `Resume`, and send it again. A number counts once, as the new hub knows the
last one of each member that is in its model. Lost is only what its member has forgotten before the standby
had it.

How far the model of the hub may be ahead is bounded from norms (`Divergence`): where a grant would break the
bound, the copy goes first. Norms are as workers say.

What cannot happen: an entry is applied before another one that is older, or twice; a contribution is in the
model of the new hub twice; the standby decides anything that the hub decides, while that lives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tweed.aggregate import Aggregate, Arrival
from tweed.aggregate.base import conclude
from tweed.aggregate.weighted import Averaged
from tweed.errors import UsageError
from tweed.exchange.checkpoint import plain
from tweed.hub.machine.actions import Step
from tweed.hub.machine.hub import Hub
from tweed.hub.machine.updates import update_of
from tweed.hub.wire.messages import Copy, Entry, Kept, Sum, Unit

Key = tuple[int, int]  # a member, and the number of its task


@dataclass(slots=True)
class Divergence:
    """A bound on how far the hub's model is from what its standby can have.

    With `h <- m h + u` and `w <- w - h`, where `u` is `lr` times a contribution, and k of them missing,

        H m (1 - m^k) / (1 - m)  +  sum over i of |u_i| (1 - m^(k - i + 1)) / (1 - m)

    where H bounds the norm of h at the last point that both have. A contribution counts with all of its
    norm, though it may be one of several in a mean. Without momentum the bound holds at all times; with it H
    may grow while others are missing, so it holds when something is granted.

    Args:
      most: norm that `bound` is not to exceed; infinite: no copy ever goes first.
      lr, momentum: of the hub's optimizer.
    """

    most: float
    lr: float = 1.0
    momentum: float = 0.0
    _missing: dict[Key, float] = field(default_factory=dict)
    _norm: float = 0.0  # of h, at most

    def granted(self, task: Key, norm: float) -> bool:
        """Whether its copy is to go first: then it is none of those that are missing."""
        self._missing[task] = self.lr * norm
        first = not self.bound() <= self.most  # also if it is not a number
        if first:
            self.held([task])
        return first

    def has_room(self, norms: Sequence[float]) -> bool:
        """Whether all of these could be missing, too."""
        also = Divergence(self.most, self.lr, self.momentum, dict(self._missing), self._norm)
        for place, norm in enumerate(norms):
            also._missing[-1, place] = self.lr * norm
        return also.bound() <= self.most

    def held(self, tasks: Iterable[Key]) -> None:
        """The standby has these, or nothing will come of them."""
        for task in tasks:
            norm = self._missing.pop(task, None)
            if norm is not None:
                self._norm = self.momentum * self._norm + norm

    def bound(self) -> float:
        """The bound on the distance of the two models, as the class computes it."""
        m, count = self.momentum, len(self._missing)
        if m == 0:
            return sum(self._missing.values())
        ahead = self._norm * m * (1 - m**count) / (1 - m)
        missing = enumerate(self._missing.values())
        return ahead + sum(each * (1 - m ** (count - place)) / (1 - m) for place, each in missing)


def replicable(aggregate: Aggregate[Any]) -> bool:
    """Whether each update of a rule follows from the contributions in it and what the log has of them."""
    return aggregate.in_network is not None or isinstance(aggregate, Averaged)


@dataclass(slots=True)
class Standby:
    """See above.

    Args:
      aggregate: the hub's rule, one that is formed of sums: see `replicable`.
      per_contribution: the hub commits after each contribution.
      value, missing, total: as the hub's, with the standby's model.

    Attributes:
      version: of its model.
      last: of each member the number of its last task that is in the model.
    """

    aggregate: Aggregate[Any]
    per_contribution: bool
    value: Callable[[int, Any], Any] = lambda member, payload: payload.value
    missing: Callable[[int, Any], Any] = lambda member, payload: None
    total: Callable[[Sum], Any] = lambda message: message.value
    version: int = 0
    last: dict[int, int] = field(default_factory=dict)
    _gathered: Any = None
    _done: int = 0  # units of the next entry that `_gathered` has
    _entries: deque[Entry] = field(default_factory=deque)
    _copies: dict[tuple[int | None, ...], Copy] = field(default_factory=dict)  # by their keys

    def __post_init__(self) -> None:
        if not replicable(self.aggregate):
            raise UsageError(
                f"{self.aggregate!r} may depend on values that only the hub has, so a standby cannot follow "
                "it: train without a standby, or take a rule that is a sum, such as Mean or Weighted"
            )
        self._gathered = self.aggregate.start()

    def load(self, state: dict[str, Any]) -> None:
        """Has the state that the hub had (`Hub.standby_state`), unless it is not newer."""
        if state["version"] < self.version:
            return
        self.version, self.last = state["version"], dict(state["last"])
        self._gathered, self._done = state["gathered"], state["units"]
        self._entries = deque(entry for entry in self._entries if entry.version > self.version)
        self._copies = {key: one for key, one in self._copies.items() if not self._is_over(one)}

    def handle(self, message: Entry | Copy) -> bool:
        """A message has come. Returns whether it is new."""
        if isinstance(message, Entry):
            newest = self._entries[-1].version if self._entries else self.version
            if message.version > newest:
                self._entries.append(message)
            return message.version > newest
        if self._is_over(message):
            return False
        self._copies[message.key] = message
        return True

    def poll(self) -> tuple[Step, tuple[Kept, ...]] | None:
        """The next commit to be applied, and what workers are told after; None: nothing.

        Take the step before the next call: what a contribution stands for may depend on the model.
        """
        if not self._entries or self._entries[0].version != self.version + 1:
            return None
        entry = self._entries[0]
        if not all(self._has(unit) for unit in entry.units[self._done :]):
            return None
        self._entries.popleft()
        for unit in entry.units[self._done :]:
            self._gathered = self.aggregate.handle(self._arrival(unit), self._gathered, 0.0)
        found, verdicts, self._gathered = conclude(self.aggregate, self._gathered, 0.0)
        self.version, self._done = entry.version, 0
        tasks = tuple(task for unit in entry.units for task in unit.tasks)
        for member, number in tasks:
            self.last[member] = max(number, self.last.get(member, 0))
        for unit in entry.units:
            self._copies.pop(unit.key, None)
        self._copies = {key: one for key, one in self._copies.items() if not self._is_over(one)}
        step = Step(
            update_of(found, verdicts, self.per_contribution), entry.version, tasks, verdicts, entry.units
        )
        return step, tuple(Kept(member, number) for member, number in tasks)

    def waits_for(self) -> int | None:
        """The version that it lacks copies for; None: it has applied all that it knows of."""
        return self._entries[0].version if self._entries else None

    def waits_for_whom(self) -> set[int]:
        """Members whose copies it lacks for that version."""
        units = self._entries[0].units[self._done :] if self._entries else ()
        lacking = [unit for unit in units if not self._has(unit)]
        return {unit.tasks[0][0] if unit.via is None else unit.via for unit in lacking}

    def holds(self, key: tuple[int | None, ...]) -> bool:
        """Whether it has a copy that is not applied."""
        return key in self._copies

    def state(self) -> dict[str, Any]:
        """As `Hub.state`: a hub can go on from there."""
        start = plain(self.aggregate.start())  # rules that are sums begin with each update anew
        return {"version": self.version, "numbers": dict(self.last), "gathered": start}

    def take_over(self, hub: Hub, now: float) -> None:
        """Makes `hub`, a new one with the settings of that which is gone, the next.

        What it then wants done includes commits of what it adopted.
        """
        hub.load(self.state())
        hub.know_counted(self.last)
        direct = [one for one in self._copies.values() if one.group is None]
        for one in sorted(direct, key=lambda one: one.tasks):
            if hub.may_adopt(one.tasks[0]):
                hub.adopt(one, now)

    def _has(self, unit: Unit) -> bool:
        """Whether there is a copy of just that."""
        copy = self._copies.get(unit.key)
        return copy is not None and set(unit.tasks) <= set(copy.tasks)

    def _is_over(self, copy: Copy) -> bool:
        return any(number <= self.last.get(member, 0) for member, number in copy.tasks)

    def _arrival(self, unit: Unit) -> Arrival:
        content = self._copies[unit.key].content
        if isinstance(content, Sum):
            value, missing = self.total(content), None
        else:
            member = unit.tasks[0][0]
            value, missing = self.value(member, content), self.missing(member, content)
        return unit.arrival(value * math.nan if unit.left_out else value, missing)
