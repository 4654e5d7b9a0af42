"""Exchanges that pause while something is under way.

A `Pending` begins collectives, yields, and waits for them when it is gone on with; perhaps it then begins
others. It begins when it is first gone on with. Who wants the result at once calls `wait_for`; who has
something else to do meanwhile calls `next`. All ranks must go on with the same ones in the same order, as
that is the order of their collectives.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

T = TypeVar("T")

Pending = Generator[None, None, T]


def wait_for(pending: Pending[T]) -> T:
    """Goes on with `pending` to its end, without a pause. Returns its result.

    Example:
      >>> def begun():
      ...     yield
      ...     return "what came of it"
      >>> wait_for(begun())
      'what came of it'
    """
    while True:
        try:
            next(pending)
        except StopIteration as end:
            found: T = end.value
            return found


def together(several: Sequence[Pending[T]]) -> Pending[list[T]]:
    """All of these at once: goes on with each of them, and pauses where one of them does.

    Returns: their results, in order.
    """
    found: dict[int, T] = {}
    while True:
        for number, one in enumerate(several):
            if number not in found:
                try:
                    next(one)
                except StopIteration as end:
                    found[number] = end.value
        if len(found) == len(several):
            return [found[number] for number in range(len(several))]
        yield
