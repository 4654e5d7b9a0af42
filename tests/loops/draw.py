"""Draws programs that a user could have written, from any source of choices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.loops import program as ops
from tests.loops.kinds import (
    HUBS,
    MEMBERS,
    NAMES,
    Kind,
    is_plain,
    kind_of,
    makes_group,
    measures,
    strategy_of,
)
from tests.loops.program import Operation, Program, Skip, Step
from tests.loops.ranks import BACKENDS, MOST_RANKS

#: Picks one of several; the first is the simplest.
Choose = Callable[[Sequence[Any]], Any]

_STRATEGIES = (*NAMES[:3] * 4, *NAMES[3:7] * 2, *NAMES[3:-3], *NAMES[:1] * 2, *NAMES[-3:], *HUBS, MEMBERS)
_MOST_OPERATIONS = 8
_REBINDS = ("data", "vector", "swap", "format", "parameter", "buffer")


@dataclass
class Drawing:
    """A program that is being drawn.

    Attributes:
      choose: the source of choices.
      program: so far without operations.
      partial: parts of the model may have no gradient: then there is no momentum, which would go on without.
      data: number of the next batch.
      pending: the last exchange was of a batch that was skipped.
      frozen, grouped: the head requires no gradient; its group was added.
    """

    choose: Choose
    program: Program
    partial: bool
    adds: bool
    data: int = 0
    pending: bool = False
    frozen: bool = False
    grouped: bool = False
    operations: list[Operation] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        """Of the strategy."""
        return kind_of(self.program.strategy)

    @property
    def pulls(self) -> bool:
        """Steps are pulled back: what that adds to gradients is in those that are kept."""
        return strategy_of(self.program.strategy).cadence.proximal > 0

    def flag(self, odds: int = 2) -> bool:
        """True once in so many draws."""
        return bool(self.choose([False] * (odds - 1) + [True]))

    def batch(self) -> int:
        """The number of a new batch; the one after it is free too."""
        self.data += 2
        return self.data

    def step(self) -> Step:
        """A batch that is learned."""
        self.pending = False
        by = self.choose(self._steppers())
        if by in ("closure", "backward"):
            return Step(self.batch(), by=by)
        passes = self.choose([1, 1, 1, 2, 3])
        clear = self.choose(["none", "zero", "hand"])
        return Step(
            self.batch(),
            passes=passes,
            sync=passes > 1 and self.flag(),
            by=by,
            uses=self.choose(["all", "body", "odd"]) if self.partial else "all",
            clip=self.flag(4),
            clear=clear,
            keep=clear != "zero" and not self.pulls and self.flag(3),
            between=self.choose(["", "", "", "rebind", "averaged", "state", "forward"]),
        )

    def _steppers(self) -> list[str]:
        program, found = self.program, ["optimizer"] * 4
        plain = is_plain(program.strategy)
        if self.kind is Kind.HUB:
            return found
        # A cadence that goes by steps does not hear of one by hand; and then others tell nothing apart.
        if not program.momentum and not measures(program.strategy):
            found += ["hand"] if self.kind is not Kind.MODEL or plain else []
        if program.optimizers == "one" and not program.scaler:
            found += ["closure"]
        if program.optimizers == "each" and self.kind is Kind.MODEL and not self.frozen:
            found += ["backward"] * 3
        return found

    def skip(self) -> Skip:
        """A batch that is thrown away."""
        why = self.choose(["spike", "spike", "raised", *["overflow"] * self.program.scaler])
        clear = self.choose(["none", "zero", "hand"])
        quiet = why != "overflow" and self.flag(4)
        self.pending |= why == "spike" and not quiet
        return Skip(self.batch(), why, clear, quiet, clear != "zero" and why == "spike" and self.flag(3))

    def operation(self) -> Operation:
        """Any."""
        if self.kind is Kind.HUB:
            return self._at_a_worker()
        if self.kind is Kind.MEMBERS:
            return self._at_a_member()
        makes: list[Callable[[], Operation]] = [
            *[self.step] * 6,
            *[self.skip] * 3,
            *[lambda: ops.Rebind(self.choose(_REBINDS))] * 2,
            *[lambda: ops.Resume(self.batch() if self.flag() else None)] * 2,
            ops.Teach,
            ops.Evaluate,
            ops.Finish,
            ops.Schedule,
        ]
        if self.kind in (Kind.SUM, Kind.MODEL):
            makes.append(lambda: ops.Combine(self.batch()))
        # What moves after a batch that was skipped may as well be a step by hand.
        if not (self.pending and self.kind in (Kind.MEMORY, Kind.DIRECT)):
            makes.append(lambda: ops.Move(self.flag()))
        if self.partial:
            makes.append(self._freeze)
        if self.adds and not self.grouped:
            makes += [self._add_group] * 2
        return self.choose(makes)()

    def _at_a_member(self) -> Operation:
        """Any that a member may do; each step is an iteration."""
        makes: list[Callable[[], Operation]] = [
            *[self._iteration] * 3,
            lambda: ops.Rebind(self.choose(_REBINDS)),
            lambda: ops.Move(self.flag()),
            ops.Teach,
            ops.Schedule,
        ]
        return self.choose(makes)()

    def _iteration(self) -> Step:
        clear = self.choose(["none", "zero", "hand"])
        between = self.choose(["", "rebind", "state", "forward"])
        return Step(self.batch(), clip=self.flag(4), clear=clear, between=between)

    def _at_a_worker(self) -> Operation:
        """Any that a worker of a hub may do."""
        makes: list[Callable[[], Operation]] = [
            *[self.step] * 4,
            *[self.skip] * 2,
            *[lambda: ops.Rebind(self.choose(_REBINDS))] * 2,
            ops.Teach,
            lambda: ops.Combine(self.batch()),
        ]
        if self.program.strategy == "hub":  # within a round, workers' models are their own
            makes.append(ops.Evaluate)
        return self.choose(makes)()

    def _freeze(self) -> Operation:
        self.frozen = not self.frozen
        return ops.Freeze(thaw=not self.frozen)

    def _add_group(self) -> Operation:
        self.grouped = True
        return ops.AddGroup()

    def misuse(self) -> Operation | None:
        """What may be refused, at the end of a program."""
        kind, program = self.kind, self.program
        makes: list[Callable[[int], Operation]] = [ops.Cast, ops.Foreign]
        if program.idle:
            makes.append(ops.Unfreeze)
        if kind is Kind.HUB:
            return self.choose(makes)(self.batch())
        if program.ranks > 1:
            makes += [ops.Fewer] * 2
        if not (self.frozen or self.adds):
            makes += [ops.ClearSome] * 2
        if program.ranks > 1 and kind is Kind.MEMORY:
            makes += [ops.Differ] * 3
        if program.optimizers == "each" and kind is not Kind.MODEL and not self.frozen:
            makes += [lambda data: Step(data, by="backward")] * 4
        if program.strategy.startswith(("auto", "ltp")) or kind is Kind.MEMBERS:
            return None
        return self.choose(makes)(self.batch())


def drawn(choose: Choose) -> Program:
    """A program."""
    strategy, backend = choose(_STRATEGIES), choose(BACKENDS)
    hub, members = kind_of(strategy) is Kind.HUB, strategy == MEMBERS
    apart = hub or members
    partial, adds = not apart and choose([False, True]), not apart and choose([False, False, False, True])
    scaler = not (partial or apart) and choose([False, False, True])
    optimizers = "one" if adds or partial or apart else choose(["one", "two", "each"])
    program = Program(
        strategy,
        # A group of some ranks alone counts torch's groups up there alone, and later ones of all ranks hang.
        MOST_RANKS if makes_group(strategy) else choose([2, 1, 3, 4]),
        backend,
        double=members or (not hub and choose([False, False, True])),
        momentum=0.0 if partial or hub else choose([0.0, 0.5]),
        optimizers="two" if scaler and optimizers == "each" else optimizers,
        scaler=scaler,
        idle=optimizers != "each" and choose([False, False, True]),
        buckets=choose([True, True, False]),
    )
    drawing = Drawing(choose, program, partial, adds)
    count = choose(range(1, _MOST_OPERATIONS + 1))
    operations = [drawing.operation() for _ in range(count)]
    if drawing.flag(5) and (last := drawing.misuse()) is not None:
        operations.append(last)
    elif adds and not drawing.grouped:
        operations.append(ops.AddGroup())
    elif drawing.pending:
        operations.append(Step(drawing.batch()))
    return Program(**{**_fields(program), "operations": tuple(operations)})


def _fields(program: Program) -> dict[str, Any]:
    return {name: getattr(program, name) for name in program.__dataclass_fields__}


def seeded(seed: int, number: int) -> Program:
    """Program `number` of `seed`: always the same."""
    return drawn(random.Random(f"{seed} {number}").choice)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs for hypothesis, which shrinks them."""
    return drawn(lambda options: draw(st.sampled_from(options)))
