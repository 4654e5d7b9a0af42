"""Fixed points and the rules of their weights: against finite differences, each other, and closed forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tweed.errors import DataError, UsageError
from tweed.workloads.fixed_points import (
    Anderson,
    Euler,
    Linearised,
    Plain,
    RateNetwork,
    Reparameterised,
    Rule,
    Solver,
    Variant,
    fixed_point,
)
from tweed.workloads.fixed_points.rules import State

TIGHT = Anderson(tolerance=1e-12, steps=400)
RULES: list[Rule] = [Plain(), Linearised(), Variant(), Reparameterised(0.1)]


@pytest.fixture(autouse=True)
def _double() -> object:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def network(rule: Rule, function: str = "tanh", size: int = 6, seed: int = 0) -> RateNetwork:
    generator = torch.Generator().manual_seed(seed)
    return RateNetwork(size, function, rule, TIGHT, radius=0.6, generator=generator)


def samples(count: int = 4, size: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def gradient(rule: Rule, function: str = "tanh", count: int = 4) -> Tensor:
    """Of the mean square of the rates beside a target."""
    net, x = network(rule, function), samples(count)
    loss_of(net, x).backward()  # type: ignore[no-untyped-call]
    found = net.recurrent.weight.grad
    assert found is not None
    return found


def loss_of(net: RateNetwork, x: Tensor) -> Tensor:
    loss: Tensor = (net(x) - samples(len(x), seed=2)).square().mean()
    return loss


def differences(value: Callable[[], Tensor], of: Tensor, by: float = 1e-6) -> Tensor:
    """The gradient by finite differences."""
    found = torch.zeros_like(of)
    with torch.no_grad():
        for place in range(of.numel()):
            flat, kept = of.view(-1), float(of.view(-1)[place])
            ends = []
            for moved in (kept + by, kept - by):
                flat[place] = moved
                ends.append(value())
            flat[place] = kept
            found.view(-1)[place] = (ends[0] - ends[1]) / (2 * by)
    return found


@pytest.mark.parametrize(
    "solver", [Euler(0.3, tolerance=1e-9), Anderson(tolerance=1e-9)], ids=["euler", "anderson"]
)
@pytest.mark.parametrize("function", ["tanh", "linear"])
def test_rates_rest(solver: Solver, function: str) -> None:
    net, x = network(Plain(), function), samples()
    net.solver = solver
    rates = net(x)
    drive = rates @ net.recurrent.weight.T + x
    torch.testing.assert_close(rates, torch.tanh(drive) if function == "tanh" else drive, atol=1e-8, rtol=0)


def test_anderson_takes_fewer_maps_than_euler() -> None:
    counts = []
    for solver in (Euler(0.1), Anderson()):
        calls: list[int] = []

        def map(r: Tensor, calls: list[int] = calls) -> Tensor:
            calls.append(1)
            return torch.tanh(0.9 * r + 0.3)

        solver(map, torch.zeros(2, 3))
        counts.append(len(calls))
    assert counts[1] < counts[0] / 5


@pytest.mark.parametrize("function", ["tanh", "linear"])
def test_the_plain_rule_is_the_gradient(function: str) -> None:
    net, x = network(Plain(), function), samples()
    expected = differences(lambda: loss_of(net, x), net.recurrent.weight.data)
    torch.testing.assert_close(gradient(Plain(), function), expected, atol=1e-7, rtol=1e-6)


def test_the_gradient_may_be_found_by_a_solver() -> None:
    torch.testing.assert_close(gradient(Plain(TIGHT)), gradient(Plain()), atol=1e-12, rtol=1e-8)
    assert torch.equal(gradient(Plain(Anderson(steps=1))), gradient(Plain())), "no solution: equations"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_the_input_gets_the_gradient_whatever_the_rule(rule: Rule) -> None:
    net, x = network(rule), samples().requires_grad_()
    loss_of(net, x).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, differences(lambda: loss_of(net, x), x.data), atol=1e-7, rtol=1e-6)


def test_the_reparameterised_step_is_the_one_of_the_paper() -> None:
    """W + dW = I - (A - eta D)^-1, with the gradient D by A = (I - W)^-1 where the network is linear."""
    eta, net, x = 0.3, network(Reparameterised(0.3), "linear"), samples()
    a = torch.linalg.inv(torch.eye(6) - net.recurrent.weight.detach())
    error = 2 * (x @ a.T - samples(seed=2)) / x.numel()
    expected = torch.eye(6) - torch.linalg.inv(a - eta * error.T @ x)
    loss_of(net, x).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        net.recurrent.weight -= eta * net.recurrent.weight.grad
    torch.testing.assert_close(net.recurrent.weight.detach(), expected)


def test_the_linearised_rule_is_its_first_order_in_eta() -> None:
    first = gradient(Linearised())
    off = [(gradient(Reparameterised(eta)) - first).norm() for eta in (1e-2, 1e-3)]
    assert off[0] / off[1] == pytest.approx(10, rel=0.1), "the steps differ by order eta squared"


def test_where_gains_are_one_the_variant_is_the_linearised_rule() -> None:
    torch.testing.assert_close(gradient(Variant(), "linear"), gradient(Linearised(), "linear"))
    assert not torch.allclose(gradient(Variant()), gradient(Linearised()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000))
def test_every_rule_goes_downhill(rule: Rule, seed: int) -> None:
    """Each is a gradient under some metric: for linear networks it is within 90 degrees of the gradient."""
    found, plain = (_gradient_of(each, seed) for each in (rule, Plain()))
    assert (found * plain).sum() > 0


def _gradient_of(rule: Rule, seed: int) -> Tensor:
    net = network(rule, "linear", seed=seed)
    loss_of(net, samples(seed=seed)).backward()  # type: ignore[no-untyped-call]
    found = net.recurrent.weight.grad
    assert found is not None
    return found


@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: type(rule).__name__)
def test_gradients_of_parts_of_a_batch_add_up(rule: Rule) -> None:
    net, x = network(rule), samples()
    for part, target in zip(x.split(2), samples(seed=2).split(2), strict=True):
        ((net(part) - target).square().sum() / x.numel()).backward()
    torch.testing.assert_close(net.recurrent.weight.grad, gradient(rule))


@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: type(rule).__name__)
def test_the_factors_are_what_a_linear_layer_has(rule: Rule) -> None:
    net, x = network(rule), samples()
    seen: dict[str, Tensor] = {}
    net.recurrent.register_forward_hook(lambda module, inputs, output: seen.update(inputs=inputs[0]))
    net.recurrent.register_full_backward_hook(lambda module, before, after: seen.update(errors=after[0]))
    loss_of(net, x).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(seen["errors"].T @ seen["inputs"], net.recurrent.weight.grad)


def test_a_deep_equilibrium_model_has_the_implicit_gradient() -> None:
    cell, x = nn.Linear(3, 3), samples(2, 3).requires_grad_()
    with torch.no_grad():
        cell.weight *= 0.5

    def loss() -> Tensor:
        point = fixed_point(lambda r: torch.tanh(cell(r) + x), torch.zeros(2, 3), TIGHT)
        return point.pow(3).sum()

    loss().backward()  # type: ignore[no-untyped-call]
    for value in (cell.weight, cell.bias, x):
        torch.testing.assert_close(value.grad, differences(loss, value.data), atol=1e-6, rtol=1e-6)


def test_it_agrees_with_the_rate_network() -> None:
    net, x = network(Plain()), samples()
    weight = net.recurrent.weight.detach().clone().requires_grad_()
    point = fixed_point(lambda r: torch.tanh(r @ weight.T + x), torch.zeros_like(x), TIGHT)
    (point - samples(seed=2)).square().mean().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(weight.grad, gradient(Plain()))


def test_second_derivatives_are_refused() -> None:
    weight = torch.tensor(0.5, requires_grad=True)
    point = fixed_point(lambda r: weight * r + 1, torch.zeros(1, 1))
    with pytest.raises(UsageError, match="no second derivative"):
        torch.autograd.grad(point.sum(), weight, create_graph=True)
    net, x = network(Plain()), samples()
    (found,) = torch.autograd.grad(loss_of(net, x), net.recurrent.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        found.sum().backward()  # type: ignore[no-untyped-call]


def test_nothing_is_kept_without_gradients() -> None:
    with torch.no_grad():
        assert not fixed_point(lambda r: r / 2 + 1, torch.zeros(1, 1)).requires_grad
    assert not fixed_point(lambda r: r / 2 + 1, torch.zeros(1, 1)).requires_grad


@pytest.mark.parametrize("solver", [Euler(1.0, steps=50), Anderson(steps=5)], ids=["euler", "anderson"])
def test_a_point_that_is_none_is_an_error(solver: Solver) -> None:
    with pytest.raises(DataError, match=r"no fixed point in \d+ steps: the residual is .* give more"):
        solver(lambda r: r + 1, torch.zeros(1, 2))


@pytest.mark.parametrize("solver", [Euler(), Anderson()], ids=["euler", "anderson"])
def test_a_value_that_is_not_finite_is_named(solver: Solver) -> None:
    with pytest.raises(DataError, match="an activation is not finite"):
        solver(lambda r: r * torch.nan, torch.zeros(1, 2))


@pytest.mark.parametrize("settings", [{"function": "relu"}, {"radius": 1.0}, {"radius": -0.1}])
def test_networks_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="cannot be: give one of tanh, linear"):
        RateNetwork(3, **settings)  # type: ignore[arg-type]


def test_gains_are_derivatives() -> None:
    net, x = network(Plain()), samples()
    rates = net(x).detach()
    state = State(net.recurrent.weight.detach(), rates, net._gain(rates))
    drive = (rates @ state.weight.T + x).requires_grad_()
    (slope,) = torch.autograd.grad(torch.tanh(drive).sum(), drive)
    torch.testing.assert_close(state.gains, slope)
