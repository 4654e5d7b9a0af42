"""The average of what is left without the largest and the smallest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tweed.aggregate.base import Arrival, Reason, Value, Verdict
from tweed.aggregate.mean import Gathered, Mean
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """Of each number, leaves out the largest and the smallest contributions, and averages the others.

    So a share of contributions may be anything at all, and the result stays within what the others sent. What
    the network lost of a contribution is no contribution to that number.

    Args:
      share: of contributions, left out at either end, rounded down: 0 or more and below a half.

    Raises: UsageError for a share that cannot be.
    Cost: all contributions in memory, sorted number by number.
    Source: Yin, Chen, Kannan, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
      rates", 2018, definition 2.
    """

    share: float = 0.25

    in_network: ClassVar[Literal["mean"] | None] = None

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise UsageError(f"trimmed mean: share={self.share!r} is to be 0 or more and below a half")

    def start(self) -> Gathered:
        """Nothing has arrived."""
        return Gathered()

    def handle(self, arrival: Arrival, state: Gathered, now: float) -> Gathered:
        """Puts `arrival` in its sender's place."""
        return Mean().handle(arrival, state, now)

    def poll(self, state: Gathered, now: float) -> tuple[Value | None, tuple[Verdict, ...], Gathered]:
        """The trimmed mean of what has arrived, and an empty state. The weights are those that a number's
        contributions have on average."""
        arrivals = state.arrivals
        if not arrivals:
            return None, (), state
        verdicts = tuple(Verdict(one.sender, 1 / len(arrivals), Reason.TRIMMED) for one in arrivals)
        return self._mean(arrivals), verdicts, Gathered()

    def _mean(self, arrivals: tuple[Arrival, ...]) -> Value:
        """What is missing sorts behind all else."""
        import torch  # a strategy is a plain value and costs no import

        values = [torch.as_tensor(one.value) for one in arrivals]
        rows = torch.stack(values)
        present = torch.full_like(rows[0], len(values))
        for row, one in zip(rows, arrivals, strict=True):
            if one.missing is not None:
                missing = torch.as_tensor(one.missing).bool()
                row[missing] = torch.inf
                present -= missing.to(present.dtype)
        left_out = torch.floor(present * self.share)
        place = torch.arange(len(values), dtype=rows.dtype).view(-1, *[1] * values[0].dim())
        kept = (place >= left_out) & (place < present - left_out)
        total = torch.where(kept, rows.sort(0).values, 0).sum(0)
        mean = total / (present - 2 * left_out).clamp(min=1)
        return mean if isinstance(arrivals[0].value, torch.Tensor) else mean.numpy()
