"""Shortest first, as far as every transfer is committed before too many others are."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from tweed.errors import UsageError
from tweed.order.base import Committed, Drop, Ended, Event, Offered, Reserved, Send, Transfer


@dataclass(slots=True)
class Deadlines:
    """A state.

    Attributes:
      waiting: by key, in the order in which they were offered.
      reserved: base versions, by key, of what was promised not to be dropped and was not offered yet.
      promised: keys of those that wait and must not be dropped.
      under_way: base versions, by key.
      version: of the model.
    """

    waiting: dict[Hashable, Transfer] = field(default_factory=dict)
    reserved: dict[Hashable, int] = field(default_factory=dict)
    promised: set[Hashable] = field(default_factory=set)
    under_way: dict[Hashable, int] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class BoundedDelay:
    """No transfer is committed more than `most` versions after that which it was computed on.

    With `u` under way, what is sent next is committed at version `v + u` at the latest, if each is a commit
    of its own. So a transfer has its deadline, counted in commits:

        slack of the i-th by deadline = base version + most - (v + u + i)

    - Below zero: one of the first i must be dropped. That is the longest of them.
    - Zero: all of the first i must be sent before any other. The shortest of them goes next.
    - Else: the shortest of all goes next.

    Those under way may end in any order: another one joins them only if each could be the last.

    What is reserved counts as if it waited; where its slack is zero, all others wait for it. So that this can
    be kept, reservations are heard only as long as there are fewer than `most - at_once` of them.

    Args:
      most: versions.
      at_once: so many are under way together.

    Raises: UsageError for settings that cannot be.
    Cost: a decision sorts those that wait.
    Source: MLfabric (arXiv 1907.00434, 2019), stage 1: "ordering"; the choice among feasible ones is worked
      out here. That reserved transfers are waited for is ours.
    """

    most: int
    at_once: int = 1

    def __post_init__(self) -> None:
        if self.most < 0 or self.at_once < 1:
            raise UsageError(f"{self!r}: most is to be from 0 on, at_once at least 1")

    def start(self) -> Deadlines:
        """See `Order`."""
        return Deadlines()

    def handle(self, event: Event, state: Deadlines, now: float) -> Deadlines:
        """See `Order`."""
        if isinstance(event, Offered):
            key = event.transfer.key
            if state.reserved.pop(key, None) is not None:
                state.promised.add(key)
            state.waiting[key] = event.transfer
        elif isinstance(event, Reserved):
            if len(state.reserved) + len(state.promised) < self.most - self.at_once:
                state.reserved[event.key] = event.base_version
        elif isinstance(event, Ended):
            state.under_way.pop(event.key, None)
        elif isinstance(event, Committed):
            state.version = event.version
        else:
            state.waiting.pop(event.key, None)
            state.reserved.pop(event.key, None)
            state.promised.discard(event.key)
        return state

    def poll(self, state: Deadlines, now: float) -> tuple[Send | Drop | None, Deadlines]:
        """See `Order`. What can no longer be in time is dropped at once, though nothing may be sent now."""
        first = state.version + len(state.under_way)
        urgent: list[tuple[int, Hashable, Transfer | None]]
        urgent = [(base, key, None) for key, base in state.reserved.items()]
        urgent += [(one.base_version, key, one) for key, one in state.waiting.items()]
        # Of two alike what was promised goes first, then what was offered first.
        urgent.sort(key=lambda one: (one[0], one[2] is not None and one[1] not in state.promised))
        may_go: list[Transfer] = []
        for place, (base, _, transfer) in enumerate(urgent):
            slack = base + self.most - (first + place)
            if transfer is not None:
                may_go.append(transfer)
            if slack < 0 and (late := self._droppable(may_go, state)) is not None:
                del state.waiting[late.key]
                return Drop(late.key), state
            if slack <= 0:
                break
        oldest = min(state.under_way.values(), default=first)
        if not may_go or len(state.under_way) >= self.at_once or oldest + self.most < first:
            return None, state
        chosen = min(may_go, key=lambda one: one.seconds)
        del state.waiting[chosen.key]
        state.promised.discard(chosen.key)
        state.under_way[chosen.key] = chosen.base_version
        return Send(chosen.key), state

    def _droppable(self, some: list[Transfer], state: Deadlines) -> Transfer | None:
        free = [one for one in some if one.key not in state.promised]
        return max(free, key=lambda one: one.seconds, default=None)
