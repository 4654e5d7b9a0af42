"""Whether what came of a program is right, and if not, in which words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.loops import members, reference, simulated
from tests.loops import program as ops
from tests.loops.attached import Outcome
from tests.loops.kinds import MEMBERS, Refusal, is_plain, is_timed, keeps_step, refusal_of
from tests.loops.laws import plain
from tests.loops.net import Net
from tests.loops.program import Program
from tests.loops.ranks import Broken, StayingRanks
from tests.loops.reference import Expected

#: Errors that say that the group is broken, and not that the loop is.
_NO_REFUSAL = ("PeerLost", "DeadlineExceeded", "Aborted")


def expected(program: Program) -> Expected | None:
    """What is right for a program, by a reference that runs no hook; None if there is none."""
    if refusal_of(program) is Refusal.MUST or program.has(ops.Differ):
        return None
    if program.strategy == MEMBERS:
        return members.expected(plain(program, looks=True))
    if is_plain(program.strategy):
        return reference.expected(plain(program, looks=True))
    if simulated.can_simulate(plain(program, looks=True)):
        return simulated.expected(plain(program, looks=True))
    return None


def verdict(program: Program, ranks: StayingRanks) -> tuple[str, str]:
    """Runs a program, and its plain form where no reference says what is right.

    Returns: what is wrong, empty if all is right; and what was refused, by the name of the operation.
    """
    ranks.send(program)
    right = expected(program)
    outcomes = ranks.receive(program)
    if isinstance(outcomes, Broken):
        return outcomes.text, ""
    refused = any(one.refused for one in outcomes)
    if refused or refusal_of(program) is Refusal.MUST:
        return _wrong_refusal(program, outcomes), type(program.operations[-1]).__name__ if refused else ""
    if words := _wrong_in_itself(outcomes):
        return words, ""
    if right is None and keeps_step(program.strategy) and not is_timed(program.strategy):
        twin = plain(program)
        if twin != program:
            return _unlike(program, outcomes, twin, ranks), ""
    return ("" if right is None else _wrong_values(program, outcomes, right)), ""


def _wrong_refusal(program: Program, outcomes: Sequence[Outcome]) -> str:
    rule = refusal_of(program)
    texts = [one.refused for one in outcomes if not (one.left or one.serves)]
    if not any(texts):
        return "not refused at any rank"
    if rule is Refusal.NEVER:
        return f"refused, which it must not be: {next(filter(None, texts))}"
    if not all(texts):
        return f"refused at some ranks alone: {texts}"
    if broken := [text for text in texts if text.startswith(_NO_REFUSAL)]:
        return f"no refusal, but {broken[0]}"
    return ""


def _wrong_in_itself(outcomes: Sequence[Outcome]) -> str:
    """What must hold of any program."""
    there = [one for one in outcomes if not one.left]
    if laws := [words for one in there for words in one.wrong]:
        return laws[0]
    for name, first in there[0].equal.items():
        if not all(_same(first, one.equal[name]) for one in there if one.equal):
            return f"{name} is not the same on all ranks at the end"
    fresh = dict(Net(torch.float32).named_buffers())
    for name in ("mask", "lowest"):
        if any(not _same(one.equal[name].float(), fresh[name].float()) for one in there if name in one.equal):
            return f"the buffer {name} has other values at the end"
    workers = [one for one in there if not one.serves]
    for number, looks in enumerate(zip(*(one.looks for one in workers), strict=True)):
        if not all(_same(looks[0], look) for look in looks):
            return f"evaluation {number} sees another model on each rank"
    return ""


def _wrong_values(program: Program, outcomes: Sequence[Outcome], right: Expected) -> str:
    mine = _one(outcomes)
    assert mine.flat is not None
    for number, (seen, look) in enumerate(zip(mine.looks, right.looks, strict=True)):
        if words := _far(program, seen, look):
            return f"evaluation {number} {words}"
    words = _far(program, mine.flat, right.flat)
    return f"the model {words}" if words else ""


def _unlike(program: Program, outcomes: Sequence[Outcome], twin: Program, ranks: StayingRanks) -> str:
    others = ranks.run(twin)
    if isinstance(others, Broken):
        return f"the plain form {twin}: {others.text}"
    if refused := [one.refused for one in others if one.refused]:
        return f"the plain form {twin} is refused: {refused[0]}"
    mine, true = _one(outcomes).flat, _one(others).flat
    assert mine is not None and true is not None
    words = _far(program, mine, true)
    return f"the model {words} (of the plain form {twin})" if words else ""


def _one(outcomes: Sequence[Outcome]) -> Outcome:
    """Of the last rank that was there to the end: a hub is the first."""
    return [one for one in outcomes if not one.left][-1]


def _far(program: Program, mine: Tensor, true: Tensor) -> str:
    """Float64 holds to 1e-9 where a strategy computes in it."""
    exact = program.double and is_plain(program.strategy) and not program.strategy.startswith("diloco")
    rounded = 1e-2 if program.strategy.startswith("half") else 1e-5
    difference = float((mine.double() - true.double()).abs().max())
    if difference <= (1e-9 if exact else rounded):
        return ""
    return f"is off by {difference:.2e} from what is right"


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or bool((one.isnan() & other.isnan() | (one == other)).all())
