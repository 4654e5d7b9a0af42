"""Rules that judge each number by itself: a contribution may count for one number and not for the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Aggregate, Answer, Arrival, Gathered, Reason, Value, Verdict
from tweed.aggregate.tensor_ops import Row, as_given, rows_of

if TYPE_CHECKING:
    from torch import Tensor


class CoordinateWise(Aggregate[Gathered]):
    """What these rules share: they wait for a batch, and see each contribution alone.

    One of another shape than most, or with numbers that are not finite, is left out whole and counts as one
    of those that may be anything. What the network lost of a contribution is no contribution to that number;
    what is promised of hostile ones holds where they are less than half of those that arrived.
    """

    __slots__ = ()
    compares: ClassVar[bool] = True
    rule: ClassVar[str]
    reason: ClassVar[Reason]

    def byzantine(self, count: int) -> int:
        """How many of `count` contributions may be anything."""
        raise NotImplementedError  # each rule has its own

    def require(self, contributors: int) -> None:
        raise NotImplementedError  # each rule has its own

    def start(self) -> Gathered:
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Gathered, now: float) -> Gathered:
        """Puts an arrival in its sender's place."""
        return state.plus(event)

    def poll(self, state: Gathered, now: float) -> tuple[Value | None, tuple[Verdict, ...], Gathered]:
        """What the arrivals come to, zeros if none can be believed; and an empty state. Weights are those
        that a number's contributions have on average.

        Raises: UsageError as `require`.
        """
        arrivals = state.arrivals
        if not arrivals:
            return None, (), state
        self.require(len(arrivals))
        rows = rows_of(arrivals)
        rejections = {row.sender: Reason.SHAPE for row in rows if not row.fits}
        update = self._combine(rows, rejections)
        if update is None:
            rejections |= {
                r.sender: Reason.NOT_FINITE for r in rows if r.fits and not bool(r.value.isfinite().all())
            }
            update = self._combine(rows, rejections)
        weight = 1 / max(1, len(rows) - len(rejections))
        verdicts = tuple(
            Verdict(
                row.sender,
                0.0 if row.sender in rejections else weight,
                rejections.get(row.sender, self.reason),
            )
            for row in rows
        )
        return as_given(update, rows, arrivals), verdicts, Gathered()

    def _combine(self, rows: Sequence[Row], rejections: dict[int, Reason]) -> Tensor | None:
        """What those without doubts come to; None if there are none, or some have numbers that are not
        finite."""
        accepted = [row for row in rows if row.sender not in rejections]
        return sort_and_combine(self.rule, max(0, self.byzantine(len(rows)) - len(rejections)), accepted)


def sort_and_combine(rule: str, byzantine: int, rows: Sequence[Row]) -> Tensor | None:
    """What the extension module makes of `rows` number by number; None if there are none, or some have
    numbers that are not finite."""
    from tweed import _core  # as torch: a strategy is a plain value

    if not rows:
        return None
    out = rows[0].value.new_empty(rows[0].value.shape)
    finite = _core.combine_columns(
        rule,
        byzantine,
        [row.value.data_ptr() for row in rows],
        [None if row.missing is None else row.missing.data_ptr() for row in rows],
        out.numel(),
        out.element_size() == 8,
        out.data_ptr(),
    )
    return out if finite else None
