"""What is compared, by the keys that notes have, and where. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

from tweed.order import ByLayer, Credit, FirstIn, Order, Prophet, bursts
from tweed.order.base import Setting
from tweed.order.step import Gradient, Wire, ring
from tweed.simulate import models
from tweed.simulate.step_order import released
from tweed.simulate.workload import Workload

#: Samples of a step; bytes of gradients that are there together; a round trip; ranks of an all-reduce.
BATCH, BURST_BYTES, TURN_S, RANKS = 64, 2**23, 300e-6, 4
#: More bytes than any tensor has.
WHOLE = 1 << 40
SERVER, ALL_REDUCE = "server", "all-reduce"
#: Arrays of the accelerator. On three the backward pass of ResNet-50 takes 0.20 s, as in Prophet's profile.
PUBLISHED, FAST = 3, 16

Make = Callable[..., Workload]
MODELS: dict[str, Make] = {
    "ResNet-18": models.resnet18,
    "ResNet-50": models.resnet50,
    "ResNet-152": models.resnet152,
    "Inception-v3": models.inception_v3,
    "VGG-19": models.vgg19,
}
RATES = (1.0, 2.0, 3.0, 4.5, 6.0, 10.0)
MESSAGES_MS = (0.0, 0.1, 0.3, 1.0)


class Place(NamedTuple):
    """Where steps are compared: Gbit per second of a link, and what a message costs there in milliseconds."""

    model: str
    exchange: str
    gbit: float
    message_ms: float
    arrays: int = PUBLISHED

    def profile(self) -> tuple[Gradient, ...]:
        """The gradients of a step."""
        return _profile(self.model, self.arrays)

    def wire(self) -> Wire:
        """The link of a worker."""
        wire = Wire(self.gbit * 125e6, self.message_ms / 1e3, TURN_S)
        return wire if self.exchange == SERVER else ring(wire, RANKS)


@cache
def _profile(model: str, arrays: int) -> tuple[Gradient, ...]:
    return released(MODELS[model](BATCH, models.Accelerator(arrays), vectors=True), BURST_BYTES)


@dataclass(frozen=True, slots=True)
class Side:
    """A way to send gradients.

    Attributes:
      order: of a setting, the gradients and the link.
      setting: as published; where settings are searched, it is not used.
      summed: as published for an all-reduce, where that is another one.
      pieces, windows: whether sizes of these are searched.
      joined: pieces that follow each other without a gap are one message.
    """

    order: Callable[[Setting, tuple[Gradient, ...], Wire], Order[Any]]
    setting: Setting
    summed: Setting | None = None
    pieces: bool = False
    windows: bool = False
    joined: bool = False


def _first_in(setting: Setting, profile: tuple[Gradient, ...], wire: Wire) -> Order[Any]:
    return FirstIn(10**6)


def _by_layer(setting: Setting, profile: tuple[Gradient, ...], wire: Wire) -> Order[Any]:
    return ByLayer()


def _credit(setting: Setting, profile: tuple[Gradient, ...], wire: Wire) -> Order[Any]:
    return Credit(setting.window_bytes)


def prophet(setting: Setting, profile: tuple[Gradient, ...], wire: Wire) -> Order[Any]:
    """Prophet with the bursts of a profile. A piece of a joined message costs nothing beside its bytes."""
    found = bursts([layer.ready_s for layer in profile])
    return Prophet(found, 0.0 if wire.joined else wire.message_s, setting.window_bytes)


def _urgency(setting: Setting, profile: tuple[Gradient, ...], wire: Wire) -> Order[Any]:
    """`ByLayer` with pieces of one slice, and a window of a round trip: one slice leaves, and others wait for
    their acknowledgement."""
    return Credit(2 * setting.piece_bytes + math.ceil(wire.rate * wire.turn_s))


_FIFO = Side(_first_in, Setting(WHOLE, WHOLE))
_P3 = Side(_by_layer, Setting(200_000, 200_000))
_BYTES = Side(_credit, Setting(4_000_000, 16_000_000), summed=Setting(32_000_000, 64_000_000))
_PROPHET = Side(prophet, Setting(4_096_000, 16_000_000))
_tuned = partial(replace, pieces=True, windows=True)

SIDES: dict[str, Side] = {
    "FIFO": _FIFO,
    "P3": _P3,
    "P3, tuned": replace(_P3, pieces=True),
    "ByteScheduler": _BYTES,
    "ByteScheduler, tuned": _tuned(_BYTES),
    "Prophet": _PROPHET,
    "Prophet, tuned": _tuned(_PROPHET),
    "urgency": Side(_urgency, Setting(200_000, 200_000), pieces=True, joined=True),
    "FIFO, joined": replace(_FIFO, joined=True),
    "ByteScheduler, joined": _tuned(_BYTES, joined=True),
    "Prophet, joined": _tuned(_PROPHET, joined=True),
}
#: `CreditTuner`, while steps go on.
ONLINE = "ByteScheduler, online"
#: Schedulers by priority whose settings were searched, a message for each piece.
TUNED = ("P3, tuned", "ByteScheduler, tuned", ONLINE)
