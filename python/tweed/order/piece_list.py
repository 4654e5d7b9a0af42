"""Lists of pieces for the sums of all ranks, planned by one of them from what it has measured.

now = PieceList.first(order.setting, sizes)         # every rank, until something is measured
planner = Planner(order, sizes)                     # one rank; sizes are those of all
planner.take(Measured(ready_s, rate, seconds))      # a step
setting, places = planner.next()                    # numbers that cross
now = PieceList.of(setting, places, sizes)          # what every rank makes of them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from tweed.order.base import GradientOrder, Setting
from tweed.order.listed import Listed
from tweed.order.pieces import Piece, pieces
from tweed.order.priority import LARGEST_VALUE
from tweed.order.step import Gradient, Wire, planned
from tweed.order.tuning import CreditTuner

#: Exchanges from one list to the next.
EVERY = 5
_LEAST_BYTES = 50_000  # of a piece that is tried


class Measured(NamedTuple):
    """What one rank has seen of a step.

    Attributes:
      ready_s: when each layer's gradient was there, from the first one on; by layer, the last one's first.
      rate: bytes of sums per second in which one was under way.
      seconds: of the whole step.
    """

    ready_s: Sequence[float]
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PieceList:
    """Which piece goes when, the same on all ranks.

    Args:
      setting: of pieces and window.
      pieces: in their order.
    """

    setting: Setting
    pieces: tuple[Piece, ...]

    @classmethod
    def first(cls, setting: Setting, sizes: Sequence[int]) -> PieceList:
        """As gradients come: the last layer's first. `sizes` are bytes by layer."""
        every = _pieces(sizes, setting.piece_bytes)
        return cls(setting, tuple(sorted(every, key=lambda piece: (-piece.layer, piece.place))))

    @classmethod
    def of(cls, setting: Setting, places: Sequence[int], sizes: Sequence[int]) -> PieceList:
        """What `Planner.next` has made, from the numbers that it gave."""
        every = _pieces(sizes, setting.piece_bytes)
        return cls(setting, tuple(every[place] for place in places))

    @property
    def order(self) -> Listed:
        """What keeps to it."""
        return Listed(self.pieces, self.setting.window_bytes)


def count(sizes: Sequence[int], piece_bytes: int) -> int:
    """How many pieces a list has."""
    return len(_pieces(sizes, piece_bytes))


class Planner:
    """Makes lists.

    Args:
      order: of one rank's gradients.
      sizes: bytes by layer.

    Cost: 20 microseconds for each piece of a list.

    Example:
      >>> from tweed.order import ByLayer
      >>> planner = Planner(ByLayer(piece_bytes=16), [32, 16])
      >>> planner.take(Measured([0.0, 0.0], rate=16.0, seconds=3.0))
      >>> PieceList.of(*planner.next(), [32, 16]).pieces
      (Piece(layer=0, place=0), Piece(layer=0, place=1), Piece(layer=1, place=0))
    """

    def __init__(self, order: GradientOrder, sizes: Sequence[int]) -> None:
        self._order = order
        self._sizes = sizes
        self._tuner = _tuner(order.setting) if order.tuned else None
        self._trials = None if self._tuner is None else self._tuner.start()
        self._last = Measured([0.0] * len(sizes), 1.0, 0.0)

    def take(self, step: Measured) -> None:
        """A step was measured."""
        self._last = step
        if self._tuner is not None and self._trials is not None:
            self._trials = self._tuner.handle(step.seconds, self._trials)

    def next(self) -> tuple[Setting, list[int]]:
        """The setting of the next list, and for each of its pieces its place among those of all layers."""
        tried = self._order.setting if self._trials is None else self._trials.setting
        setting = Setting(tried.piece_bytes // LARGEST_VALUE * LARGEST_VALUE, tried.window_bytes)
        order = self._order.profiled(self._last.ready_s, setting.window_bytes)
        profile = [
            Gradient(numbytes, ready_s, 0.0)
            for numbytes, ready_s in zip(self._sizes, self._last.ready_s, strict=True)
        ]
        wire = Wire(self._last.rate, answered=False)
        keys = planned(order, profile, wire, piece_bytes=setting.piece_bytes)
        places = {piece: place for place, piece in enumerate(_pieces(self._sizes, setting.piece_bytes))}
        return setting, [places[cast(Piece, key)] for key in keys]


def _tuner(first: Setting) -> CreditTuner:
    piece_bytes, window_bytes = first
    whole = Setting(piece_bytes, max(window_bytes, piece_bytes))
    return CreditTuner(whole, least_bytes=min(_LEAST_BYTES, piece_bytes), steps=EVERY)


def _pieces(sizes: Sequence[int], piece_bytes: int) -> list[Piece]:
    return [
        cast(Piece, transfer.key)
        for layer, numbytes in enumerate(sizes)
        for transfer in pieces(layer, numbytes, most_bytes=piece_bytes)
    ]
