"""What became of the gradients of the last exchange: whether something has used them.

Theory of operation. After an exchange gradients are averages. What follows decides what it was for:

    a step of the attached optimizers        it was used, and what it has changed for later ones stays
    parameters have moved otherwise          the same: a loop that steps by hand
    another backward pass, gradients kept    the same: gradients add up to the averages
    another one, all gradients cleared       it is taken back: the next exchange is as if it had never been
    another one, some of them cleared        refused, at all ranks

Whether gradients were cleared is seen when the next backward pass reaches the first parameter, before
anything is added to them. Only where something is kept from one exchange to the next does this matter, as
under a codec's residual, and only there is it asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter

from tweed.errors import UsageError
from tweed.exchange.verdicts import Verdict
from tweed.hooks.trained import Trained

_PARTLY = (
    "no step was taken with the gradients of the last exchange, and some of them were cleared, as that of "
    "{!r}, and others were not, as that of {!r}. So the exchange can neither be used nor be taken back. "
    "Before a backward pass clear all gradients of the attached model or none: zero_grad() of each of its "
    "optimizers"
)


class LastExchange:
    """See the module.

    Args:
      trained: the parameters.
      snapshot: gives all that an exchange changes for later ones.

    Attributes:
      given: the parameters that have a gradient of it.
    """

    def __init__(self, trained: Trained, snapshot: Callable[[], Any]) -> None:
        self._trained, self._snapshot = trained, snapshot
        self.given: list[Parameter] = []
        self._before: Any = None  # the snapshot before it; None: it was used
        self._digest = b""  # of all parameters, as they were then
        self._is_of_step = False  # it was made within the step that runs, by a closure
        self._all_cleared, self._some_cleared = False, ""
        self._seen_in = -1  # the backward pass in which that was seen

    def begin(self, *, within_step: bool) -> None:
        """Another exchange begins, and this one is it. Cost: a pass over the parameters, and the snapshot."""
        self._digest, self._before = self._trained.digest(), self._snapshot()
        self._is_of_step, self.given = within_step, []
        self._all_cleared, self._some_cleared = False, ""
        self._seen_in = torch._C._current_graph_task_id()

    def used(self) -> None:
        """A step of the attached optimizers has used it."""
        self._before, self._is_of_step = None, False

    def see(self) -> None:
        """A backward pass reaches a parameter, whose `grad` is still as it was."""
        task = torch._C._current_graph_task_id()
        if self._before is None or task == self._seen_in:
            return
        self._seen_in = task
        cleared = [param for param in self.given if param.grad is None]
        others = [param for param in self.given if param.grad is not None]
        if not any(bool(param.grad.any()) for param in others):  # type: ignore[union-attr]
            self._all_cleared = True
        elif cleared:
            self._some_cleared = _PARTLY.format(*map(self._trained.name_of, ({cleared[0]}, {others[0]})))

    def verdict(self) -> tuple[Verdict, UsageError | None]:
        """What this rank says of it before the next one, and why it cannot take part in that, if so."""
        if not (self._all_cleared or self._some_cleared) or self._is_of_step or self.before() is None:
            return Verdict.GO_ON, None
        if self._all_cleared:
            return Verdict.TAKE_BACK, None
        return Verdict.GO_ON, UsageError(self._some_cleared)

    def before(self) -> Any:
        """The snapshot before it, if nothing has used it yet; None: something has."""
        unused = self._before is not None and self._trained.digest() == self._digest
        return self._before if unused else None
