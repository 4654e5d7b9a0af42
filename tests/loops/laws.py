"""The law of each habit: what a program may as well have done, without changing what it trains.

skipped = never met, rebound = in place, kept = cloned, resumed = not stopped, frozen = absent; and a step by
hand is a step of the optimizer, where gradients are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.loops import program as ops
from tests.loops.kinds import Kind, kind_of
from tests.loops.program import Operation, Program, Skip, Step


def plain(program: Program, *, looks: bool = False) -> Program:
    """The same program without habits. With `looks`, evaluations stay."""
    by_hand = kind_of(program.strategy) is Kind.MODEL  # moves the model, and is no step for the cadence
    operations = tuple(
        new for operation in program.operations for new in _plain(operation, by_hand=by_hand, looks=looks)
    )
    return replace(program, operations=operations, idle=False, optimizers="one")


def _plain(operation: Operation, *, by_hand: bool, looks: bool) -> Iterator[Operation]:
    match operation:
        case Step():
            by = "hand" if operation.by == "hand" and by_hand else "optimizer"
            yield replace(operation, by=by, keep=False, between="")
        case Skip() | ops.Rebind() | ops.Teach() | ops.Resume(None):
            return
        case ops.Evaluate():
            if looks:
                yield operation
        case ops.Combine(data):
            yield Step(data, passes=2, sync=True)
        case ops.Move():
            yield ops.Move()
        case ops.Resume(int(data)):
            yield Step(data)
        case _:
            yield operation
