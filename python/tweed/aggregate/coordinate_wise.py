"""Rules that judge each number by itself: a contribution may count for one number and not for the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from tweed import _core
from tweed.aggregate.base import Arrival, Gathered, Reason, Value, Verdict
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


class CoordinateWise:
    """What these rules share: they wait for a batch, and see each contribution alone.

    `f` contributions may be anything at all. One with numbers that are not finite is left out whole, and is
    one of the `f`. What the network lost of a contribution is no contribution to that number.
    """

    __slots__ = ()
    in_network: ClassVar[Literal["mean"] | None] = None
    rule: ClassVar[str]
    reason: ClassVar[Reason]

    def hostile(self, count: int) -> int:
        """How many of `count` contributions may be anything."""
        raise NotImplementedError

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
        """What the arrivals come to, zeros if none of them is finite; and an empty state. Weights are those
        that a number's contributions have on average.

        Raises: UsageError as `require`, and for contributions of different shapes.
        """
        arrivals = state.arrivals
        if not arrivals:
            return None, (), state
        self.require(len(arrivals))
        hostile, finite = self.hostile(len(arrivals)), arrivals
        update = _combine(self.rule, hostile, finite)
        if update is None:
            finite = tuple(one for one in arrivals if bool(_tensor(one.value).isfinite().all()))
            hostile = max(0, hostile - (len(arrivals) - len(finite)))
            update = _combine(self.rule, hostile, finite)
        if update is None:
            update = _tensor(arrivals[0].value).new_zeros(arrivals[0].value.shape)
        known = {one.sender for one in finite}
        verdicts = tuple(
            Verdict(one.sender, 1 / len(finite), self.reason)
            if one.sender in known
            else Verdict(one.sender, 0.0, Reason.NOT_FINITE)
            for one in arrivals
        )
        return _like(update, arrivals[0].value), verdicts, Gathered()


def hostile_of(part: object, f: int | float, count: int) -> int:
    """`f` as a number of `count` contributions: as it is, or a share of them, rounded down.

    Raises: UsageError for what is neither a number from 0 on nor a share below a half.
    """
    if f < 0 or (isinstance(f, float) and not f < 0.5):
        raise UsageError(f"{part!r}: f is to be a whole number from 0 on, or a share below 0.5")
    return f if isinstance(f, int) else int(f * count)


def _combine(rule: str, hostile: int, arrivals: Sequence[Arrival]) -> Tensor | None:
    """What the rule makes of arrivals; None if there are none, or numbers that are not finite.

    Raises: UsageError for contributions of different shapes.
    """
    if not arrivals:
        return None
    first = _tensor(arrivals[0].value)
    out = first.new_empty(first.shape)
    rows = [_tensor(one.value).to(out.dtype) for one in arrivals]
    lost = [None if one.missing is None else _tensor(one.missing).bool() for one in arrivals]
    for one, row, mask in zip(arrivals, rows, lost, strict=True):
        if row.shape != out.shape or (mask is not None and mask.shape != out.shape):
            shapes = f"{tuple(row.shape)} of rank {one.sender} beside {tuple(out.shape)}"
            raise UsageError(
                f"{rule}: contributions, and masks of what is missing, have one shape; not {shapes}"
            )
    finite = _core.combine_columns(
        rule,
        hostile,
        [row.data_ptr() for row in rows],
        [None if mask is None else mask.data_ptr() for mask in lost],
        out.numel(),
        out.element_size() == 8,
        out.data_ptr(),
    )
    return out if finite else None


def _tensor(value: Value) -> Tensor:
    """In memory of the host, side by side, as float64 where it is that and else as float32."""
    import torch  # a strategy is a plain value and costs no import

    found = torch.as_tensor(value).cpu()
    if found.dtype not in (torch.float32, torch.float64):
        found = found.float()
    return found.contiguous()


def _like(update: Tensor, value: Value) -> Value:
    """As a contribution is: a tensor of its device and dtype, or a numpy array."""
    import torch

    if isinstance(value, torch.Tensor):
        return update.to(value.device, value.dtype)
    return update.numpy()
