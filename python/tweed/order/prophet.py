"""Blocks that end when the next burst of gradients begins: what is urgent then finds the link free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from tweed.errors import UsageError
from tweed.order.base import AllOffered, Event, Offered, Order, Send, Setting, Transfer
from tweed.order.priority import Queue, Ranked, check_piece


class Burst(NamedTuple):
    """Gradients that come together.

    Attributes:
      lowest: the lowest layer among them.
      gap_s: from its first gradient to the first one of the next burst; infinite after the last.
    """

    lowest: int
    gap_s: float


def bursts(profile_s: Sequence[float]) -> tuple[Burst, ...]:
    """The bursts of a backward pass. One ends before a gap of more than twice the mean one.

    Args:
      profile_s: when each layer's gradient was there, in seconds, by layer. The last layer's is the first.

    Returns: the bursts in the order in which they come, from the last layer's to that of layer 0.
    Raises: UsageError if a gradient came before that of a later layer, or there is none.
    Source: the code of Prophet (ICPP 2021): a gap of more than twice the mean.

    Example:
      >>> bursts([5.0, 5.0, 5.0, 0.0, 0.0])
      (Burst(lowest=3, gap_s=5.0), Burst(lowest=0, gap_s=inf))
    """
    gaps_s = [earlier - later for earlier, later in pairwise(profile_s)]
    if not profile_s or min(gaps_s, default=0.0) < 0:
        raise UsageError("a profile has a time for each layer, and none is before that of the next layer")
    least_s = 2 * sum(gaps_s) / max(1, len(gaps_s))
    lowest = [layer for layer, gap_s in enumerate(gaps_s, 1) if gap_s > least_s]
    edges = [
        len(profile_s),
        *reversed(lowest),
        0,
    ]  # each burst's layers are from an edge up to the one before
    first_s = [profile_s[edge - 1] for edge in edges[:-1]]
    ends_s = [*first_s[1:], math.inf]
    return tuple(
        Burst(edge, end_s - begin_s) for edge, begin_s, end_s in zip(edges[1:], first_s, ends_s, strict=True)
    )


@dataclass(slots=True)
class Blocks(Queue):
    """A state.

    Attributes:
      burst: the number of the newest burst, by the first of its gradients; -1: none has come in this step.
      ends_s: when the next one is expected.
      free_s: when the link will have sent what is under way.
      over: no more urgent gradient comes in this step.
    """

    burst: int = -1
    ends_s: float = math.inf
    free_s: float = 0.0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Prophet(Ranked[Blocks]):
    """What waits goes by layer; before the last burst, only as far as it has left when the next burst begins.

    What does not fit waits for the next burst, and comes after what is more urgent. The rate of a transfer
    says how long it takes. After the last burst, or `AllOffered`, all goes by layer. A step begins with the
    first offer after all of the one before has ended.

    It goes by this rank's clock, so it is for messages to a server. Ranks that sum call their sums in one
    order, which `tweed.order.step.planned` makes from one rank's profile and `Listed` keeps.

    Args:
      bursts: as `bursts` finds them; None: the driver measures them, under `tweed.cadence.Deferred`, and
        until then all goes by layer.
      message_s: what a message costs beside its bytes, in seconds.
      window_bytes: under way together; see `Credit`.
      piece_bytes: of sums, under `Deferred`; the default is that of its code.

    Raises: UsageError for bursts that do not go down to layer 0.
    Source: Zhang et al., "Prophet: speeding up distributed DNN training with predictable communication
      scheduling", ICPP 2021, section 4. Its code waits until a burst is complete before it sends of it; here
      its first gradient may go at once.
    """

    bursts: tuple[Burst, ...] | None = None
    message_s: float = 0.0
    window_bytes: int = 16_000_000
    piece_bytes: int = 4_096_000
    tuned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_piece(self, self.piece_bytes)
        if self.window_bytes < 1:
            raise UsageError(f"window_bytes is {self.window_bytes}, and is to be at least 1")
        if self.bursts is None:
            return
        lowest = [burst.lowest for burst in self.bursts]
        if not lowest or lowest[-1] != 0 or lowest != sorted(set(lowest), reverse=True):
            raise UsageError(f"bursts begin at layers {lowest}: they are to go down, and the last one to 0")

    @property
    def setting(self) -> Setting:
        return Setting(self.piece_bytes, self.window_bytes)

    def profiled(self, profile_s: Sequence[float], window_bytes: int) -> Order[Any]:
        return replace(self, bursts=bursts(profile_s), window_bytes=window_bytes)

    def rank(self, transfer: Transfer) -> float:
        return transfer.layer

    def start(self) -> Blocks:
        return Blocks(over=self.bursts is None)

    def handle(self, event: Event, state: Blocks, now: float) -> Blocks:
        if isinstance(event, AllOffered):
            state.over = True
        elif isinstance(event, Offered):
            self._came(event.transfer.layer, state, now)
        return Ranked.handle(self, event, state, now)

    def _came(self, layer: int, state: Blocks, now: float) -> None:
        if self.bursts is None:
            return
        if state.over and not state.waiting and not state.under_way:
            state.burst, state.over = -1, False
        number = next(place for place, burst in enumerate(self.bursts) if burst.lowest <= layer)
        if number > state.burst:
            state.burst, state.ends_s = number, now + self.bursts[number].gap_s
            state.over = state.over or number == len(self.bursts) - 1

    def has_room(self, transfer: Transfer, state: Blocks, now: float) -> bool:
        fits = not state.under_way or state.bytes_under_way + transfer.numbytes <= self.window_bytes
        return fits and (state.over or self._sent_s(transfer, state, now) <= state.ends_s)

    def _sent_s(self, transfer: Transfer, state: Blocks, now: float) -> float:
        """When it has left, behind what is under way."""
        return max(now, state.free_s) + self.message_s + transfer.seconds

    def poll(self, state: Blocks, now: float) -> tuple[Send | None, Blocks]:
        first = state.first()
        if first is None or not self.has_room(first, state, now):
            return None, state
        state.free_s = self._sent_s(first, state, now)
        return state.send(first), state
