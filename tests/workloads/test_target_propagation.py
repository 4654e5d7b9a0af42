"""Targets against a plain reading of the algorithm, feedback weights, stages, and ranks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import tweed
from tweed.compress import Identity
from tweed.errors import DataError, UsageError
from tweed.exchange.stages import Cut
from tweed.simulate.stages import stage_links
from tweed.testbed import run_ranks
from tweed.workloads.target_propagation import (
    FixedFeedback,
    TargetLayer,
    TrainedFeedback,
    reconstruction,
    target_network,
)

SIZES = [5, 7, 6, 3]
LOUD = FixedFeedback(seed=3, scale=0.5)


def network(normalise: bool = False, seed: int = 0) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    return target_network(SIZES, LOUD, beta=0.1, normalise=normalise, generator=generator).double()


def batch(count: int = 8, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=generator).double(), torch.arange(count) % 3


def loss_of(net: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x), y)


def gradients(net: nn.Module) -> list[Tensor]:
    return [param.grad.clone() for param in net.parameters() if param.grad is not None]


def as_written(net: nn.Sequential, x: Tensor, y: Tensor) -> list[Tensor]:
    """The algorithm step by step: activations, targets from the last layer down, each layer's own loss."""
    layers = [layer for layer in net if isinstance(layer, TargetLayer)]
    activations = [x]
    for layer in layers:
        activations.append(layer.step(activations[-1]).detach())
    outputs = activations[-1].requires_grad_()
    loss = nn.functional.cross_entropy(outputs, y, reduction="sum")
    (slope,) = torch.autograd.grad(loss, outputs)
    targets = {len(layers): outputs.detach() - 0.1 * slope}
    norm = _norm if layers[0].normalise else lambda u: u
    for place in range(len(layers) - 1, 0, -1):
        weight = layers[place].feedback()  # type: ignore[misc]
        up, down = targets[place + 1], activations[place + 1].detach()
        brought = [norm(torch.tanh(u @ weight.T)) for u in (up, down)]
        targets[place] = norm(brought[0] + activations[place] - brought[1])
    found = []
    for place, layer in enumerate(layers):
        own = (targets[place + 1] - layer.step(activations[place])).square().sum() / len(x)
        found += torch.autograd.grad(own, layer.weight)
    return found


def _norm(u: Tensor) -> Tensor:
    return (u - u.mean(0)) / torch.sqrt(u.var(0, correction=0) + 1e-10)


@pytest.mark.parametrize("normalise", [False, True], ids=["plain", "normalised"])
def test_a_backward_pass_does_what_the_algorithm_says(normalise: bool) -> None:
    net = network(normalise)
    loss_of(net, *batch()).backward()  # type: ignore[no-untyped-call]
    for found, expected in zip(gradients(net), as_written(net, *batch()), strict=True):
        torch.testing.assert_close(found, expected)


def test_gradients_come_from_the_last_layer_to_the_first() -> None:
    net, order = network(), list[int]()
    for place, param in enumerate(net.parameters()):
        param.register_post_accumulate_grad_hook(lambda _, place=place: order.append(place))  # type: ignore[misc]
    loss_of(net, *batch()).backward()  # type: ignore[no-untyped-call]
    assert order == [2, 1, 0]


def test_training_learns() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 5)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    generator = torch.Generator().manual_seed(0)
    net = target_network([5, 32, 32, 3], FixedFeedback(1, 1e-1), beta=0.5, generator=generator)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(150):
        loss = loss_of(net, x, y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_fixed_feedback_comes_from_its_seed_and_stays() -> None:
    one, other = network(seed=0), network(seed=5)
    weights = [
        [layer.feedback() for layer in net if getattr(layer, "feedback", None)] for net in (one, other)
    ]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*weights, strict=True))
    assert len(weights[0]) == 2 and not torch.equal(weights[0][0][:3, :3], weights[0][1][:3, :3])
    assert max(float(weight.abs().max()) for weight in weights[0]) <= 0.5
    assert len(list(one.parameters())) == 3, "feedback is no parameter"
    assert {tensor.numel() for tensor in one.buffers()} == {1}, "nor a buffer: a digest is"


