"""What single methods promise beyond the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.compress.group import Group
from tests.compress.table import SPEC, Encoder, gaussian
from tweed.compress import (
    Chain,
    Entries,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    Levels,
    LowRank,
    Nothing,
    Quantise,
    RandomBlocks,
    RandomK,
    Sign,
    Spec,
    StepAhead,
    Threshold,
    TopK,
)
from tweed.errors import StrategyError, UsageError

DRAWN: list[RandomBlocks | RandomK] = [
    RandomBlocks(8), RandomBlocks(8, tensors=2), RandomBlocks(8, tensors=2, columns=2), RandomBlocks(64),
    RandomBlocks(8, block=48), RandomK(1 / 8),
]  # fmt: skip


@pytest.mark.parametrize("method", DRAWN, ids=repr)
def test_every_number_is_drawn_equally_often(method: RandomBlocks | RandomK) -> None:
    turns, ones = 500, torch.ones(SPEC.numel)
    encoder, sent = Encoder(method), torch.zeros(SPEC.numel)
    for _ in range(turns):
        sent += encoder.encode(ones)
    share = 1 / method.ratio if isinstance(method, RandomBlocks) else method.density
    misses = (sent - turns * share) / (turns * share * (1 - share)) ** 0.5
    assert float(misses.abs().max()) < 5


def test_whole_blocks_are_sent() -> None:
    sent = Encoder(RandomBlocks(4, columns=2)).encode(torch.ones(SPEC.numel))
    matrix = sent[:2000].view(40, 50)
    assert matrix.sum() == 20 * 25
    assert sorted(matrix.sum(0).unique().tolist()) == [0, 20]
    assert sorted(matrix.sum(1).unique().tolist()) == [0, 25]


def test_the_byte_budget_of_cser() -> None:
    """`1 / R1 + 1 / (H R2)` of the model per step."""
    memory = ErrorReset(RandomBlocks(16, block=1), RandomBlocks(4, block=1), every=8)
    group = Group(memory, SPEC, 2)
    for step in range(160):
        group.exchange([gaussian(seed=step), gaussian(seed=step + 1)])
    share = 1 / 16 + 1 / (8 * 4)
    assert group.traffic.up_bytes / 160 == pytest.approx(4 * SPEC.numel * share, rel=0.01)


def test_ties_go_to_the_lowest_index() -> None:
    sent = Encoder(TopK(0.1), Spec(((100,),))).encode(torch.full((100,), -2.0))
    assert sent.nonzero().squeeze(1).tolist() == list(range(10))


def test_top_k_of_each_tensor() -> None:
    value = torch.cat([gaussian()[:-700] * 1e6, gaussian()[-700:]])
    sent = Encoder(TopK(0.1, per_tensor=True)).encode(value)
    assert [int(part.count_nonzero()) for part in sent.split(SPEC.sizes)] == [200, 3, 58, 70]


def test_a_threshold_is_exact_when_it_is_found_and_sends_small_tensors_whole() -> None:
    spec = Spec(((1000,), (10,), (4000,)))
    encoder = Encoder(Threshold(0.02, lifespan=100, dense_below=256), spec)
    counts = []
    for step in range(20):
        sent = encoder.encode(gaussian(spec, seed=step))
        counts.append([int(part.count_nonzero()) for part in sent.split(spec.sizes)])
    assert counts[0] == [20, 10, 80]
    assert all(count[1] == 10 and 5 < count[0] < 60 and 40 < count[2] < 160 for count in counts)


def test_a_threshold_that_became_too_low_sends_all_as_it_is() -> None:
    encoder, error = Encoder(Threshold(0.02, lifespan=100)), torch.zeros(SPEC.numel)
    encoder.encode(gaussian(), error)
    whole = 1e6 * gaussian(seed=1) + error
    assert torch.equal(encoder.encode(1e6 * gaussian(seed=1), error), whole)
    assert not error.any() and encoder.packet_bytes == 16 + 4 * SPEC.numel


def test_a_threshold_of_zeros_sends_what_is_not_zero() -> None:
    encoder = Encoder(Threshold(0.02, lifespan=100))
    encoder.encode(torch.zeros(SPEC.numel))
    assert encoder.packet_bytes == 16 + 8 * 30  # the small tensor
    value = torch.zeros(SPEC.numel)
    value[::10] = 1e-42
    assert torch.equal(encoder.encode(value), value)


def test_low_rank_sends_matrices_of_low_rank_exactly() -> None:
    spec = Spec(((60, 80),))
    value = (gaussian(Spec(((60, 2),))).view(60, 2) @ gaussian(Spec(((2, 80),)), 1).view(2, 80)).view(-1)
    assert torch.allclose(Encoder(LowRank(2), spec).encode(value), value, atol=1e-4)


def test_a_warm_start_finds_the_largest_directions() -> None:
    spec, count = Spec(((60, 80),)), 60
    left, right = (torch.linalg.qr(gaussian(spec, n).view(s)).Q for n, s in ((0, (60, 80)), (1, (80, 60))))
    sizes = 0.8 ** torch.arange(count)
    value = (left * sizes @ right.T).reshape(-1)
    best = float(sizes[2:].square().sum())
    misses = {}
    for warm in (True, False):
        encoder = Encoder(LowRank(2, warm=warm), spec)
        misses[warm] = [float((encoder.encode(value) - value).square().sum()) for _ in range(40)]
    assert misses[True][-1] == pytest.approx(best, rel=0.01)
    assert sum(misses[False]) / 40 > 1.2 * best


def test_low_rank_comes_back_from_zeros() -> None:
    spec = Spec(((60, 80),))
    encoder = Encoder(LowRank(2), spec)
    encoder.encode(torch.zeros(spec.numel))
    value = torch.zeros(60, 80)
    value[30:, 40:] = 1.0
    assert torch.allclose(encoder.encode(value.view(-1)), value.view(-1), atol=1e-5)


def test_error_feedback_of_low_rank_sends_everything_in_the_end() -> None:
    group, value = Group(ErrorFeedback(LowRank(2)), SPEC, 2), gaussian()
    sent = torch.zeros(SPEC.numel)
    for _ in range(200):
        sent += group.exchange([value, value])[0].delta / 200
    assert float((sent - value).norm() / value.norm()) < 0.1


def test_the_shortest_coding_of_indices() -> None:
    spec = Spec(((100_000,),))
    coded = {}
    for density, coding in ((0.001, "delta"), (0.5, "bitmap")):
        sizes = {}
        for indices in ("raw", "delta", "bitmap", "shortest"):
            encoder = Encoder(Chain(TopK(density), indices=indices), spec)  # type: ignore[arg-type]
            encoder.encode(gaussian(spec))
            sizes[indices] = encoder.packet_bytes
        assert sizes["shortest"] == min(sizes.values()) == sizes[coding]
        coded[coding] = sizes["raw"] / sizes[coding]
    assert coded["delta"] > 1.4


def test_a_chain_of_one_per_cent_in_four_bits_is_two_hundred_times_shorter() -> None:
    spec = Spec(((100_000,),))
    encoder = Encoder(Chain(TopK(0.01), Quantise(4, nearest=True)), spec)
    encoder.encode(gaussian(spec))
    assert isinstance(encoder.packet, Entries)
    assert 4 * spec.numel / encoder.packet_bytes > 200


SENSELESS: list[Callable[[], Any]] = [
    lambda: TopK(0.0), lambda: TopK(1.5), lambda: RandomK(-0.1), lambda: Threshold(0.1, lifespan=-1),
    lambda: Threshold(7), lambda: RandomBlocks(0), lambda: RandomBlocks(6, tensors=4),
    lambda: RandomBlocks(8, columns=2, block=64), lambda: Half("int8"),  # type: ignore[arg-type]
    lambda: Quantise(1), lambda: Quantise(9), lambda: Levels(0), lambda: Levels(200), lambda: LowRank(0),
    lambda: ErrorReset(Nothing(), Identity(), every=0), lambda: StepAhead(TopK(0.1), fraction=1.5),
    lambda: StepAhead(TopK(0.1), average_every=-1),
    lambda: Chain(TopK(0.1), indices="morse"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("make", SENSELESS)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        make()


def test_chains_name_the_parts_that_do_not_fit() -> None:
    for words, parts in {
        r"sparse=RandomK": (RandomK(0.1),),
        r"values=Nothing": (TopK(0.1), Nothing()),
        r"Quantise\(bits=2": (TopK(0.1), Quantise(2)),
    }.items():
        with pytest.raises(StrategyError, match=f"Chain does not go with {words}"):
            Chain(*parts)  # type: ignore[arg-type]
    assert Chain(TopK(0.1), Sign()).reply_codec is not None
