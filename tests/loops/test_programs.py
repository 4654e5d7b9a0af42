"""Loops that nobody wrote: drawn programs run live, and end with the model that is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.loops import program as ops
from tests.loops import reference, simulated
from tests.loops.draw import programs, seeded
from tests.loops.judge import verdict
from tests.loops.kinds import HUBS, MEMBERS, NAMES, Kind, Refusal, is_plain, kind_of, refusal_of
from tests.loops.laws import plain
from tests.loops.program import Program, Skip, Step, parse
from tests.loops.ranks import StayingRanks
from tests.loops.shrink import shrunk
from tweed.recipes import RECIPES

#: With a server, whose loop is another one.
ELSEWHERE = {"ordered_gradient"}


@pytest.fixture(scope="module")
def ranks() -> Iterator[StayingRanks]:
    with StayingRanks(deadline_s=10.0) as started:
        yield started


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_a_loop_that_nobody_wrote_trains_what_it_should(program: Program, ranks: StayingRanks) -> None:
    words, _ = verdict(program, ranks)
    assert not words, f"{words}\npython -m tests.loops --program {str(program)!r}"


@given(program=programs())
def test_the_text_of_a_program_makes_it_again(program: Program) -> None:
    assert parse(str(program)) == program


@pytest.mark.parametrize("text", ["3", "Step(1)", "Program(operations=(print(),))"])
def test_other_text_is_no_program(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_every_named_strategy_is_drawn() -> None:
    drawn = {seeded(1, number).strategy for number in range(1000)}
    assert drawn == {*NAMES, *HUBS, MEMBERS}
    names = {
        name.partition("(")[0].partition(":")[0] for name in drawn if not name.startswith(("hub", MEMBERS))
    }
    assert names == {make.__name__ for make in RECIPES} - ELSEWHERE


def test_every_operation_is_drawn_with_each_kind_of_strategy() -> None:
    drawn = {
        (type(operation), kind_of(program.strategy))
        for program in (seeded(1, number) for number in range(3000))
        for operation in program.operations
    }
    kinds = set(Kind) - {Kind.HUB, Kind.MEMBERS}  # their loops do less
    for operation in (Step, Skip, ops.Rebind, ops.Move, ops.Resume, ops.Fewer, ops.Cast, ops.ClearSome):
        assert {kind for each, kind in drawn if each is operation} >= kinds
    assert {each for each, _ in drawn} == set(ops.Operation.__args__)


@pytest.mark.parametrize("name", [name for name in NAMES if is_plain(name)])
def test_virtual_workers_and_twenty_lines_of_torch_agree(name: str) -> None:
    steps = (Step(1), Step(2, passes=2, clip=True), ops.Schedule(), Step(3), ops.Evaluate(), Step(4))
    program = Program(name, 3, momentum=0.5, operations=steps)
    one, other = reference.expected(program), simulated.expected(program)
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-6)
    torch.testing.assert_close(one.looks, other.looks, rtol=0, atol=1e-6)


def test_a_plain_program_is_its_own_plain_form_and_has_no_habits() -> None:
    for number in range(300):
        form = plain(seeded(2, number))
        assert plain(form) == form
        assert not form.has(Skip, ops.Rebind, ops.Resume, ops.Combine, ops.Teach)


def test_only_misuse_must_be_refused() -> None:
    rules = [refusal_of(seeded(3, number)) for number in range(1000)]
    assert 50 < rules.count(Refusal.MUST) < 250 and rules.count(Refusal.NEVER) > 600


def test_a_wrong_program_is_made_small() -> None:
    """Wrong is whatever has a step by hand and a skipped batch."""

    def wrong(program: Program) -> str:
        hands = [one for one in program.operations if isinstance(one, Step) and one.by == "hand"]
        return "wrong" if hands and program.has(Skip) else ""

    steps = (Step(1, clip=True), Step(2, by="hand", clear="zero"), ops.Move(), Skip(3), ops.Finish())
    large = Program("sign", 4, "tweed", momentum=0.5, operations=steps)
    small = shrunk(large, wrong)
    assert small == replace(Program("sign", 2), operations=(Step(2, by="hand"), Skip(3)))
