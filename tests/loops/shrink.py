"""Makes a wrong program small: parts are left out or set back to the default, while it stays wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

from tests.loops.kinds import makes_group
from tests.loops.program import Program


def shrunk(program: Program, wrong: Callable[[Program], str], most: int = 60) -> Program:
    """The smallest program found that is `wrong`, in so many runs at most."""
    runs = 0
    progress = True
    while progress and runs < most:
        progress = False
        for smaller in _smaller(program):
            runs += 1
            if wrong(smaller):
                program, progress = smaller, True
                break
            if runs >= most:
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """First without operations, then without settings."""
    operations = program.operations
    half = len(operations) // 2
    if half:
        yield replace(program, operations=operations[half:])
        yield replace(program, operations=operations[:half])
    for index in range(len(operations)):
        yield replace(program, operations=operations[:index] + operations[index + 1 :])
    if program.ranks > 2 and not makes_group(program.strategy):  # see `draw`
        yield replace(program, ranks=2)
    yield from _set_back(program, skip=("strategy", "ranks", "operations"))
    for index, operation in enumerate(operations):
        for simpler in _set_back(operation, skip=()):
            yield replace(program, operations=(*operations[:index], simpler, *operations[index + 1 :]))


def _set_back(value: Any, skip: tuple[str, ...]) -> Iterator[Any]:
    for each in fields(value):
        if each.name in skip or each.default is MISSING or getattr(value, each.name) == each.default:
            continue
        yield replace(value, **{each.name: each.default})
