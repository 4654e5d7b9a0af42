"""Rules that judge contributions by samples which the hub trusts.

    a batch is there        poll asks for losses, or for a gradient, on trusted samples
    these are handled       poll weighs contributions by them, and adds them up

So they hold against any number of hostile contributions, as long as one that is not hostile comes now and
then; and are as good as the samples. They need whole gradients and the whole model, which only a hub has: an
owner of a range could not tell the loss at a point of which it knows a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tweed.aggregate.base import Aggregate, Answer, Arrival, Gathered, Reason, Verdict
from tweed.aggregate.tensor_ops import Row

if TYPE_CHECKING:
    from torch import Tensor


class TrustedSamples(Aggregate[Any]):
    """What these rules share. What is not finite, or of another shape than most, is left out."""

    __slots__ = ()
    needs_trusted: ClassVar[bool] = True
    # A rule that gives contributions a gradient's norm takes gradients.
    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient"})
    exchanges_reason: ClassVar[str] = (
        "it gives what is sent the norm of a gradient, and how far several steps go is another norm. "
        'Exchange "gradient", or take Zeno'
    )

    def require(self, contributors: int) -> None:
        """Any number of contributions will do."""

    def start(self) -> Any:
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Any, now: float) -> Any:
        """Puts an arrival in its sender's place, or takes an answer."""
        return state.plus(event)


def whole(rows: list[Row]) -> list[Row]:
    """The contributions that can be judged: finite, and of the shape that most have."""
    return [row for row in rows if row.fits and bool(row.value.isfinite().all())]


def of_norm(row: Row, norm: float) -> tuple[Row, Tensor]:
    """The contribution brought to a norm, which its own does not change, however small or large; and its
    direction, of norm 1, as float64. Zeros stay zeros."""
    double = row.value.flatten().double()
    own = double.norm()
    direction = double / own if own > 0 else double
    return row._replace(value=(direction * norm).to(row.value.dtype).view(row.value.shape)), direction


def verdict(
    row: Row,
    weights: dict[int, float],
    reason: Reason,
    rejection: Reason,
    scores: Mapping[int, float] | None = None,
) -> Verdict:
    """On a contribution, of which `weights` and `scores` have those by its sender, if it could be judged."""
    if row.sender not in weights:
        return Verdict(row.sender, 0.0, Reason.NOT_FINITE if row.fits else Reason.SHAPE)
    weight = weights[row.sender]
    return Verdict(row.sender, weight, reason if weight else rejection, (scores or {}).get(row.sender))
