"""Of which factors the gradient of a matrix is the product.

Theory of operation. The gradient of a linear layer's weight, `[outputs, inputs]`, is `G^T X`: `X`, `[rows,
inputs]`, is what came into the layer, and `G`, `[rows, outputs]`, the gradient of what came out. Each use of
a layer hands in both, and their product. What autograd has put into `grad` must be the sum of these products,
bit by bit. Whatever else changes a gradient makes another sum, and its factors are then unknown: a use of the
weight outside the layer, a hook, clipping between two backward passes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import torch
from torch import Tensor

#: What factors may have.
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Factors(NamedTuple):
    """A matrix `[outputs, inputs]` as `outputs^T inputs`.

    Attributes:
      outputs: `[rows, outputs]`, gradients of what came out of a layer.
      inputs: `[rows, inputs]`, what came in; of the same dtype.
    """

    outputs: Tensor
    inputs: Tensor

    @property
    def rows(self) -> int:
        """How many outer products it is the sum of."""
        return len(self.outputs)


def pays(rows: int, shape: Sequence[int], ranks: int, item_bytes: int = 4, weight_bytes: int = 4) -> bool:
    """Whether an all-gather of factors is less than an all-reduce of the matrix.

    With `rows` at each of `P` ranks a link carries `(P - 1) rows (outputs + inputs)` values of factors each
    way, and of the matrix, over a ring, `2 (P - 1) / P outputs inputs`. So factors are less if
    `P rows (outputs + inputs) < 2 outputs inputs`: with square matrices of `N` rows, below `N / P` rows at
    each rank.

    Args:
      rows: the most that any rank has; others' factors are filled up with zeros.
      shape: of the matrix, `(outputs, inputs)`.
      ranks: how many exchange.
      item_bytes, weight_bytes: of a value of a factor, and of the matrix.

    Example:
      >>> pays(63, (256, 256), ranks=4), pays(64, (256, 256), ranks=4)
      (True, False)
    """
    outputs, inputs = shape
    return ranks > 1 and ranks * rows * (outputs + inputs) * item_bytes < 2 * outputs * inputs * weight_bytes


class _Sum(NamedTuple):
    """Factors one below the other, and their products added up in the order in which autograd does."""

    parts: tuple[Factors, ...]
    product: Tensor

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.parts + other.parts, self.product + other.product)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


class FactorRecord:
    """Knows of which factors the gradients of weights are the products.

    Args:
      names: of the weights that have any.
      ranks: how many exchange; more rows than can pay among so many are not kept.

    Cost: a comparison with `grad`, two passes over the matrix. Under `no_sync`, while factors pay, one more
      copy of the gradient.

    Example:
      >>> record, weight = FactorRecord({"weight"}, ranks=2), torch.zeros(8, 8)
      >>> factors = Factors(torch.ones(1, 8), torch.ones(1, 8))
      >>> record.add(weight, torch.ones(8, 8), factors)
      >>> record.settle(weight, torch.ones(8, 8)), record.of(weight).rows
      (True, 1)
      >>> record.settle(weight, torch.full((8, 8), 2.0)), record.of(weight)  # something else has added to it
      (False, None)
    """

    def __init__(self, names: Set[str], ranks: int) -> None:
        self.names = names
        self._ranks = ranks
        self._pass = -1  # number that autograd gave the backward pass
        self._in_pass: dict[Tensor, _Sum] = {}
        self._kept: dict[Tensor, _Sum] = {}
        self._too_many: set[Tensor] = set()

    def add(self, weight: Tensor, product: Tensor, factors: Factors) -> None:
        """A use of `weight` adds `product` to its gradient in the backward pass that runs.

        Factors are copied: the loop may use their memory again before they are exchanged.
        """
        task = torch._C._current_graph_task_id()
        if task != self._pass:
            self._in_pass.clear()  # of a pass whose gradients went elsewhere, as those of autograd.grad do
            self._pass = task
        before = self._in_pass.get(weight)
        rows = factors.rows + sum(one.rows for one in (before, self._kept.get(weight)) if one)
        if weight in self._too_many or not self._may_pay(rows, weight, factors):
            self._too_many.add(weight)
            return
        new = _Sum((Factors(*(one.detach().clone() for one in factors)),), product)
        self._in_pass[weight] = new if before is None else before.plus(new)

    def _may_pay(self, rows: int, weight: Tensor, factors: Factors) -> bool:
        size = factors.inputs.element_size()
        return factors.inputs.dtype in DTYPES and pays(
            rows, weight.shape, self._ranks, size, weight.element_size()
        )

    def settle(self, weight: Tensor, grad: Tensor | None) -> bool:
        """Keeps the factors of `weight` that make up `grad`, what its gradient is now; no others.

        Returns: False if there should be some.
        """
        new, old = self._in_pass.pop(weight, None), self._kept.pop(weight, None)
        if grad is None or weight in self._too_many:
            return True
        found = new if new is not None and torch.equal(new.product, grad) else None
        if found is None and old is not None:
            both = old if new is None else old.plus(new)
            found = both if torch.equal(both.product, grad) else None
        if found is None:
            return False
        if found.product.data_ptr() == grad.data_ptr():  # autograd took it as the gradient, which may change
            found = _Sum(found.parts, found.product.clone())
        self._kept[weight] = found
        return True

    def of(self, weight: Tensor) -> Factors | None:
        """The factors whose product the gradient of `weight` was when it was settled; None: unknown."""
        kept = self._kept.get(weight)
        return None if kept is None else Factors(*map(torch.cat, zip(*kept.parts, strict=True)))

    def clear(self) -> None:
        """The gradients have been exchanged."""
        for kept in (self._in_pass, self._kept, self._too_many):
            kept.clear()
