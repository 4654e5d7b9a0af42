"""The contract of the stage: transfers are offered, and one after the other may be sent, or is dropped.

An order is pure. It holds settings only; the caller holds the state and passes `now` in seconds.

    state = order.start()
    state = order.handle(Offered(transfer), state, now)
    decision, state = order.poll(state, now)          # Send, Drop, or None: wait; poll again after one
    state = order.handle(Ended(key), state, now)      # it has arrived, or never will

The state is the caller's to keep and nobody else's to change: it is updated in place, so that an event costs
no more with more transfers that wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Transfer:
    """What somebody wants to send.

    Args:
      key: by which it is told from others.
      numbytes: of its payload.
      base_version: the model's version that it was computed on.
      rate: of the slowest link that it takes, in bytes per second, as measured; where nobody measures, it is
        the same for all.
      layer: of whose parameters it is; the next forward pass needs layer 0 first.
    """

    key: Hashable
    numbytes: int
    base_version: int = 0
    rate: float = 1.0
    layer: int = 0

    @property
    def seconds(self) -> float:
        """How long it takes alone."""
        return self.numbytes / self.rate


@dataclass(frozen=True, slots=True)
class Offered:
    """It waits from now on."""

    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Reserved:
    """A transfer that will be offered under `key` is not to be dropped, whatever else is sent before it."""

    key: Hashable
    base_version: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """It no longer waits, or will not be offered."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Ended:
    """It is no longer under way: all of it has arrived, or never will."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Committed:
    """The model has this version now."""

    version: int


@dataclass(frozen=True, slots=True)
class AllOffered:
    """The backward pass has ended: until the next one nothing more is offered, and so nothing more urgent."""


Event = Offered | Reserved | Withdrawn | Ended | Committed | AllOffered


@dataclass(frozen=True, slots=True)
class Send:
    """It may be sent now, and is under way until it has ended."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Drop:
    """It is not to be sent at all."""

    key: Hashable


@runtime_checkable
class Order(Protocol[State]):
    """Which transfer goes first."""

    def start(self) -> State:
        """The state before the first transfer."""
        ...

    def handle(self, event: Event, state: State, now: float) -> State:
        """The state after `event`."""
        ...

    def poll(self, state: State, now: float) -> tuple[Send | Drop | None, State]:
        """What is to be done next, None: nothing until the next event; and the state after it."""
        ...


class Setting(NamedTuple):
    """How much goes at once: bytes of a piece, and of all that is under way together."""

    piece_bytes: int
    window_bytes: int


@runtime_checkable
class GradientOrder(Protocol):
    """An order of gradients that sums can follow: it is planned once from a profile, for all ranks alike.

    Attributes:
      setting: of pieces and window.
      tuned: whether other settings are tried while training goes on.
    """

    @property
    def setting(self) -> Setting: ...

    @property
    def tuned(self) -> bool: ...

    def profiled(self, profile_s: Sequence[float], window_bytes: int) -> Order[Any]:
        """The order itself, where layers' gradients are there at such times, with such a window."""
        ...
