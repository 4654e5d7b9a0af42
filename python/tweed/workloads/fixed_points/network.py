"""A recurrent network of rates at rest, as a module whose weights learn by one of several rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tweed.errors import UsageError
from tweed.workloads.fixed_points.rules import Plain, Rule, State, solved
from tweed.workloads.fixed_points.solvers import Anderson, Solver

#: By name, a function and its derivative, of which the second takes what the first returned.
GAINS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda rates: 1 - rates * rates),
    "linear": (lambda drive: drive, torch.ones_like),
}


class RateNetwork(nn.Module):
    """Rates where they rest, `r = f(W r + x)`.

    Args:
      size: N, the rates.
      function: f, a key of `GAINS`.
      rule: how W learns; `Plain` is the gradient.
      solver: finds where the rates rest.
      radius: of W's eigenvalues at first, from 0 to below 1: values are drawn from a normal distribution.
      generator: of these.

    Attributes:
      recurrent: the linear map that has W as its weight; its input and its output's gradient are the two
        factors of the update.

    Raises: UsageError for a function that there is not, and for another radius.
    """

    def __init__(
        self,
        size: int,
        function: str = "tanh",
        rule: Rule | None = None,
        solver: Solver | None = None,
        radius: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if function not in GAINS or not 0 <= radius < 1:
            known = f"one of {', '.join(GAINS)} and a radius from 0 to below 1"
            raise UsageError(f"a rate network of {function!r} with radius {radius} cannot be: give {known}")
        self.rule, self.solver = rule or Plain(), solver or Anderson()
        self._function, self._gain = GAINS[function]
        self.recurrent = nn.Linear(size, size, bias=False)
        nn.init.normal_(self.recurrent.weight, std=radius / math.sqrt(size), generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """The rates at rest.

        Args:
          x: `[batch, N]`, what comes from outside. It gets the gradient of the loss, whatever W's rule is.

        Returns: `[batch, N]`.
        Raises: DataError where the solver does.
        """
        weight = self.recurrent.weight
        with torch.no_grad():
            rates = self.solver(lambda rates: self._function(rates @ weight.T + x), torch.zeros_like(x))
            state = State(weight.detach(), rates, self._gain(rates))
            inputs = self.rule.inputs(state)
        rested: Tensor = _Rest.apply(self.recurrent(inputs), x, state, self.rule)
        return rested


class _Rest(torch.autograd.Function):
    """The rates of a state. Backwards, W's linear map gets the rule's errors, and x the gradient."""

    @staticmethod
    def forward(ctx: Any, recurrent: Tensor, x: Tensor, state: State, rule: Rule) -> Tensor:
        """Returns the rates; the value of `recurrent` does not matter."""
        ctx.save_for_backward(*state)
        ctx.rule = rule
        return state.rates.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of the linear map's output, and of x if it wants one."""
        state = State(*ctx.saved_tensors)
        to_x = state.gains * solved(state, errors[0]) if ctx.needs_input_grad[1] else None
        return ctx.rule.errors(state, errors[0]), to_x, None, None
