"""Exchanges whose gradients nobody uses: skipped batches, GANs, steps by hand."""

from __future__ import annotations

import copy
import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import batch, equal, make, on_each_backend, params
from tests.hooks.test_misuse import Heard
from tweed.errors import UsageError
from tweed.testbed import run_ranks

#: With a residual; with a shared factor; with draws; with thresholds that are kept; with nothing of the kind.
STRATEGIES = ("top_k:0.1", "powersgd:2", "quantised", "dct:0.5", "every_step", "urgent")


def net() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loss(model: nn.Module, rank: int, number: int) -> Tensor:
    return model(batch(rank, number)).square().mean()


def skips(rank: int, strategy: str, skipped: bool, set_to_none: bool) -> list[Tensor]:
    model, optimizer = net()
    with tweed.attach(model, optimizer, strategy, bucket_bytes=40):
        for number in range(6):
            if number in (2, 3):
                if not skipped:
                    continue
                (1000 * loss(model, rank, number)).backward()
            else:
                loss(model, rank, number).backward()
                optimizer.step()
            optimizer.zero_grad(set_to_none)
    return params(model)


def skipped_like_never_met(rank: int, size: int) -> list[str]:
    wrong = []
    for strategy, set_to_none in itertools.product(STRATEGIES, (True, False)):
        never = skips(rank, strategy, False, set_to_none)
        if not equal(skips(rank, strategy, True, set_to_none), never):
            wrong.append(f"{strategy}, set_to_none={set_to_none}")
    return wrong


@on_each_backend
def test_a_skipped_batch_is_as_if_it_had_never_been(backend: str) -> None:
    assert run_ranks(skipped_like_never_met, 2, backend=backend) == [[], []]


def skips_before_closure(rank: int, size: int) -> list[str]:
    wrong = []
    for strategy in STRATEGIES:
        ends = []
        for skipped in (False, True):
            model, optimizer = net()

            def closure(number: int) -> Tensor:
                optimizer.zero_grad()  # noqa: B023 - called in this turn of the loop
                value = loss(model, rank, number)  # noqa: B023
                value.backward()
                return value

            with tweed.attach(model, optimizer, strategy):
                for number in range(4):
                    if skipped and number == 2:
                        closure(9)
                    optimizer.step(partial(closure, number))
            ends.append(params(model))
        if not equal(*ends):
            wrong.append(strategy)
    return wrong


def test_a_batch_that_is_skipped_before_a_step_with_a_closure_is_as_if_it_had_never_been() -> None:
    assert run_ranks(skips_before_closure, 2, backend="gloo") == [[], []]


def by_hand(rank: int, size: int) -> list[str]:
    """Which strategies lose what they have yet to send where the loop steps without the optimizer."""
    wrong = []
    for strategy in STRATEGIES:
        ends = []
        for hand in (False, True):
            model, optimizer = net()
            with tweed.attach(model, optimizer, strategy):
                for number in range(6):
                    loss(model, rank, number).backward()
                    if not hand:
                        optimizer.step()
                    for param in model.parameters() if hand else ():
                        param.data -= 0.1 * param.grad
                    optimizer.zero_grad()
            ends.append(params(model))
        if not all(torch.allclose(*both, atol=1e-6) for both in zip(*ends, strict=True)):
            wrong.append(strategy)
    return wrong


def test_a_step_by_hand_uses_the_exchange() -> None:
    assert run_ranks(by_hand, 2, backend="gloo") == [[], []]


def gan(rank: int, strategy: str, how: str) -> list[Tensor]:
    (generator, g_steps), (critic, c_steps) = net(), net()
    critic[0] = nn.Linear(2, 6)
    c_steps = torch.optim.SGD(critic.parameters(), lr=0.1)
    with (
        tweed.attach(generator, g_steps, strategy),
        tweed.attach(critic, c_steps, strategy) as run,
    ):
        for number in range(4):
            fake = generator(batch(rank, number))
            critic.requires_grad_(how != "frozen")
            if how == "no_sync":
                with run.no_sync():
                    critic(fake).square().mean().backward()
            else:
                critic(fake).square().mean().backward()
            g_steps.step()
            g_steps.zero_grad()
            critic.requires_grad_(True)
            c_steps.zero_grad()
            critic(fake.detach()).sin().mean().backward()
            c_steps.step()
    return [*params(generator), *params(critic)]


def gans(rank: int, size: int) -> list[str]:
    ways = [(strategy, how) for strategy in STRATEGIES for how in ("thrown away", "no_sync")]
    right = {strategy: gan(rank, strategy, "frozen") for strategy in STRATEGIES}
    return [
        f"{strategy} {how}" for strategy, how in ways if not equal(gan(rank, strategy, how), right[strategy])
    ]


