"""A matrix whose products any k of n parts give, encoded once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.data.coding.mds import mds_code
from tweed.errors import UsageError


class CodedMatrix:
    """A matrix in n coded parts, each with 1/k of its rows. Zeros fill up the last block.

    Args:
      matrix: `[rows, columns]`, float32 or float64, finite.
      n, k: parts, and how many of them are enough.
      points, digits: as in `mds_code`.

    Attributes:
      parts: `[n, ceil(rows / k), columns]`, of the matrix' dtype.
      code: the code.

    Raises: UsageError for another shape or dtype, for values that are not finite, for k above n or above the
      rows, and for a code that loses more digits than asked.
    Cost: n / k times the matrix in memory, and as much computing as `n - k` of n vectors' products.

    Example:
      >>> coded = CodedMatrix(np.arange(6.0).reshape(3, 2), n=3, k=2)
      >>> products = {number: coded.parts[number] @ np.ones(2) for number in (0, 2)}
      >>> coded.decode(products).round(9).tolist()
      [1.0, 5.0, 9.0]
    """

    def __init__(
        self, matrix: NDArray[Any], n: int, k: int, points: str = "systematic", digits: float = 6.0
    ) -> None:
        matrix = np.asarray(matrix)
        if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype not in (np.float32, np.float64):
            shape = f"{list(matrix.shape)} of {matrix.dtype}"
            raise UsageError(f"a matrix {shape} cannot be coded: give [rows, columns] of float32 or float64")
        if not np.isfinite(matrix).all():
            raise UsageError(
                "the matrix has values that are not finite: a code would spread them to all parts"
            )
        if k > len(matrix):
            raise UsageError(f"{len(matrix)} rows cannot be cut into k={k} blocks: give a smaller k")
        self.shape: tuple[int, int] = (matrix.shape[0], matrix.shape[1])
        self.code = mds_code(n, k, points, digits)
        height = -(-len(matrix) // k)
        filled = np.zeros((k * height, matrix.shape[1]), matrix.dtype)
        filled[: len(matrix)] = matrix
        self.parts: NDArray[Any] = self.code.encode(filled.reshape(k, height, -1))

    def check(self, x: NDArray[Any]) -> None:
        """Raises: UsageError if `x` is neither `[columns]` nor `[columns, q]`."""
        if x.ndim not in (1, 2) or len(x) != self.shape[1]:
            words = f"{list(self.shape)} cannot be multiplied by {list(x.shape)}"
            raise UsageError(f"a matrix {words}: give [{self.shape[1]}] or [{self.shape[1]}, q]")

    def is_enough(self, which: Sequence[int]) -> bool:
        """Whether the products of these parts give that of the matrix."""
        return self.code.is_enough(which)

    def decode(self, products: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
        """The product of the matrix, from those of k parts or more.

        Args:
          products: by the number of the part, `[ceil(rows / k)]` or `[ceil(rows / k), q]`, alike.

        Returns: `[rows]` or `[rows, q]`.
        Raises: UsageError for too few of them, for a subset that loses too many digits, and for other shapes,
          with the parts that have them.
        """
        height = self.parts.shape[1]
        shapes = {number: np.shape(product) for number, product in products.items()}
        usual = max([*shapes.values()], key=[*shapes.values()].count, default=())
        if wrong := {number: list(shape) for number, shape in shapes.items() if shape != usual}:
            raise UsageError(f"products have other shapes than {list(usual)}: {wrong}, by their parts")
        if products and usual[:1] != (height,):
            raise UsageError(f"products of shape {list(usual)} are none of parts with {height} rows")
        blocks = self.code.decode([*products], np.array([*products.values()]))
        return blocks.reshape(-1, *usual[1:])[: self.shape[0]]
