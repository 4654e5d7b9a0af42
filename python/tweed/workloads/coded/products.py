"""Coded products over processes of this machine: any k of n of them are enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.data.coding.product_times import AdaptiveK, best_k
from tweed.data.coding.times import Stragglers
from tweed.workloads.coded.matrix import CodedMatrix
from tweed.workloads.tasks import LocalWorkers, map_tasks

#: What is taken for the delays before a product was computed.
UNKNOWN = Stragglers(alpha=1.0, mu=1.0)


def multiply_part(path: str, x: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """The task: the product of the part in a file, and the seconds that it took."""
    began = time.perf_counter()
    product: NDArray[Any] = np.load(path, mmap_mode="r") @ x
    return np.asarray(product), time.perf_counter() - began


class PartFiles:
    """The parts of a coded matrix in files, which workers of this machine map instead of being sent them.

    Attributes:
      paths: by part. They are removed with this object.
    """

    def __init__(self, parts: NDArray[Any]) -> None:
        self._folder = TemporaryDirectory(prefix="tweed-parts-")
        self.paths = [f"{self._folder.name}/{number}.npy" for number in range(len(parts))]
        for path, part in zip(self.paths, parts, strict=True):
            np.save(path, part)


class CodedProducts:
    """Products of one matrix with many vectors or matrices, each over worker processes.

    Without `k`, the best one for these workers is learned from what parts took, and where it changes much
    the matrix is encoded again.

    Args:
      matrix: as of `CodedMatrix`.
      workers: processes, each with one part; or workers that stand, for many products.
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
        workers: int | LocalWorkers,
        k: int | None = None,
        deadline_s: float | None = None,
        function: Callable[..., Any] | str = multiply_part,
    ) -> None:
        self.matrix, self.workers, self.deadline_s, self.function = matrix, workers, deadline_s, function
        n = workers.count if isinstance(workers, LocalWorkers) else workers
        first = min([best_k(n, UNKNOWN), *np.shape(matrix)[:1]]) if k is None else k
        self._encode(n, first)
        self.choice = AdaptiveK(n, first, len(matrix)) if k is None else None

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """The product with `x`.

        Args:
          x: `[columns]` or `[columns, q]`, of the matrix' dtype.

        Returns: `[rows]` or `[rows, q]`.
        Raises: UsageError for another shape, and what `map_tasks` raises of workers.
        Cost: as of `map_tasks`: some 20 ms per worker that does not stand. Parts are on disk, and not sent.
        """
        x = np.asarray(x)
        self.coded.check(x)
        coded = self.coded
        results: Mapping[int, tuple[NDArray[Any], float]] = map_tasks(
            self.function,
            self._files.paths,
            shared=x,
            enough=lambda results: coded.is_enough([*results]),
            workers=self.workers,
            deadline_s=self.deadline_s,
        )
        product = coded.decode({number: product for number, (product, _) in results.items()})
        if self.choice is not None:
            k = self.choice.handle([seconds for _, seconds in results.values()])
            if k != coded.code.k:
                self._encode(coded.code.n, k)
        return product

    def _encode(self, n: int, k: int) -> None:
        self.coded = CodedMatrix(self.matrix, n, k)
        self._files = PartFiles(self.coded.parts)


def coded_matmul(
    matrix: NDArray[Any],
    x: NDArray[Any],
    workers: int | LocalWorkers,
    k: int | None = None,
    deadline_s: float | None = None,
) -> NDArray[Any]:
    """One product over worker processes, known as soon as k of them have answered.

    Args:
      matrix: `[rows, columns]`, float32 or float64.
      x: `[columns]` or `[columns, q]`.
      workers: processes, each with one part; or workers that stand.
      k: parts that are enough; None: the best one where delays are like `UNKNOWN`.
      deadline_s: seconds that all of it may take; None: without limit.

    Returns: `[rows]` or `[rows, q]`.
    Raises: as `CodedProducts`. For many products of one matrix use that: it encodes once.
    """
    return CodedProducts(matrix, workers, k, deadline_s)(x)
