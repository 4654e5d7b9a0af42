"""How the recurrent weights of a network at rest learn: by the gradient, or by its like in another metric.

A network of N rates rests where `r = f(W r + x)`. With the gains `g = f'(W r + x)`, one per sample and rate,
and the error `e = dJ/dr`, each rule is a sum of outer products over the samples, so that its step is

    W -= eta * sum_b errors_b inputs_b^T          errors, inputs: [batch, N]

`inputs` is known after the forward pass, `errors` in the backward one. With `G = diag(g)`:

    rule              errors                               inputs
    plain             G (I - W^T G)^-1 e                   r
    linearised        (I - W G) G e                        (I - G W)^T (I - G W) r
    variant           (I - W G) e                          (I - W G)^T (I - W G) r
    reparameterised   that of linearised, times            that of linearised
                      (I - eta K)^-1, of samples

The plain rule is the gradient of the loss. It is large where `I - G W` is nearly singular, and needs an
inverse per sample. The reparameterised rule takes a gradient step in `A = (I - W)^-1`, of which the loss of a
linear network is a quadratic, and goes back to W; the linearised one is its first order in eta, and has no
inverse.

Source: Zhu and Rosenbaum 2024, dW1, dW2 and dW3; the variant is dW4 of their code. The inverse of dW2 is here
  one of a matrix of samples, by Woodbury's identity, exact where all gains are 1. For other gains, which
  differ per sample, it is ours.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tweed.errors import DataError
from tweed.workloads.fixed_points.solvers import Solver


class State(NamedTuple):
    """A network at rest: `weight` `[N, N]`; `rates` and `gains`, `[batch, N]`."""

    weight: Tensor
    rates: Tensor
    gains: Tensor


class Rule(Protocol):
    """Gives the two factors of the weights' update."""

    def inputs(self, state: State) -> Tensor:
        """`[batch, N]`, before the loss is known."""
        ...

    def errors(self, state: State, error: Tensor) -> Tensor:
        """`[batch, N]`, of the loss' gradient by the rates, `[batch, N]`."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """The gradient of the loss, by implicit differentiation.

    Args:
      solver: finds `v = W^T G v + e`, relative to the largest value of e. Where it finds nothing, or None,
        equations are solved.

    Cost: N equations per sample, batch * N^3 / 3 multiplications; with a solver, a product with the weights
      per step of it.
    """

    solver: Solver | None = None

    def inputs(self, state: State) -> Tensor:
        """The rates, as they rest."""
        return state.rates

    def errors(self, state: State, error: Tensor) -> Tensor:
        """`G (I - W^T G)^-1 e`."""
        if self.solver is not None and (largest := float(error.abs().max())) > 0:
            wanted = error / largest
            with suppress(DataError):
                found = self.solver(lambda v: (state.gains * v) @ state.weight + wanted, wanted)
                return state.gains * found * largest
        return state.gains * solved(state, error)


@dataclass(frozen=True, slots=True)
class Linearised:
    """The first order of `Reparameterised`. Cost: four products with the weights, and no inverse."""

    def inputs(self, state: State) -> Tensor:
        """`(I - G W)^T (I - G W) r`."""
        weight, rates, gains = state
        held = rates - gains * (rates @ weight.T)
        return held - (gains * held) @ weight

    def errors(self, state: State, error: Tensor) -> Tensor:
        """`(I - W G) G e`."""
        weighed = state.gains * error
        return weighed - (state.gains * weighed) @ state.weight.T


@dataclass(frozen=True, slots=True)
class Variant:
    """`Linearised` with gains at other places, dW4 of the source's code; the same where all gains are 1."""

    def inputs(self, state: State) -> Tensor:
        """`(I - W G)^T (I - W G) r`."""
        weight, rates, gains = state
        held = rates - (gains * rates) @ weight.T
        return held - gains * (held @ weight)

    def errors(self, state: State, error: Tensor) -> Tensor:
        """`(I - W G) e`."""
        return error - (state.gains * error) @ state.weight.T


@dataclass(frozen=True, slots=True)
class Reparameterised:
    """A gradient step in `A = (I - W)^-1`, and back. Its samples depend on each other: those of one process.

    Args:
      step: eta, the optimizer's learning rate; the update is not linear in it.

    Cost: as `Linearised`, and a system of as many equations as samples.
    """

    step: float

    def inputs(self, state: State) -> Tensor:
        """The inputs of `Linearised`."""
        return Linearised().inputs(state)

    def errors(self, state: State, error: Tensor) -> Tensor:
        """The errors of `Linearised`, times `(I - eta K)^-1`; K[b, c] is input b times error c."""
        errors = Linearised().errors(state, error)
        held = state.rates - state.gains * (state.rates @ state.weight.T)
        kernel = held @ errors.T
        system = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device) - self.step * kernel
        found: Tensor = torch.linalg.solve(system.T, errors)
        return found


def solved(state: State, error: Tensor) -> Tensor:
    """`(I - W^T G)^-1 e` of each sample, `[batch, N]`: the gradient by what the rates are without their loop.

    Cost: batch * N^3 / 3 multiplications, and batch * N^2 values in memory.
    """
    count = state.weight.shape[0]
    system = torch.eye(count, dtype=error.dtype, device=error.device) - state.weight.T * state.gains[:, None]
    found: Tensor = torch.linalg.solve(system, error[..., None])
    return found[..., 0]