def test_gradients_that_a_generator_leaves_do_not_come_back() -> None:
    assert run_ranks(gans, 2, backend="gloo") == [[], []]


def refused(rank: int, size: int, case: str) -> str:
    model, optimizer = net()
    run = tweed.attach(model, optimizer, "top_k:0.9")
    heard = ""
    try:
        for number in range(3):
            if case == "partly" and number == 1:
                for param in list(model.parameters())[:2]:
                    param.grad = None
            elif not (case == "differ" and number == 1 and rank == 1):
                optimizer.zero_grad()
            loss(model, rank, number).backward()
            if number != 0:
                optimizer.step()
    except UsageError as error:
        heard = str(error)
    run.detach()
    return heard


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("partly", "some of them were cleared, as that of '0.weight'"),
        ("differ", "ranks [0] took no step with the gradients of the last exchange and cleared them"),
    ],
)
@on_each_backend
def test_all_ranks_are_told_of_what_can_neither_be_used_nor_taken_back(
    case: str, words: str, backend: str
) -> None:
    for heard in run_ranks(refused, 2, case, backend=backend):
        assert words in heard


def alone(rank: int, size: int, strategy: str) -> str:
    """One rank skips a batch that all others learn."""
    model, optimizer = make()
    run = tweed.attach(model, optimizer, strategy)
    try:
        for number in range(4):
            loss(model, rank, number).backward()
            if not (rank == 1 and number == 1):
                optimizer.step()
            optimizer.zero_grad()
    except UsageError as error:
        return str(error)
    finally:
        run.detach()
    return ""


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("every_step", "ranks have taken other numbers of steps since attach, by rank [2, 1, 2]"),
        ("urgent", "ranks have taken other numbers of steps since attach, this one"),
        ("top_k:0.1", "ranks [1] took no step with the gradients of the last exchange"),
    ],
)
@on_each_backend
def test_a_rank_that_skips_alone_is_refused_at_all(strategy: str, words: str, backend: str) -> None:
    for heard in run_ranks(alone, 3, strategy, backend=backend):
        assert words in heard


def stored_within(rank: int, size: int) -> list[str]:
    """Which strategies resume elsewhere from a state that was taken between backward pass and step."""
    wrong = []
    for strategy in STRATEGIES:
        ends, state = [], list[Any]()
        for first in (0, 3):
            parts = model, optimizer, run = (*(made := net()), tweed.attach(*made, strategy))
            for part, kept in zip(parts, state, strict=False):
                part.load_state_dict(kept)
            for number in range(first, 6):
                loss(model, rank, number).backward()
                if number == 3 and not state:
                    state = copy.deepcopy([part.state_dict() for part in parts])
                optimizer.step()
                optimizer.zero_grad()
            run.finish()
            run.detach()
            ends.append(params(model))
        if not equal(*ends):
            wrong.append(strategy)
    return wrong


def test_a_state_between_backward_pass_and_step_is_that_before_the_exchange() -> None:
    assert run_ranks(stored_within, 2, backend="gloo") == [[], []]


def serves(rank: int, size: int) -> str:
    """Workers skip a batch under a strategy whose server steps after each exchange."""
    model, optimizer = net()
    run = tweed.attach(model, optimizer, "ordered_gradient")
    try:
        if run.serves:
            run.serve(1)
            return ""
        for number in range(2):
            optimizer.zero_grad()
            loss(model, rank, number).backward()
    except UsageError as error:
        return str(error)
    finally:
        run.detach()
    return ""


def test_where_a_server_steps_after_each_exchange_workers_must_too() -> None:
    server, *workers = run_ranks(serves, 3, backend="tweed")
    assert server == "" and all("the server has taken one" in heard for heard in workers)


def heard_of_two_passes(rank: int, size: int, cleared: bool) -> list[str]:
    heard = Heard()
    model, optimizer = make()
    with tweed.attach(model, optimizer, "every_step"):
        for number in range(2):
            loss(model, rank, number).backward()
            if cleared:
                optimizer.zero_grad()
        optimizer.step()
    return heard.lines


@pytest.mark.parametrize(
    ("cleared", "words"),
    [(True, "a GAN's generator leaves some in the discriminator"), (False, "Where gradients accumulate")],
)
def test_the_warning_of_two_passes_says_which_of_both_it_is(cleared: bool, words: str) -> None:
    first, other = run_ranks(heard_of_two_passes, 2, cleared, backend="gloo")
    assert any(words in line for line in first) and not any("backward passes" in line for line in other)
