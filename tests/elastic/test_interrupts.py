"""An exception of a user's is an end: what it breaks off has happened or has not; no sum is of two steps."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.elastic.interrupts import Interrupt, interrupted, interrupted_joiner
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic.commit import Position
from tweed.elastic.epoch_transition import EpochTransition
from tweed.elastic.join_transfers import JoinTransfers
from tweed.elastic.local_state import LocalState
from tweed.elastic.member import Standing
from tweed.elastic.messages import Give
from tweed.elastic.results import Results
from tweed.elastic.state import State
from tweed.errors import PeerLost
from tweed.testbed import Ranks

NAMES, NUMEL = ("a", "b"), 3
SAMPLER = Sampler(GlobalOrder(60), 12)


class Told:
    """In the place of `Control`: a real donor to one joiner, and which steps it was told."""

    key = "a"

    def __init__(self) -> None:
        self.joiners, self.step_ = JoinTransfers("a"), 0
        self.joiners.begin([], ["a"])
        self.joiners.handle("b", Give("new", 0, 0, ["a"]), ["a"])

    def step(self, step: int) -> None:
        """See `Control`."""
        self.step_ = step
        self.joiners.step(step)

    def give_result(self, step: int, result: Tensor, where: Any) -> None:
        """See `Control`."""
        self.joiners.give_result(step, result, where, 0, 1.0)

    @property
    def said(self) -> list[bytes]:
        """To the joiner."""
        found = []
        while (said := self.joiners.poll(1.0)) is not None:
            found.append(said[1])
        return found


class Case:
    """Member "a" of two, whose step 0 counts and whose caller has it."""

    def __init__(self) -> None:
        self.model = nn.Linear(NUMEL, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.control: Any = Told()
        self.local = LocalState(self.control, Results({"model": self.model}, []), SAMPLER)
        self.local.found(None, "run")
        self.control.joiners.give_state(0, lambda: self.local.now, 0.0)
        standing = Standing(Position(0, False), (), SAMPLER.where, behind=False)
        self.local.member.enter(NAMES, {0: standing, 1: standing})
        contribute(self)
        summed(self)
        self.local.result()

    @property
    def what(self) -> list[Any]:
        """All of it, in comparable form."""
        local, member = self.local, self.local.member
        kept = [member.commit.contribution, member.commit.result, self.model.weight]
        tensors = [None if one is None else one.flatten().tolist() for one in kept]
        means = [mean.tolist() for mean, _ in local.step._means]
        steps = (
            member.steps_done,
            local.given,
            local.step.steps,
            member.commit.samples,
            member.sampler.where,
        )
        return [*tensors, means, *steps, local.step.is_held, tuple(member.samples() or ())]


def contribute(case: Case) -> None:
    case.local.contribute(torch.full((NUMEL,), 6.0), None)


def a_part(case: Case) -> None:
    case.local.contribute(torch.full((NUMEL,), 2.0), 2)


def summed(case: Case) -> None:
    case.local.summed(torch.tensor([24.0] * NUMEL + [12.0]))


def take(case: Case) -> None:
    case.local.take(
        torch.full((NUMEL,), 5.0), case.local.member.sampler.counted(case.local.member.deal).where
    )


def result(case: Case) -> None:
    case.local.result(copied=True)


def begin_step(case: Case) -> None:
    case.local.begin_step()


@cache
def state_of_another() -> State:
    other = Case()
    nn.init.ones_(other.model.weight)
    for move in (contribute, summed, result):
        move(other)
    return other.local.now.copy()


def replace(case: Case) -> None:
    case.local.replace(state_of_another().copy())


#: What happens before, and the move that is interrupted.
MOVES: dict[str, tuple[tuple[Callable[[Case], None], ...], Callable[[Case], None]]] = {
    "a contribution": ((), contribute),
    "its second part": ((a_part,), contribute),
    "a sum": ((contribute,), summed),
    "a result of others": ((contribute,), take),
    "a mean": ((contribute, summed), result),
    "a mean within a step": ((begin_step, contribute, summed), result),
    "the begin of a step": ((begin_step, contribute, summed, result), begin_step),
    "a whole state": ((), replace),
    "a whole state within a step": ((begin_step, contribute, summed, result), replace),
    "what was held within a step": ((begin_step, contribute, summed, result, replace), begin_step),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_move_that_is_interrupted_at_any_moment_has_not_happened_or_has(name: str) -> None:
    wanted, moment, came = ended(name, 0)[1], 0, True
    while came:
        moment += 1
        came, found = ended(name, moment)
        assert found == wanted, f"interrupted at moment {moment}"
    assert moment > 3


def ended(name: str, moment: int) -> tuple[bool, list[Any]]:
    """What there is at the end of a move, which is interrupted at this moment and done again if it has not
    happened; and whether the moment came."""
    before, move = MOVES[name]
    state_of_another()
    case = Case()
    for one in before:
        one(case)
    local = case.local
    member, given = local.member, local.given
    with Interrupt(moment) as interrupt:
        move(case)
    if interrupt.came and local.member is member and local.given == given:
        move(case)
    if local.member.steps_done > local.given and not local.step.is_held:
        local.result()  # as `due` ends then
    return interrupt.came, [*case.what, case.control.step_, case.control.said]


class Backend:
    """In the place of a group's: notes what was aborted."""

    def __init__(self) -> None:
        self.aborted = 0

    def abort(self) -> None:
        """Of the groups."""
        self.aborted += 1


@pytest.mark.parametrize(
    ("error", "aborts"), [(KeyboardInterrupt(), 1), (OSError("disk"), 1), (PeerLost("b is lost"), 0)]
)
def test_an_exception_within_calls_of_a_group_ends_them_at_all(error: BaseException, aborts: int) -> None:
    case = Case()
    case.control.joins, case.control.when_changed = False, lambda call: None
    transition = EpochTransition(case.control, case.local, 1.0, "")
    backend: Any = Backend()
    transition._groups = backend
    with transition.calls():
        assert transition.is_broken, "until they have ended"
    assert not transition.is_broken
    with pytest.raises(type(error)) as raised, transition.calls():
        raise error
    assert raised.value is error
    assert (transition.is_broken, backend.aborted) == (True, aborts)


def test_after_interruptions_at_any_moment_of_a_step_and_of_a_meeting_each_mean_is_that_of_its_step() -> None:
    store, first = (
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
        1 + secrets.randbelow(73),
    )
    print(f"from moment {first} on")
    with Ranks(interrupted, 2, store.port, range(first, 10**6, 73)) as ranks:
        ended = ranks.join(100)
    assert [wrong for *_, wrong in ended] == [[], []]
    (of_other, none, _), (of_interrupted, came, _) = ended
    assert of_other == of_interrupted and none == 0 and came > 10


def test_a_joiner_that_is_interrupted_while_it_takes_what_others_give_asks_anew_and_is_let_in() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(interrupted_joiner, 3, store.port, range(5, 230, 25)) as ranks:
        ended = ranks.join(100)
    assert [wrong for *_, wrong in ended] == [[], [], []]
    assert len({steps for steps, *_ in ended}) == 1 and ended[2][1] > 3
