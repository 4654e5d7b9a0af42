"""Compression inside torch's DistributedDataParallel and FSDP2."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tweed.torch
from tests.torch.test_frameworks import full
from tweed.compress import (
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    Memory,
    Quantise,
    RandomBlocks,
    StepAhead,
    TopK,
)
from tweed.errors import StrategyError, UsageError
from tweed.testbed import run_ranks

on_each_backend = pytest.mark.parametrize("backend", ["gloo", "tweed"])
STEPS = 5

#: With how much they may differ from what is not compressed.
NEAR: dict[str, tuple[Memory[Any], float]] = {
    "all, by sums": (Direct(Identity()), 1e-6), "all, by ranges": (ErrorFeedback(TopK(1.0)), 1e-6),
    "half": (ErrorFeedback(Half()), 2e-3), "8 bits": (ErrorFeedback(Quantise(8, nearest=True)), 2e-2),
}  # fmt: skip
FAR: dict[str, Memory[Any]] = {
    "top-k": ErrorFeedback(TopK(0.1)),
    "random blocks": ErrorFeedback(RandomBlocks(4)),
}


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))


def train(model: nn.Module, rank: int, steps: range = range(STEPS)) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in steps:
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(31 * number + rank))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [full(param).detach() for param in model.parameters()]


def with_ddp(memory: Memory[Any] | None) -> DistributedDataParallel:
    model = DistributedDataParallel(make(), bucket_cap_mb=0.0002)
    if memory is not None:
        tweed.torch.compression(model, memory)
    return model


def with_fsdp(memory: Memory[Any] | None) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = make()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[2], mesh=mesh)  # type: ignore[index]
    fully_shard(model, mesh=mesh)
    if memory is not None:
        tweed.torch.sharded_compression(model, memory)
    return model


WAYS = {"DDP": with_ddp, "FSDP2": with_fsdp}


def train_all(rank: int, size: int, way: str) -> dict[str, list[Tensor]]:
    wrap = WAYS[way]
    memories = {"plain": None, **{name: memory for name, (memory, _) in NEAR.items()}, **FAR}
    return {name: train(wrap(memory), rank) for name, memory in memories.items()}


@on_each_backend
@pytest.mark.parametrize("way", WAYS)
def test_training_with_a_hook(backend: str, way: str) -> None:
    first, second = run_ranks(train_all, 2, way, backend=backend)
    for name, params in first.items():
        for mine, other, plain in zip(params, second[name], first["plain"], strict=True):
            assert torch.equal(mine, other), name
            if name in NEAR:
                torch.testing.assert_close(mine, plain, rtol=0, atol=NEAR[name][1], msg=name)
            elif name in FAR:
                assert not torch.equal(mine, plain), name
                torch.testing.assert_close(mine, plain, rtol=0, atol=0.2, msg=name)


def count_packed(rank: int, size: int) -> list[int]:
    model = DistributedDataParallel(make())
    hook = tweed.torch.compression(model, ErrorFeedback(TopK(0.1)))
    packed = []
    for number in range(4):
        train(model, rank, range(number, number + 1))
        packed.append(hook.stats.bytes_packed)
    return packed


def test_ddp_is_compressed_once_its_buckets_stay_the_same() -> None:
    numel = 6 * 20 + 20 + 20 * 3 + 3
    packed = 8 * round(0.1 * numel) + 16 * 2
    whole = 4 * numel
    for counts in run_ranks(count_packed, 2, backend="tweed"):
        assert counts[-1] - counts[-2] == packed < whole


def spoil(rank: int, size: int, way: str) -> list[Any]:
    """Rank 1's gradient of the last bias has a NaN: what is warned of, and is it NaN on this rank?"""
    torch.manual_seed(0)
    model = WAYS[way](ErrorFeedback(TopK(0.1)))
    train(model, rank)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tweed").addHandler(handler)
    value = model(torch.ones(1, 6)).sum()
    (value * (math.nan if rank == 1 else 1.0)).backward()
    grads = [full(param.grad) for param in model.parameters()]
    return [said, any(bool(grad.isnan().any()) for grad in grads)]


@pytest.mark.parametrize(("way", "words"), [("DDP", "'2.weight' on rank 1"), ("FSDP2", "of 2 on rank 1")])
def test_a_bad_gradient_is_named_on_all_ranks(way: str, words: str) -> None:
    for said, bad in run_ranks(spoil, 2, way, backend="gloo"):
        assert bad
        assert any(words in text for text in said), said


Hook = Callable[[Any, Memory[Any]], Any]


def resumes(rank: int, compress: Hook, model: nn.Module, again: nn.Module) -> bool:
    """Trains `model`, goes on, and goes on from what was stored in `again`: whether both end alike."""
    memory = ErrorFeedback(TopK(0.1))
    hook = compress(model, memory)
    train(model, rank)
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    for mine, other in zip(again.parameters(), model.parameters(), strict=True):
        mine.data.copy_(other.data)
    its_hook = compress(again, memory)
    file.seek(0)
    its_hook.load_state_dict(torch.load(file, weights_only=True))
    ends = [train(one, rank, range(5, 8)) for one in (model, again)]
    with pytest.raises(UsageError, match="the hook is of"):
        its_hook.load_state_dict({**hook.state_dict(), "memory": "another"})
    return all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


def resume_sharded(rank: int, size: int) -> bool:
    return resumes(rank, tweed.torch.sharded_compression, with_fsdp(None), with_fsdp(None))


def resume_ddp(rank: int, size: int) -> bool:
    """DDP deals out buckets once here, as it looks for unused parameters: then a resume is exact."""
    models = [DistributedDataParallel(make(), find_unused_parameters=True) for _ in range(2)]
    return resumes(rank, tweed.torch.compression, *models)


@pytest.mark.parametrize("resume", [resume_sharded, resume_ddp])
def test_a_resumed_run_is_exact(resume: Callable[[int, int], bool]) -> None:
    assert run_ranks(resume, 2, backend="tweed") == [True, True]


REFUSED: list[tuple[Any, str]] = [
    (TopK(0.1), "nothing makes good"),
    (StepAhead(TopK(0.1)), "a gradient moves none"),
    (ErrorReset(TopK(0.1), Identity()), "a gradient moves none"),
]


def refuse(rank: int, size: int) -> None:
    for memory, words in REFUSED:
        for compress in (tweed.torch.compression, tweed.torch.sharded_compression):
            with pytest.raises(StrategyError, match=words):
                compress(with_ddp(None), memory)
    with pytest.raises(UsageError, match="fully_shard"):
        tweed.torch.sharded_compression(make(), Half())


def test_what_cannot_be_done_is_refused_with_the_reason() -> None:
    run_ranks(refuse, 1, backend="gloo")
