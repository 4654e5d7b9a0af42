"""Rules that judge each number by itself: a contribution may count for one number and not for the next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from tweed.aggregate.base import Arrival, Gathered, Reason, Value, Verdict
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


class CoordinateWise:
    """What these rules share: they wait for a batch, and see each contribution alone.

    One of another shape than most, or with numbers that are not finite, is left out whole and counts as one
    of those that may be anything. What the network lost of a contribution is no contribution to that number;
    what is promised of hostile ones holds where they are less than half of those that arrived.
    """

    __slots__ = ()
    in_network: ClassVar[Literal["mean"] | None] = None
    rule: ClassVar[str]
    reason: ClassVar[Reason]

    def hostile(self, count: int) -> int:
        """How many of `count` contributions may be anything."""
        raise NotImplementedError  # each rule has its own

    def require(self, contributors: int) -> None:
        """Raises UsageError if half of so many, or more, may be anything."""
        least = 2 * self.hostile(contributors) + 1
        if contributors < least:
            raise UsageError(f"{self!r} needs at least {least} contributions, and there are {contributors}")

    def start(self) -> Gathered:
        """Nothing has arrived."""
        return Gathered()

    def handle(self, arrival: Arrival, state: Gathered, now: float) -> Gathered:
        """Puts `arrival` in its sender's place."""
        return state.plus(arrival)

    def poll(self, state: Gathered, now: float) -> tuple[Value | None, tuple[Verdict, ...], Gathered]:
        """What the arrivals come to, zeros if none can be believed; and an empty state. Weights are those
        that a number's contributions have on average.

        Raises: UsageError as `require`.
        """
        arrivals = state.arrivals
        if not arrivals:
            return None, (), state
        self.require(len(arrivals))
        rows = _rows(arrivals)
        doubts = {row.sender: Reason.SHAPE for row in rows if not row.fits}
        update = self._combine(rows, doubts)
        if update is None:
            doubts |= {
                r.sender: Reason.NOT_FINITE for r in rows if r.fits and not bool(r.value.isfinite().all())
            }
            update = self._combine(rows, doubts)
        weight = 1 / max(1, len(rows) - len(doubts))
        verdicts = tuple(
            Verdict(row.sender, 0.0 if row.sender in doubts else weight, doubts.get(row.sender, self.reason))
            for row in rows
        )
        like = next((at for at, row in enumerate(rows) if row.fits), 0)
        if update is None:
            update = rows[like].value.new_zeros(())
        return _like(update, arrivals[like].value), verdicts, Gathered()

    def _combine(self, rows: Sequence[_Row], doubts: dict[int, Reason]) -> Tensor | None:
        """What those without doubts come to; None if there are none, or some have numbers that are not
        finite."""
        from tweed import _core  # as torch: a strategy is a plain value

        believed = [row for row in rows if row.sender not in doubts]
        if not believed:
            return None
        out = believed[0].value.new_empty(believed[0].value.shape)
        finite = _core.combine_columns(
            self.rule,
            max(0, self.hostile(len(rows)) - len(doubts)),
            [row.value.data_ptr() for row in believed],
            [None if row.missing is None else row.missing.data_ptr() for row in believed],
            out.numel(),
            out.element_size() == 8,
            out.data_ptr(),
        )
        return out if finite else None


@dataclass(frozen=True, slots=True)
class Bounded(CoordinateWise):
    """A rule that is told how many contributions may be anything.

    Args:
      f: a number, or a share of those that arrive, rounded down; less than half of them.
    """

    f: int | float = 0.25

    def __post_init__(self) -> None:
        if not ((_is_whole(self.f) and self.f >= 0) or (_is_real(self.f) and 0 <= self.f < 0.5)):
            raise UsageError(f"{self!r}: f is to be a whole number from 0 on, or a share below 0.5")

    def hostile(self, count: int) -> int:
        """`f` of them."""
        if _is_whole(self.f):
            return int(self.f)
        # 0.29 of 100 are 29, though their product as floats is a little less.
        return math.floor(self.f * count + 1e-9)


def _is_whole(f: object) -> bool:
    """Python's whole numbers, and numpy's."""
    return isinstance(f, Integral) and not isinstance(f, bool)


def _is_real(f: object) -> bool:
    return isinstance(f, Real) and not isinstance(f, Integral)


class _Row(NamedTuple):
    """A contribution as the extension module takes it: on the host, side by side, all of one dtype.

    Attributes:
      fits: whether value and mask have the shape that most have.
    """

    sender: int
    value: Tensor
    missing: Tensor | None
    fits: bool


def _rows(arrivals: Sequence[Arrival]) -> list[_Row]:
    """As float64 if one of them is that, else as float32.

    Raises: UsageError for complex numbers.
    """
    import torch

    values = [torch.as_tensor(_writable(one.value)).cpu() for one in arrivals]
    if any(value.is_complex() for value in values):
        raise UsageError("complex numbers have no order: aggregate their parts side by side")
    dtype = torch.float64 if any(value.dtype == torch.float64 for value in values) else torch.float32
    masks = [None if one.missing is None else torch.as_tensor(one.missing).cpu().bool() for one in arrivals]
    shape, _ = Counter(value.shape for value in values).most_common(1)[0]
    return [
        _Row(
            one.sender,
            _aligned(value.to(dtype)),
            None if mask is None else mask.contiguous(),
            value.shape == shape and (mask is None or mask.shape == shape),
        )
        for one, value, mask in zip(arrivals, values, masks, strict=True)
    ]


def _writable(value: Value) -> Value:
    """torch warns of a numpy array that it could write to and must not."""
    flags = getattr(value, "flags", None)
    return value if flags is None or flags.writeable else value.copy()


def _aligned(value: Tensor) -> Tensor:
    value = value.contiguous()
    return value if value.data_ptr() % value.element_size() == 0 else value.clone()


def _like(update: Tensor, value: Value) -> Value:
    """As a contribution is: a tensor of its device, shape and dtype, or a numpy array; never of integers."""
    import torch

    update = update.expand(tuple(value.shape))
    if not isinstance(value, torch.Tensor):
        return update.numpy()
    return update.to(value.device, value.dtype if value.is_floating_point() else update.dtype)
