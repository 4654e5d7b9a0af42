"""Gradient descent of least squares, both of whose products may be coded. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

#: A product with a matrix: `CodedProducts`, or a plain one.
Product = Callable[[NDArray[Any]], NDArray[Any]]


def least_squares(
    forward: Product, backward: Product, y: NDArray[Any], *, steps: int, rate: float
) -> NDArray[Any]:
    """The weights after so many steps from zero: `w -= rate / rows * X^T (X w - y)`.

    Args:
      forward: the product with X, `[columns]` to `[rows]`.
      backward: that with the transpose of X, `[rows]` to `[columns]`.
      y: `[rows]`.

    Returns: `[columns]`.
    Raises: UsageError if the loss leaves the numbers: the rate is too large.
    Cost: both products in each step.

    Example:
      >>> x, y = np.eye(2), np.array([1.0, 2.0])
      >>> least_squares(x.dot, x.T.dot, y, steps=50, rate=1.0).round(6).tolist()
      [1.0, 2.0]
    """
    weights = np.zeros_like(backward(y))
    for step in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told below
            weights = weights - rate / len(y) * backward(forward(weights) - y)
        if not np.isfinite(weights).all():
            raise UsageError(f"gradient descent diverges at step {step + 1}: take a rate below {rate:g}")
    return weights
