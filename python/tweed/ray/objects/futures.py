"""Calls under way: futures that can be waited for in threads and awaited in coroutines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tweed.errors import UsageError
from tweed.ray.objects.refs import Ref

T = TypeVar("T")
#: Who waits for the places of a sum looks so often whether it has ended, in seconds.
_PLACES_S = 0.05


class Future(concurrent.futures.Future[T], Generic[T]):
    """What a call will give. As any future: `result(timeout)`, `done()`; and `await future`."""

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


@dataclass(frozen=True)
class Reduced:
    """A sum that is complete.

    Args:
      ref: of the sum; others get it by this.
      array: the sum, read-only; of lists of arrays, a list.
      included: which refs are summed, by range of the flat array, in which those of a list follow each other:
        `(first element, end, refs)`, in order, without gaps. One range in mode "whole".
    """

    ref: Ref
    array: Any
    included: Sequence[tuple[int, int, frozenset[Ref]]]

    @property
    def refs(self) -> frozenset[Ref]:
        """The refs that are in every element."""
        return frozenset.intersection(*(refs for _, _, refs in self.included))

    def mean(self) -> Any:
        """Each element of a sum over the number of refs that are in it; an array, or a list of them.

        Cost: one pass and one copy.
        """
        if not isinstance(self.array, list):
            return self._mean_of(self.array, 0)
        begins = np.cumsum([0, *(array.size for array in self.array)])
        return [self._mean_of(array, int(begin)) for array, begin in zip(self.array, begins, strict=False)]

    def _mean_of(self, array: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
        flat = array.reshape(-1) / 1
        for begin, end, refs in self.included:
            flat[max(0, begin - first) : max(0, end - first)] /= len(refs)
        return flat.astype(np.result_type(array, np.float16), copy=False).reshape(array.shape)


class Reduction(Future[Reduced]):
    """A sum under way. `ref` may be sent and asked for at once: a copy flows while the sum forms."""

    def __init__(self, ref: Ref, placed: Callable[[float], list[int]]) -> None:
        super().__init__()
        self.ref, self._placed = ref, placed

    def placed(self) -> list[Ref]:
        """The refs that have places of the sum, as soon as all places are taken.

        They are in the sum unless a process dies, so whoever sent them may go on before it is complete. An
        empty list: the sum has ended, well or badly, or is of small objects, which have no places.
        """
        while not self.done():
            if found := self._placed(_PLACES_S):
                return [Ref(ref) for ref in found]
        return []


def wait(
    futures: Sequence[Future[Any]], count: int = 1, timeout: float | None = None
) -> tuple[list[Future[Any]], list[Future[Any]]]:
    """Waits until `count` of `futures` have ended, well or badly, or `timeout` seconds are over.

    Returns: those that have ended, and the others, both in the order given.

    Raises: UsageError if `count` is not from 1 to the number of futures.
    """
    if not 1 <= count <= len(futures):
        raise UsageError(f"count must be from 1 to the number of futures, {len(futures)}, not {count}")
    end = None if timeout is None else time.monotonic() + timeout
    while sum(future.done() for future in futures) < count:
        pending = [future for future in futures if not future.done()]
        left = None if end is None else max(0.0, end - time.monotonic())
        done, _ = concurrent.futures.wait(pending, left, concurrent.futures.FIRST_COMPLETED)
        if not done:
            break
    return [f for f in futures if f.done()], [f for f in futures if not f.done()]
