"""Fixed points of any map of torch, with the implicit gradient of deep-equilibrium models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tweed.errors import UsageError
from tweed.workloads.fixed_points.solvers import Anderson, Solver


def fixed_point(
    map: Callable[[Tensor], Tensor],
    start: Tensor,
    solver: Solver | None = None,
    backward: Solver | None = None,
) -> Tensor:
    """A point that `map` leaves where it is; gradients go to all that the map uses.

    The way to the point is not kept: memory does not grow with steps. In the backward pass
    `v = J^T v + e` is solved, with the map's Jacobian J at the point.

    Args:
      map: from `[batch, ...]` to the same shape, of each sample alone; closes over parameters and inputs.
      start: `[batch, ...]`, where it begins; gets no gradient.
      solver: of the point; None: `Anderson()`.
      backward: of the gradient; None: as `solver`.

    Raises: DataError where a solver does: a value that is not finite, or no fixed point; so does the backward
      pass, which raises UsageError where it is to be differentiated again.
    Cost: the maps of a solver, and one more; in the backward pass as many of its vector-Jacobian products.
    Source: Bai, Kolter, Koltun, "Deep equilibrium models", NeurIPS 2019.

    Example:
      >>> weight = torch.tensor(0.5, requires_grad=True)
      >>> point = fixed_point(lambda r: weight * r + 1, torch.zeros(1, 1))
      >>> point.sum().backward()  # r = 1 / (1 - w)
      >>> weight.grad.round(decimals=3)
      tensor(4.)
    """
    solver = solver or Anderson()
    with torch.no_grad():
        rest = solver(map, start.detach())
    if not torch.is_grad_enabled():
        return rest
    point = map(rest)
    if not point.requires_grad:
        return point
    begin = rest.detach().requires_grad_()
    end = map(begin)

    def solve(error: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise UsageError("fixed_point has no second derivative: leave create_graph out of backward")

        def adjoint(v: Tensor) -> Tensor:
            (moved,) = torch.autograd.grad(end, begin, v, retain_graph=True)
            return moved + error

        return (backward or solver)(adjoint, error)

    point.register_hook(solve)  # type: ignore[no-untyped-call]
    return point
