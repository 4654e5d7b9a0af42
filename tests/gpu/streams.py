"""Operations beside streams, events and pinned memory; on the host, where those are not, their plain form."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor

NUMEL = 1 << 18


class Streams:
    """Streams of a GPU; on the host all is done when it is called, and waits are over at once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams = [torch.cuda.Stream(device) for _ in range(2)] if device.type == "cuda" else []

    def on(self, which: int) -> AbstractContextManager[object]:
        """What is called within is queued on this stream."""
        return torch.cuda.stream(self._streams[which]) if self._streams else nullcontext()

    def after(self, which: int, other: int) -> None:
        """What is queued on a stream from now on comes after what is on the other one: by an event."""
        if self._streams:
            self._streams[which].wait_event(self._streams[other].record_event())

    def late(self, value: float) -> Tensor:
        """`[NUMEL]` of `value`, which are there some milliseconds after this call has come back."""
        if self._streams:
            torch.cuda._sleep(20_000_000)
        return torch.full((NUMEL,), value, device=self.device)


def read_on_another_stream(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """The result is read on a stream that waits, by an event, for that where the operation was waited for."""
    with streams.on(0):
        tensor = streams.late(rank + 1.0)
        dist.all_reduce(tensor)
    streams.after(1, 0)
    with streams.on(1):
        return [tensor.mean(), tensor.max()]


def waited_for_on_another_stream(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """The operation begins on one stream, and is waited for on another one, where the result is read."""
    with streams.on(0):
        tensor = streams.late(rank + 1.0)
        work = dist.all_reduce(tensor, async_op=True)
    with streams.on(1):
        work.wait()
        return [tensor.mean(), tensor.max()]


def written_after_on_its_stream(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """The next kernels of the stream change the result, and what was sent is what was there before."""
    with streams.on(0):
        tensor = streams.late(rank + 1.0)
        dist.all_reduce(tensor)
        seen = tensor.clone()
        tensor.mul_(3)
        return [seen.mean(), tensor.mean()]


def freed_under_way(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """The caller forgets its input, and takes new memory of the same size, before the operation has ended."""
    output = torch.empty(size * NUMEL, device=streams.device)
    with streams.on(0):
        given = streams.late(rank + 1.0)
        work = dist.all_gather_into_tensor(output, given, async_op=True)
        del given
        other = [torch.full((NUMEL,), -1.0, device=streams.device) for _ in range(4)]
        work.wait()
        return [output[:: NUMEL // 2], *(one.mean() for one in other)]


def many_on_two_streams(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """Operations in the same order on all ranks, begun on two streams in turn, waited for in reverse."""
    works = []
    for place in range(16):
        with streams.on(place % 2):
            tensor = streams.late(float(rank + place))
            works.append((place, tensor, dist.all_reduce(tensor, async_op=True)))
    found = []
    for place, tensor, work in reversed(works):
        with streams.on(place % 2):
            work.wait()
            found.append(tensor.mean())
    return found


def followed_by_a_future(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """What follows the operation's future sees its result."""
    with streams.on(0):
        tensor = streams.late(rank + 1.0)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        return [future.then(lambda done: done.value()[0].mean() / size).wait()]


def strided(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """Every other value of a tensor is summed; the others stay as they are."""
    tensor = streams.late(rank + 1.0)
    dist.all_reduce(tensor[:1024].view(32, 32).t()[::2])
    return [tensor[:1024].mean(), tensor.mean()]


def pinned(rank: int, size: int, streams: Streams) -> list[Tensor]:
    """A tensor of the host whose pages are pinned is summed, copied from the device and back."""
    host = torch.empty(NUMEL, pin_memory=streams.device.type == "cuda")
    with streams.on(0):
        host.copy_(streams.late(rank + 1.0))
        _host_sum(host)
        back = host.to(streams.device, non_blocking=True)
        return [back.mean(), back.max()]


def _host_sum(host: Tensor) -> None:
    """NCCL takes no tensors of the host, so there another group does."""
    group = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None
    dist.all_reduce(host, group=group)


def event_times(rank: int, size: int, streams: Streams) -> list[bool]:
    """An event after an operation comes when the result is there."""
    with streams.on(0):
        tensor = streams.late(rank + 1.0)
        dist.all_reduce(tensor)
        if streams.device.type == "cuda":
            torch.cuda.current_stream().record_event().synchronize()
        return [bool((tensor == size * (size + 1) / 2).all())]


_CHECKS = {
    one.__name__: one
    for one in (
        read_on_another_stream,
        waited_for_on_another_stream,
        written_after_on_its_stream,
        freed_under_way,
        many_on_two_streams,
        followed_by_a_future,
        strided,
        pinned,
        event_times,
    )
}
CASES = tuple(_CHECKS)


def check(case: str, rank: int, size: int, device: torch.device) -> list[Tensor] | list[bool]:
    """What the case finds."""
    return _CHECKS[case](rank, size, Streams(device))
