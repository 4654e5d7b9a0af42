"""Whatever waits goes by one rank: first in, newest first, shortest first, by layer."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from tweed.errors import UsageError
from tweed.order.base import Ended, Event, Offered, Order, Send, Setting, Transfer, Withdrawn


@dataclass(slots=True)
class Queue:
    """A state.

    Attributes:
      heap: rank, number of the offer, transfer; also of those that no longer wait.
      waiting: number of the offer by key.
      under_way: bytes by key.
      bytes_under_way: the sum of these.
      offers: so far.
    """

    heap: list[tuple[float, int, Transfer]] = field(default_factory=list)
    waiting: dict[Hashable, int] = field(default_factory=dict)
    under_way: dict[Hashable, int] = field(default_factory=dict)
    bytes_under_way: int = 0
    offers: int = 0

    def join(self, transfer: Transfer, rank: float) -> None:
        """It waits from now on."""
        self.offers += 1
        self.waiting[transfer.key] = self.offers
        heapq.heappush(self.heap, (rank, self.offers, transfer))
        if len(self.heap) > 2 * len(self.waiting) + 64:  # most no longer wait
            self.heap = [item for item in self.heap if self.waiting.get(item[2].key) == item[1]]
            heapq.heapify(self.heap)

    def first(self) -> Transfer | None:
        """The transfer of the lowest rank that waits."""
        while self.heap:
            _, number, transfer = self.heap[0]
            if self.waiting.get(transfer.key) == number:
                return transfer
            heapq.heappop(self.heap)
        return None

    def send(self, transfer: Transfer) -> Send:
        """It waits no longer, and is under way."""
        del self.waiting[transfer.key]
        self.under_way[transfer.key] = transfer.numbytes
        self.bytes_under_way += transfer.numbytes
        return Send(transfer.key)

    def end(self, key: Hashable) -> None:
        """It is no longer under way."""
        self.bytes_under_way -= self.under_way.pop(key, 0)


State = TypeVar("State", bound=Queue)

#: Bytes of a piece of a sum are a multiple of it, so that no value of any dtype is cut.
LARGEST_VALUE = 16


def check_piece(order: object, piece_bytes: int) -> None:
    """Raises UsageError if values would be cut."""
    if piece_bytes < LARGEST_VALUE or piece_bytes % LARGEST_VALUE:
        raise UsageError(
            f"{order!r}: piece_bytes is to be a multiple of {LARGEST_VALUE}, as values are not cut"
        )


class Ranked(Generic[State]):
    """What waits goes by its rank, as soon as there is room for it. Nothing is ever dropped, so nothing needs
    to be reserved.

    Cost: an event takes time that grows with the logarithm of those that wait.
    """

    __slots__ = ()

    def rank(self, transfer: Transfer) -> float:
        """The lowest goes first; of two alike, the first that was offered."""
        return 0.0

    def has_room(self, transfer: Transfer, state: State, now: float) -> bool:
        """Whether it may be sent now, beside those under way."""
        raise NotImplementedError  # each order has its own

    def handle(self, event: Event, state: State, now: float) -> State:
        if isinstance(event, Offered):
            state.join(event.transfer, self.rank(event.transfer))
        elif isinstance(event, Ended):
            state.end(event.key)
        elif isinstance(event, Withdrawn):
            state.waiting.pop(event.key, None)
        return state

    def poll(self, state: State, now: float) -> tuple[Send | None, State]:
        first = state.first()
        if first is None or not self.has_room(first, state, now):
            return None, state
        return state.send(first), state


@dataclass(frozen=True, slots=True)
class FirstIn(Ranked[Queue]):
    """What was offered first goes first.

    Args:
      at_once: so many are under way together.

    Raises: UsageError if that is none.
    Cost: an event takes time that grows with the logarithm of those that wait.
    """

    at_once: int = 1

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise UsageError(f"{self!r}: at_once is to be at least 1")

    def start(self) -> Queue:
        return Queue()

    def has_room(self, transfer: Transfer, state: Queue, now: float) -> bool:
        return len(state.under_way) < self.at_once


@dataclass(frozen=True, slots=True)
class NewestFirst(FirstIn):
    """What was computed on the newest version goes first: old transfers may wait for ever."""

    def rank(self, transfer: Transfer) -> float:
        return -transfer.base_version


@dataclass(frozen=True, slots=True)
class ShortestFirst(FirstIn):
    """What takes the least time goes first: the mean time until a transfer has ended is the least."""

    def rank(self, transfer: Transfer) -> float:
        return transfer.seconds


@dataclass(frozen=True, slots=True)
class ByLayer(FirstIn):
    """What the next forward pass needs first goes first.

    Tensors are cut into `pieces`, so that an urgent one waits for one piece of another, not for all of it.

    Args:
      at_once: so many are under way together.
      piece_bytes: of sums, under `tweed.cadence.Deferred`; the default is that of the paper.

    Source: Jayarajan et al., "Priority-based parameter propagation for distributed DNN training" (P3), SysML
      2019, section 4.
    """

    piece_bytes: int = 200_000
    tuned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        FirstIn.__post_init__(self)
        check_piece(self, self.piece_bytes)

    @property
    def setting(self) -> Setting:
        return Setting(self.piece_bytes, self.at_once * self.piece_bytes)

    def profiled(self, profile_s: Sequence[float], window_bytes: int) -> Order[Any]:
        return self

    def rank(self, transfer: Transfer) -> float:
        return transfer.layer


@dataclass(frozen=True, slots=True)
class Credit(Ranked[Queue]):
    """What waits goes by layer, as long as no more than a window of bytes is yet to be acknowledged.

    A wide window keeps the link busy; a narrow one lets what is urgent overtake more. A transfer has `Ended`
    when its bytes were acknowledged, never when its operation is complete: of a sum the other rank may not
    have begun its part, and two ranks that wait for each other's sums wait for ever.

    Args:
      window_bytes: under way together; a transfer of more goes alone.
      piece_bytes: of sums, under `tweed.cadence.Deferred`; the default is that of its code, 1 M values.
      tuned: there, other windows and pieces are tried while training goes on: see `CreditTuner`.

    Raises: UsageError if a size is not positive.
    Source: Peng et al., "A generic communication scheduler for distributed DNN training acceleration"
      (ByteScheduler), SOSP 2019, section 4.2; the default is that of its code, 4 M values.

    Example:
      >>> order = Credit(window_bytes=10)
      >>> state = order.start()
      >>> for key, layer in (("late", 1), ("urgent", 0)):
      ...     state = order.handle(Offered(Transfer(key, 6, layer=layer)), state, 0.0)
      >>> order.poll(state, 0.0)[0], order.poll(state, 0.0)[0]
      (Send(key='urgent'), None)
    """

    window_bytes: int = 16_000_000
    piece_bytes: int = 4_000_000
    tuned: bool = False

    def __post_init__(self) -> None:
        if self.window_bytes < 1:
            raise UsageError(f"{self!r}: window_bytes is to be at least 1")
        check_piece(self, self.piece_bytes)

    @property
    def setting(self) -> Setting:
        return Setting(self.piece_bytes, self.window_bytes)

    def profiled(self, profile_s: Sequence[float], window_bytes: int) -> Order[Any]:
        return replace(self, window_bytes=window_bytes)

    def rank(self, transfer: Transfer) -> float:
        return transfer.layer

    def start(self) -> Queue:
        return Queue()

    def has_room(self, transfer: Transfer, state: Queue, now: float) -> bool:
        return not state.under_way or state.bytes_under_way + transfer.numbytes <= self.window_bytes
