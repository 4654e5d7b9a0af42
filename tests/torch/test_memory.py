"""`tweed.empty`: tensors in shared memory."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import tweed
from tests.torch.naive import FLOATS, SIGNED
from tweed.errors import UsageError
from tweed.testbed import run_ranks
from tweed.torch import memory
from tweed.torch.node import node


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, torch.bool])
def test_is_an_ordinary_tensor(dtype: torch.dtype) -> None:
    tensor = tweed.empty(3, 4, dtype=dtype)
    assert (tensor.shape, tensor.dtype, tensor.device.type) == ((3, 4), dtype, "cpu")
    assert tensor.is_contiguous()
    assert tensor.data_ptr() % 64 == 0
    tensor.zero_()
    assert not tensor.any()


def test_takes_sizes_as_torch_does() -> None:
    assert tweed.empty((2, 3)).shape == tweed.empty(2, 3).shape == tweed.empty(torch.Size([2, 3])).shape
    assert tweed.empty(0, 5).shape == (0, 5)
    assert tweed.empty(()).shape == ()
    assert tweed.empty(4).dtype == torch.get_default_dtype()


def test_memory_is_given_back_with_the_last_view(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []

    engine = node()

    def free(address: int) -> None:
        freed.append(address)
        engine.free(address)

    monkeypatch.setattr(memory, "node", lambda: SimpleNamespace(alloc=engine.alloc, free=free))
    tensor = tweed.empty(100)
    address, view = tensor.data_ptr(), tensor[10:]
    del tensor
    gc.collect()
    assert not freed
    del view
    gc.collect()
    assert freed == [address]


def test_other_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="makes CPU tensors"):
        tweed.empty(3, device="meta")


def sums_in_place(rank: int, size: int) -> bool:
    tensors = [tweed.empty(70_001).fill_(rank + 1), tweed.empty(3, dtype=torch.int64).fill_(rank)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    total = size * (size + 1) / 2
    return bool((tensors[0] == total).all() and (tensors[1] == total - size).all())


def mapped_bytes() -> list[int]:
    """Lengths of the mappings of arenas."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if "memfd:tweed" in line]
    return sorted(int(end, 16) - int(begin, 16) for begin, end in ranges)


def maps_more_where_more_is_used(rank: int, size: int) -> tuple[list[int], list[int], float]:
    *before, own = mapped_bytes()
    tensor = tweed.empty(30_000_000).fill_(rank + 1)
    dist.all_reduce(tensor)
    *after, same = mapped_bytes()
    assert own == same  # addresses for all of the machine's memory, reserved once
    return before, after, tensor.sum().item() / tensor.numel()


def test_of_peers_only_what_is_used_is_mapped() -> None:
    for before, after, mean in run_ranks(maps_more_where_more_is_used, 3, backend="tweed"):
        assert before == [16 << 20] * 2
        assert after[:2] == before
        assert 120_000_000 <= after[-1] <= 256 << 20
        assert mean == 6.0


def test_collectives_on_it() -> None:
    assert run_ranks(sums_in_place, 3, backend="tweed") == [True] * 3
