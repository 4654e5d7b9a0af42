"""Activations and gradients between two stages, in one process."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tweed.compress import Chain, Half, Identity, Quantise, RandomK, Sign, Threshold, TopK
from tweed.errors import DataError, StrategyError, UsageError
from tweed.exchange.stages import DTYPES, Cut
from tweed.simulate.stages import stage_links

CUTS = [
    Cut(), Cut(Threshold(0.1, 3), Identity(), False), Cut(TopK(0.2), Threshold(0.5)), Cut(warm_up=1),
    Cut(Half(), Half("float16")),
    Cut(Identity(), Identity()), Cut(Quantise(8), Quantise(8)), Cut(Chain(TopK(0.1), Sign(64)), Sign()),
]  # fmt: skip
every_cut = pytest.mark.parametrize("cut", CUTS, ids=repr)


def activations(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def models() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU()), nn.Linear(64, 3)


def gradients(stages: tuple[nn.Module, nn.Module]) -> list[Tensor]:
    return [param.grad for stage in stages for param in stage.parameters() if param.grad is not None]


@every_cut
@given(shape=st.lists(st.integers(1, 9), max_size=5), dtype=st.sampled_from(DTYPES))
def test_both_stages_know_what_was_sent(cut: Cut, shape: list[int], dtype: torch.dtype) -> None:
    x = activations(1, *shape).to(dtype)
    message, sent, _ = cut.encode(x, cut.start_activations())
    values, known = cut.decode(message)
    assert (values.shape, values.dtype) == (x.shape, dtype)
    assert (known.shape, known.dtype, known.count) == (sent.shape, sent.dtype, sent.count)
    gradient = activations(2, *shape).to(dtype)
    back, _ = cut.encode_gradient(gradient, known, cut.start_gradients())
    received = cut.decode_gradient(back, sent)
    assert (received.shape, received.dtype) == (x.shape, dtype)
    if sent.places is not None:
        unsent = torch.ones(x.numel(), dtype=torch.bool)
        unsent[sent.places.long()] = False
        assert not received.view(-1)[unsent].any() and not values.view(-1)[unsent].any()
        if isinstance(cut.gradients, Identity):
            assert torch.equal(received.view(-1)[~unsent], gradient.view(-1)[~unsent])


def test_what_is_sent_whole_is_training_on_one_machine() -> None:
    one, other = models(), models()
    first, second = stage_links(Cut(Identity(), Identity()))
    for batch in range(3):
        x = activations(batch, 8, 10)
        one[1](one[0](x)).square().mean().backward()
        zero = first.send(other[0](x))
        other[1](second.receive()).square().mean().backward()
        zero.backward()
    assert all(torch.equal(*pair) for pair in zip(gradients(one), gradients(other), strict=True))


def test_a_cut_is_a_mask_to_both_passes() -> None:
    """With values as they are, gradients are those of the model that has a mask where the cut is."""
    one, other = models(), models()
    first, second = stage_links(Cut(TopK(0.1), Identity()))
    x = activations(3, 8, 10)
    hidden = one[0](x)
    mask = torch.zeros(hidden.numel())
    mask[hidden.detach().abs().view(-1).topk(51).indices] = 1
    one[1](hidden * mask.view_as(hidden)).square().mean().backward()
    zero = first.send(other[0](x))
    other[1](second.receive()).square().mean().backward()
    zero.backward()
    assert all(
        torch.allclose(*pair, atol=1e-7) for pair in zip(gradients(one), gradients(other), strict=True)
    )


def test_batches_may_be_under_way_at_once() -> None:
    first, second = stage_links(Cut(Threshold(0.3, dense_below=0), Identity(), False))
    xs = [activations(seed, 5, 7).requires_grad_() for seed in range(3)]
    zeros = [first.send(x) for x in xs]
    for factor, y in enumerate([second.receive() for _ in xs], start=1):
        (factor * y).sum().backward()
    for factor, (zero, x) in enumerate(zip(zeros, xs, strict=True), start=1):
        zero.backward()
        assert x.grad is not None and set(x.grad.unique().tolist()) == {0.0, float(factor)}


def test_nobody_waits_for_a_gradient_that_nobody_wants() -> None:
    first, second = stage_links(Cut())
    with torch.no_grad():
        first.send(activations(0, 4, 4).requires_grad_())
    assert not second.receive().requires_grad
    assert second.bytes_sent == 0 and second.bytes_received == first.bytes_sent


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_crosses_as_it_is(bad: float) -> None:
    first, second = stage_links(Cut())
    x = activations(0, 30, 30)
    x[3, 4] = bad
    first.send(x)
    assert torch.equal(torch.nan_to_num(second.receive()), torch.nan_to_num(x))
    first.send(activations(0, 30, 30))
    assert bool(second.receive().isfinite().all())


@pytest.mark.parametrize("rows", [128, 7])
def test_twenty_times_fewer_bytes_cross(rows: int) -> None:
    first, second = stage_links(Cut())
    for step in range(40):
        zero = first.send(activations(step, rows, 500).requires_grad_())
        second.receive().square().sum().backward()
        zero.backward()
    dense = 40 * rows * 500
    assert first.values_sent == second.values_sent == dense * 14 // 100
    assert first.bytes_sent <= 4 * dense / 20 and second.bytes_sent < 4 * dense / 45


def test_each_sample_sends_its_largest_activations() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [100.0, 200.0, 300.0, -400.0]])
    cut = Cut(TopK(0.25, per_tensor=True), Identity())
    values, _ = cut.decode(cut.encode(x, cut.start_activations())[0])
    assert values.tolist() == [[0, 0, 0, 4], [0, 0, 0, -400]]
    batch = Cut(TopK(0.25, per_tensor=True), Identity(), each_sample=False)
    values, _ = batch.decode(batch.encode(x, batch.start_activations())[0])
    assert values.tolist() == [[0, 0, 0, 0], [0, 0, 300, -400]]


def test_all_of_the_first_batches_cross() -> None:
    cut, counts = Cut(warm_up=2), []
    state = cut.start_activations()
    for step in range(3):
        _, sent, state = cut.encode(activations(step, 10, 100), state)
        counts.append(sent.count)
    assert counts == [1000, 1000, 140]


def test_a_link_goes_on_from_what_was_stored() -> None:
    straight, stored = stage_links(Cut()), stage_links(Cut())
    for step in range(6):
        if step == 3:
            fresh = stage_links(Cut())
            for one, other in zip(stored, fresh, strict=True):
                other.load_state_dict(one.state_dict())
            stored = fresh
        found = []
        for first, second in (straight, stored):
            x = activations(step, 20, 50).requires_grad_()
            zero = first.send(x)
            second.receive().square().sum().backward()
            zero.backward()
            found.append(x.grad)
        assert found[0] is not None and found[1] is not None and torch.equal(found[0], found[1])


def test_what_cannot_cross_is_refused() -> None:
    with pytest.raises(StrategyError, match=r"gradients=RandomK"):
        Cut(gradients=RandomK(0.1))
    with pytest.raises(StrategyError, match="each_sample does not go with activations=Threshold"):
        Cut(Threshold(0.1))
    with pytest.raises(UsageError, match="warm_up=-1"):
        Cut(warm_up=-1)
    cut = Cut()
    for x in (torch.zeros(3, dtype=torch.int64), torch.zeros([1] * 6)):
        with pytest.raises(DataError, match="cannot cross"):
            cut.encode(x, cut.start_activations())


@given(data=st.data())
def test_damaged_messages_are_refused_or_do_no_harm(data: st.DataObject) -> None:
    cut = Cut()
    message, _, _ = cut.encode(activations(0, 6, 50), cut.start_activations())
    where = st.integers(0, 23) | st.integers(64, len(message) - 1)  # another shape may be a true one
    for place in data.draw(st.lists(where, max_size=3)):
        message[place] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(message)))
    try:
        cut.decode(message[:length] if data.draw(st.booleans()) else message)
    except DataError as error:
        assert "came in" in str(error)
