"""The contract that `tweed.attach` drives: how the ranks of a run keep one model.

    exchange.before_step()        gradients are there; not called where a closure has its passes before it
    exchange.check_finite()       not called where a gradient scaler skips the step
    (the optimizer steps)
    exchange.after_step(norm)
    exchange.finish()             one model is wanted now

Gradients are exchanged before a step, models and movements after it. `tweed.exchange.table` has which
strategy takes which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor


class Exchange(Protocol):
    """How ranks keep one model.

    Attributes:
      paused: backward passes add to gradients and exchange nothing. Of no effect after a step.
      within_step: backward passes are those of a closure of the optimizer. Likewise.
    """

    paused: bool
    within_step: bool

    @property
    def differs(self) -> bool:
        """Whether ranks' models may differ now, until `finish`."""
        ...

    def before_step(self) -> None:
        """The optimizer is about to step."""

    def check_finite(self) -> None:
        """Raises NonFinite if gradients of the last exchange were not finite, and still are not."""

    def after_step(self, norm: float | None) -> None:
        """The optimizer has gone a step of this `norm`; None: nobody measured it."""

    def finish(self) -> None:
        """Makes the model equal on all ranks. Training may go on."""

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """What `tensors`, parameters and then buffers, are on average over ranks."""
        ...

    def before(self) -> Mapping[str, Any] | None:
        """All that the last exchange has changed, as it was before that, if no step has used it yet; None: it
        counts."""
        ...

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buffers were others."""

    def close(self) -> None:
        """Ends it, also after a failure: exchanges nothing."""
