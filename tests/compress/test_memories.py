"""One table for the stage's memories, and what each promises about all ranks together."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tweed.compress
from tests.compress.group import Group
from tests.compress.table import SPEC, TABLE, Encoder, gaussian, memory_for
from tweed.aggregate import Mean
from tweed.cadence import LocalSteps
from tweed.compress import (
    Auto,
    Chain,
    Codec,
    Compressor,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    LazyAggregation,
    Levels,
    LocalResidual,
    LowRank,
    MeasuresNorm,
    Memory,
    Nothing,
    Quantise,
    RandomBlocks,
    RandomK,
    RandomTensors,
    Sign,
    StepAhead,
    Threshold,
    TopK,
    Turn,
    Values,
)
from tweed.compress.half import HalfType
from tweed.errors import StrategyError
from tweed.exchange.owners import Owners
from tweed.strategy import Strategy

SIZE = 4
MEMORIES: list[Memory[Any]] = [
    Direct(Quantise(8)), Direct(LowRank(2)), ErrorFeedback(TopK(0.05)), ErrorFeedback(Sign(None)),
    ErrorFeedback(LowRank(2)), ErrorReset(RandomBlocks(8), RandomBlocks(4), every=3),
    ErrorReset(TopK(0.05), Quantise(4, nearest=True), every=2),
    ErrorReset(Nothing(), TopK(0.1, bidirectional=True)), StepAhead(TopK(0.05)),
    StepAhead(Threshold(0.05, 3), fraction=0.9, average_every=2), LazyAggregation(TopK(0.1)), Auto(),
    LocalResidual(RandomTensors(0.3)), LocalResidual(TopK(0.05)),
]  # fmt: skip
every_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)


def values(step: int) -> list[Tensor]:
    """What each rank has in this exchange."""
    return [gaussian(seed=100 * step + rank) for rank in range(SIZE)]


def mean(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).double().mean(0).float()


def residual(group: Group) -> Tensor:
    """Mean over ranks of what they still have to send, and what owners of ranges still have to reply."""
    back = [buffer.replies.get("main", (None, None))[1] for buffer in group.buffers]
    errors = mean([buffer.state.error for buffer in group.buffers])
    return errors if back[0] is None else errors + torch.cat([error for error in back if error is not None])


def one_way(method: Codec) -> Codec:
    """It, without a lossy way back that nobody remembers."""
    lossy = method.unbiased and method.reply_codec is not None
    return replace(method, bidirectional=False) if lossy else method  # type: ignore[type-var]


CONTRACTING = [one_way(method) for method in TABLE if isinstance(memory_for(method), ErrorFeedback)]


@every_memory
def test_it_keeps_the_contract(memory: Memory[Any]) -> None:
    assert isinstance(memory, Memory)
    assert memory.exchanges and memory.exchanges <= {"gradient", "step", "difference"}
    assert memory.reason and all(isinstance(part, Codec) for part in memory.parts.values())
    assert eval(repr(memory), vars(tweed.compress)) == memory
    assert Strategy("step", compress=memory).memory == memory


@pytest.mark.parametrize("method", TABLE, ids=repr)
def test_all_ranks_receive_the_same_bits(method: Codec) -> None:
    group = Group(Direct(method), SPEC, SIZE)
    for step in range(3):
        placed = group.exchange(values(step), silent=[step == 1, False, False, step == 1])
        assert all(torch.equal(one.delta, placed[0].delta) for one in placed)


@pytest.mark.parametrize("method", CONTRACTING, ids=repr)
@pytest.mark.parametrize("quiet", [False, True], ids=["all send", "some are silent"])
def test_error_feedback_loses_nothing(method: Codec, quiet: bool) -> None:
    group = Group(ErrorFeedback(method), SPEC, SIZE)
    sent, total = torch.zeros(SPEC.numel), torch.zeros(SPEC.numel)
    for step in range(6):
        total += mean(values(step))
        silent = [quiet and (step + rank) % 3 == 0 for rank in range(SIZE)]
        sent += group.exchange(values(step), silent)[0].delta
    assert torch.allclose(sent + residual(group), total, rtol=0, atol=1e-5)


@given(
    dtype=st.sampled_from(["bfloat16", "float16"]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    silent=st.lists(st.integers(0, SIZE - 1), max_size=20),
    server=st.booleans(),
)
def test_sums_of_sixteen_bits_lose_nothing_that_is_fed_back(
    dtype: HalfType, scale: float, silent: list[int], server: bool
) -> None:
    owners = Owners(0, SIZE + server, Mean(), server=SIZE if server else None)
    group = Group(ErrorFeedback(Half(dtype)), SPEC, SIZE + server, owners)
    rest = torch.zeros(SPEC.numel, dtype=torch.float64)  # given, and not yet applied
    for step in range(20):
        now = [scale * value for value in values(step % 5)]
        rest += torch.stack(now).double().mean(0)
        quiet = [step < len(silent) and silent[step] == rank for rank in range(SIZE)]
        everybody = [*now, torch.zeros(SPEC.numel)][: group.size]
        rest -= group.exchange(everybody, [*quiet, False][: group.size])[0].delta
    for buffer in group.buffers[:SIZE]:
        rest -= buffer.state.error / SIZE
    for buffer in group.buffers:
        for _, error in buffer.replies.values():
            assert error is not None  # the owner's
            buffer.owners.mine(rest).sub_(error)
    assert float(rest.abs().max()) <= 2e-6 * scale * 20


FIRST: list[Codec] = [
    Identity(), Nothing(), RandomBlocks(4), TopK(0.05), Sign(100), Quantise(8), Levels(1, 64), LowRank(1),
    RandomK(0.1, scaled=True), Chain(TopK(0.1), Quantise(4, nearest=True)),
]  # fmt: skip
SECOND: list[Codec] = [
    Identity(), Nothing(), RandomBlocks(2, block=64), TopK(0.2, bidirectional=True), Threshold(0.1, 2),
    Quantise(4, nearest=True, bidirectional=False), LowRank(2),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), list(product(FIRST, SECOND)), ids=repr)
def test_error_reset_leaves_the_mean_model_alone_and_a_point_common(first: Codec, second: Codec) -> None:
    exact = [
        replace(codec, bidirectional=False) if getattr(codec, "bidirectional", False) else codec  # type: ignore[type-var]
        for codec in (first, second)
    ]
    group = Group(ErrorReset(*exact, every=2), SPEC, SIZE)
    models, path = [torch.zeros(SPEC.numel)] * SIZE, torch.zeros(SPEC.numel)
    for step in range(5):
        path = path + mean(values(step))
        placed = group.exchange(values(step), silent=[step == 3, False, step == 1, False])
        models = [model + one.delta for model, one in zip(models, placed, strict=True)]
        common = [model - buffer.state.error for model, buffer in zip(models, group.buffers, strict=True)]
        assert torch.allclose(mean(models), path, rtol=0, atol=1e-4)
        assert all(torch.allclose(point, common[0], rtol=0, atol=1e-4) for point in common)


def test_the_reset_of_everything_makes_models_equal() -> None:
    local_sgd = Group(ErrorReset(Nothing(), Identity(), every=3), SPEC, SIZE)
    models, path = [torch.zeros(SPEC.numel)] * SIZE, torch.zeros(SPEC.numel)
    for step in range(6):
        placed = local_sgd.exchange(values(step))
        moved = [one.delta for one in placed]
        models = [model + advance for model, advance in zip(models, moved, strict=True)]
        path = path + mean(values(step))
        if step % 3 < 2:
            assert all(torch.equal(*pair) for pair in zip(moved, values(step), strict=True))
            assert local_sgd.traffic.bytes == 0
        else:
            local_sgd.traffic.up_bytes = local_sgd.traffic.down_bytes = 0
            assert all(torch.allclose(model, path, atol=1e-5) for model in models)


def test_error_assimilation_averages_blocks_of_models() -> None:
    """Averaging a block of the models does the same, and needs no residual: what CSER's authors run."""
    blocks = RandomBlocks(4, block=64)
    group = Group(ErrorReset(Nothing(), blocks), SPEC, SIZE)
    models, short = [torch.zeros(SPEC.numel)] * SIZE, [torch.zeros(SPEC.numel)] * SIZE
    for step in range(8):
        placed = group.exchange(values(step))
        models = [model + one.delta for model, one in zip(models, placed, strict=True)]
        short = [model + value for model, value in zip(short, values(step), strict=True)]
        lots = blocks._drawn(Turn(SPEC, step), short[0])
        average = lots.of(mean(short))
        for model in short:
            lots.add(average - lots.of(model), model)
        assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(models, short, strict=True))