def test_a_share_of_fixed_feedback_may_be_zero() -> None:
    weight = FixedFeedback(0, 1.0, density=0.5).make(100, 100, 1)()
    assert 0.45 < float((weight == 0).float().mean()) < 0.55


@pytest.mark.parametrize("settings", [{"scale": 0.0}, {"density": 0.0}, {"density": 1.5}])
def test_feedback_that_cannot_be_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="cannot be: give a scale above 0"):
        FixedFeedback(**settings)  # type: ignore[arg-type]


def test_a_checkpoint_of_another_seed_is_named() -> None:
    other = target_network(SIZES, FixedFeedback(seed=4, scale=0.5))
    net = target_network(SIZES, LOUD)
    net.load_state_dict(other.state_dict())
    with pytest.raises(
        DataError, match="feedback weights of seed 3 are not those of rank 0, or of the checkpo"
    ):
        net(torch.randn(4, 5))


def test_trained_feedback_learns_to_reconstruct_and_nothing_else_does() -> None:
    generator = torch.Generator().manual_seed(0)
    net = target_network(SIZES, TrainedFeedback(generator), generator=generator)
    x, _ = batch(64)
    x = x.float()
    own = [layer.feedback.weight for layer in net if getattr(layer, "feedback", None)]  # type: ignore[union-attr]
    optimizer = torch.optim.SGD(own, lr=0.05)  # type: ignore[arg-type]
    losses = []
    for _ in range(40):
        loss = reconstruction(net, x, generator=generator)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(layer.weight.grad is None for layer in net if isinstance(layer, TargetLayer))


def test_a_target_that_is_not_finite_is_named() -> None:
    net, (x, y) = network(), batch()
    with pytest.raises(DataError, match="a target is not finite"):
        (loss_of(net, x, y) * torch.inf).backward()  # type: ignore[no-untyped-call]


def test_a_network_needs_a_layer() -> None:
    with pytest.raises(UsageError, match="no layer"):
        target_network([3])


@pytest.mark.parametrize("at", [1, 2])
def test_stages_are_as_one_process(at: int) -> None:
    net, (x, y) = network(normalise=True), batch()
    net, x = net.float(), x.float()
    stages = copy.deepcopy(net)
    loss_of(net, x, y).backward()  # type: ignore[no-untyped-call]
    first, second = stage_links(Cut(Identity(), Identity()))
    zero = first.send(stages[:at](x))
    nn.functional.cross_entropy(stages[at:](second.receive()), y).backward()
    zero.backward()  # type: ignore[no-untyped-call]
    for found, expected in zip(gradients(stages), gradients(net), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_ranks_that_attach_are_as_one_process_and_another_seed_is_named() -> None:
    found = run_ranks(_attached, 2, backend="tweed")
    net, (x, y) = network(), batch()
    for _ in range(3):
        net.zero_grad()
        loss_of(net, x, y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for param in net.parameters():
                param -= 0.5 * param.grad  # type: ignore[operator]
    for weights, _ in found:
        for mine, param in zip(weights, net.parameters(), strict=True):
            torch.testing.assert_close(mine, param.detach(), atol=1e-9, rtol=0)
    assert [refused for _, refused in found] == [False, True], "rank 0's seed is the one that counts"


def _attached(rank: int, size: int) -> tuple[list[Tensor], bool]:
    net, (x, y) = network(), batch()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    run = tweed.attach(net, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net, x[rank::size], y[rank::size]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    run.detach()
    other = target_network(SIZES, FixedFeedback(rank))
    tweed.attach(other, torch.optim.SGD(other.parameters(), lr=0.5)).detach()
    try:
        other(torch.randn(4, 5))
    except DataError:
        return [param.detach() for param in net.parameters()], True

    return [param.detach() for param in net.parameters()], False
