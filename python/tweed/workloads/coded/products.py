"""Coded products over processes of this machine: any k of n of them are enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.data.coding.product_times import AdaptiveK, best_k
from tweed.data.coding.times import Stragglers
from tweed.workloads.coded.matrix import CodedMatrix
from tweed.workloads.tasks import map_tasks

#: What is taken for the delays before a product was computed.
UNKNOWN = Stragglers(alpha=1.0, mu=1.0)


def multiply_part(part: NDArray[Any], x: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """The task: a part's product, and the seconds that it took."""
    began = time.perf_counter()
    product: NDArray[Any] = part @ x
    return product, time.perf_counter() - began


class CodedProducts:
    """Products of one matrix with many vectors or matrices, each over worker processes.

    Without `k`, the best one for these workers is learned from what parts took, and where it changes much
    the matrix is encoded again.

    Args:
      matrix: as of `CodedMatrix`.
      workers: processes, each with one part.
      k: parts that are enough; None: learned.
      deadline_s: seconds that a product may take; None: without limit.
      function: the task, as `multiply_part` or its name: it may be another one that returns the same.

    Attributes:
      coded: the matrix.
      choice: the k that is learned, and the model of delays; None if k was given.

    Raises: UsageError as `CodedMatrix` does.
    """

    def __init__(
        self,
        matrix: NDArray[Any],
        workers: int,
        k: int | None = None,
        deadline_s: float | None = None,
        function: Callable[..., Any] | str = multiply_part,
    ) -> None:
        self.matrix, self.workers, self.deadline_s, self.function = matrix, workers, deadline_s, function
        first = min([best_k(workers, UNKNOWN), *np.shape(matrix)[:1]]) if k is None else k
        self.coded = CodedMatrix(matrix, workers, first)
        self.choice = AdaptiveK(workers, first, len(matrix)) if k is None else None

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """The product with `x`.

        Args:
          x: `[columns]` or `[columns, q]`, of the matrix' dtype.

        Returns: `[rows]` or `[rows, q]`.
        Raises: UsageError for another shape, and what `map_tasks` raises of workers.
        Cost: `map_tasks`: processes are started and parts sent anew for each product, some 20 ms per worker
          and the matrix' bytes n / k times.
        """
        x = np.asarray(x)
        self.coded.check(x)
        coded = self.coded
        results: Mapping[int, tuple[NDArray[Any], float]] = map_tasks(
            self.function,
            coded.parts,
            shared=x,
            enough=lambda results: coded.is_enough([*results]),
            workers=self.workers,
            deadline_s=self.deadline_s,
        )
        product = coded.decode({number: product for number, (product, _) in results.items()})
        if self.choice is not None:
            self._use(self.choice.handle([seconds for _, seconds in results.values()]))
        return product

    def _use(self, k: int) -> None:
        """Encodes again if this is another k."""
        if k != self.coded.code.k:
            self.coded = CodedMatrix(self.matrix, self.workers, k)


def coded_matmul(
    matrix: NDArray[Any], x: NDArray[Any], workers: int, k: int | None = None, deadline_s: float | None = None
) -> NDArray[Any]:
    """One product over worker processes, known as soon as k of them have answered.

    Args:
      matrix: `[rows, columns]`, float32 or float64.
      x: `[columns]` or `[columns, q]`.
      workers: processes, each with one part.
      k: parts that are enough; None: the best one where delays are like `UNKNOWN`.
      deadline_s: seconds that all of it may take; None: without limit.

    Returns: `[rows]` or `[rows, q]`.
    Raises: as `CodedProducts`. For many products of one matrix use that: it encodes once.
    """
    return CodedProducts(matrix, workers, k, deadline_s)(x)