@pytest.mark.parametrize("fraction", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("average_every", [0, 1, 3])
@pytest.mark.parametrize("method", [TopK(0.05), Sign(None), LowRank(1)], ids=repr)
def test_stepping_ahead_follows_the_uncompressed_path(
    method: Codec, fraction: float, average_every: int
) -> None:
    group = Group(StepAhead(method, fraction, average_every), SPEC, SIZE)
    point, path = torch.zeros(SPEC.numel), torch.zeros(SPEC.numel)
    shifts = [torch.zeros(SPEC.numel)] * SIZE
    for step in range(7):
        path = path + mean(values(step))
        moved = [value + shift for value, shift in zip(values(step), shifts, strict=True)]
        placed = group.exchange(moved, silent=[False, step == 3, step == 2, False])
        point = point + placed[0].delta
        shifts = [one.offset for one in placed if one.offset is not None]
        assert torch.allclose(point + residual(group), path, rtol=0, atol=1e-4)
    if average_every == 1:
        assert all(torch.equal(shift, shifts[0]) for shift in shifts)


def test_no_step_ahead_is_error_feedback() -> None:
    feedback = Group(ErrorFeedback(TopK(0.05)), SPEC, SIZE)
    ahead = Group(StepAhead(TopK(0.05), fraction=0.0), SPEC, SIZE)
    for step in range(5):
        placed = ahead.exchange(values(step))
        assert torch.equal(placed[0].delta, feedback.exchange(values(step))[0].delta)
        assert placed[0].offset is not None and not placed[0].offset.any()


ALL_SENT: list[Memory[Any]] = [
    Direct(Identity()), ErrorFeedback(Identity()), ErrorReset(Identity(), Identity()),
    ErrorReset(Identity(), Nothing(), every=2), StepAhead(Identity(), 1.0),
    StepAhead(Identity(), 0.5, average_every=2),
]  # fmt: skip


@pytest.mark.parametrize("memory", ALL_SENT, ids=repr)
def test_to_send_everything_is_to_compress_nothing(memory: Memory[Any]) -> None:
    group = Group(memory, SPEC, SIZE)
    for step in range(4):
        plain = torch.stack(values(step)).sum(0) / SIZE
        assert all(torch.equal(one.delta, plain) for one in group.exchange(values(step)))


@every_memory
def test_its_state_survives_storage(memory: Memory[Any]) -> None:
    straight, stored = Group(memory, SPEC, SIZE), Group(memory, SPEC, SIZE)
    for step in range(5):
        for buffer in stored.buffers:
            if buffer.state is not None:
                kept = {field.name: getattr(buffer.state, field.name) for field in fields(buffer.state)}
                buffer.state = type(buffer.state)(**kept)
        for one, other in zip(straight.exchange(values(step)), stored.exchange(values(step)), strict=True):
            assert torch.equal(one.delta, other.delta)
            assert (one.offset is None) == (other.offset is None)


@pytest.mark.parametrize("method", [Levels(1), Quantise(2, 256), RandomK(0.1, scaled=True)], ids=repr)
def test_chance_that_leaves_more_than_it_was_given_is_not_fed_back(method: Codec) -> None:
    for refused in (ErrorFeedback, StepAhead, lambda reset: ErrorReset(Nothing(), reset)):
        with pytest.raises(StrategyError, match="does not go with") as error:
            refused(method)
        assert repr(method) in str(error.value)


@pytest.mark.parametrize("memory", [ErrorReset(Nothing(), TopK(0.1)), StepAhead(TopK(0.1))], ids=repr)
def test_what_moves_the_model_exchanges_no_gradients(memory: Memory[Any]) -> None:
    with pytest.raises(StrategyError, match="a gradient moves none") as refused:
        Strategy("gradient", compress=memory)
    assert repr(memory) in str(refused.value) and 'exchange="gradient"' in str(refused.value)
    assert Strategy("difference", LocalSteps(4), memory).memory == memory


@every_memory
def test_models_are_not_compressed(memory: Memory[Any]) -> None:
    with pytest.raises(StrategyError, match='exchange="model"'):
        Strategy("model", compress=memory)


@pytest.mark.parametrize("by_ranges", [False, True])
def test_a_silent_rank_counts_with_what_it_sent_last(by_ranges: bool) -> None:
    together = Group(LazyAggregation(Identity(by_ranges)), SPEC, SIZE)
    first, second = values(1), values(2)
    together.exchange(first)
    for one in together.exchange(second, silent=[False, True, True, True]):
        torch.testing.assert_close(one.delta, mean([second[0], *first[1:]]))


def test_who_is_silent_sends_nothing_of_its_own() -> None:
    together = Group(LazyAggregation(Identity(by_ranges=True)), SPEC, SIZE)
    together.exchange(values(1))
    loud = together.traffic.up_bytes
    together.exchange(values(2), silent=[False, True, True, True])
    assert together.traffic.up_bytes == pytest.approx(loud + loud / SIZE, rel=0.01)
    before = together.traffic.bytes
    together.exchange(values(3), silent=[True] * SIZE)
    assert together.traffic.bytes - before <= 16 * SIZE  # each owner's reply is that its range has no news


@pytest.mark.parametrize("compressor", [TopK(0.1), Quantise(8, bidirectional=False)], ids=repr)
def test_what_a_difference_leaves_out_is_in_the_next(compressor: Codec) -> None:
    together = Group(LazyAggregation(compressor), SPEC, SIZE)
    for _ in range(40):
        placed = together.exchange(values(3))
    torch.testing.assert_close(placed[0].delta, mean(values(3)), atol=1e-3, rtol=0)


def test_a_lossy_reply_is_refused() -> None:
    with pytest.raises(StrategyError, match="bidirectional=False"):
        LazyAggregation(Quantise(8))


@pytest.mark.parametrize("make", [Direct, ErrorFeedback, LazyAggregation])
def test_what_is_pending_is_the_squared_length_of_what_would_be_sent(make: type) -> None:
    memory = make(TopK(0.1))
    assert isinstance(memory, MeasuresNorm)
    together, wanted = Group(memory, SPEC, SIZE), values(4)
    assert memory.pending(torch.full((SPEC.numel,), 2.0), together.buffers[0].state) == 4.0 * SPEC.numel
    together.exchange(wanted)
    state, whole = together.buffers[0].state, float(wanted[0].square().sum())
    left = memory.pending(wanted[0] if make is not ErrorFeedback else torch.zeros(SPEC.numel), state)
    assert left <= whole * (1 + 1e-6) and (make is Direct or left < whole)


def test_a_weight_makes_up_for_those_who_are_not_drawn() -> None:
    together = Group(Direct(Identity(), weight=SIZE), SPEC, SIZE)
    placed = together.exchange(values(5), silent=[True, False, True, True])
    torch.testing.assert_close(placed[0].delta, values(5)[1])


MANUAL = (Path(__file__).parents[2] / "docs/compression.md").read_text()


def test_a_local_residual_is_what_was_not_sent_of_the_last_movement_alone() -> None:
    group, codec = Group(LocalResidual(RandomTensors(0.4)), SPEC, SIZE), RandomTensors(0.4)
    ahead = [torch.zeros(SPEC.numel) for _ in range(SIZE)]
    for step in range(4):
        own = values(step)
        updates = group.exchange([one + offset for one, offset in zip(own, ahead, strict=True)])
        sent = []
        for rank, one in enumerate(own):
            out = torch.zeros(SPEC.numel)
            codec.encode(one.clone(), None, Turn(SPEC, step, rank=rank, size=SIZE))[0].add_to(out)
            sent.append(out)
            ahead[rank] = one - out
            offset = updates[rank].offset
            assert offset is not None
            torch.testing.assert_close(offset, ahead[rank], atol=1e-6, rtol=0)
        assert len({tuple(one.nonzero().flatten().tolist()) for one in sent}) > 1  # each draws its own
        torch.testing.assert_close(updates[0].delta, mean(sent), atol=1e-6, rtol=0)


def test_the_tables_of_the_manual_name_all_parts() -> None:
    rows = {match[1] for match in re.finditer(r"^\| `(\w+)\(", MANUAL, re.MULTILINE)}
    assert rows == {type(part).__name__ for part in [*TABLE, *MEMORIES]}


def test_its_example_keeps_the_contract() -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL) if "class " in block)
    names = {"dataclass": dataclass, "Values": Values}
    exec(code, names)
    method = names["EverySecond"]()
    assert isinstance(method, Compressor)
    encoder, error, value = Encoder(method), torch.zeros(SPEC.numel), gaussian()
    for _ in range(3):
        whole = value + error
        assert torch.equal(encoder.encode(value, error) + error, whole)
        assert encoder.packet_bytes == method.packet_bytes(SPEC)
    placed = Group(ErrorFeedback(method), SPEC, 2).exchange([value, value])
    assert torch.equal(placed[0].delta[::2], value[::2])
