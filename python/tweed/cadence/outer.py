"""An outer optimiser: what becomes of the average of all ranks' movements after a round of local steps.

Pure; the caller holds the state, one per buffer. Loads no torch: it only does arithmetic on tensors it is
given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class Outer(Protocol[State]):
    """Turns the mean movement of a round into the model's. `State` is a dataclass of tensors, changed in
    place."""

    def start(self, like: Tensor) -> State:
        """The state before the first round; `like` gives shape, dtype and device."""
        ...

    def advance(self, mean: Tensor, state: State) -> Tensor:
        """How far the agreed model moves, where `mean` is how far ranks moved on average. `mean` stays as it
        is."""
        ...


@dataclass(slots=True)
class Momentum:
    """State of `Nesterov`: a decaying sum of the movements so far."""

    momentum: Tensor


@dataclass(frozen=True, slots=True)
class Nesterov:
    """Nesterov's accelerated gradient, with the mean movement in place of minus a gradient.

    Args:
      lr: share of the movement that is taken, above 0. 1 with momentum 0 is the plain average.
      momentum: share of the sum that is kept per round, 0 or more and below 1.

    Raises: UsageError for other settings.
    Cost: one more copy of the model in memory; a pass over it per round.
    Source: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023, with
      the update of `torch.optim.SGD(nesterov=True)`.
    """

    lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if not (self.lr > 0 and 0 <= self.momentum < 1):
            raise UsageError(f"{self!r}: lr is above 0, momentum at least 0 and below 1")

    def start(self, like: Tensor) -> Momentum:
        return Momentum(like.new_zeros(like.shape))

    def advance(self, mean: Tensor, state: Momentum) -> Tensor:
        state.momentum.mul_(self.momentum).add_(mean)
        return mean.add(state.momentum, alpha=self.momentum).mul_(self.lr)
