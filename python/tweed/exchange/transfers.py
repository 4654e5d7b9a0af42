"""The exchange of one buffer through compression and the network, as a coroutine without I/O.

It runs a memory's coroutine, encodes what that asks for, and yields what is to cross the network. The live
driver does that with a process group (`compressed_buffers`), the simulated one for all workers of one process
(`tweed.simulate.workers`).

    exchange = exchange_buffer(buffer, value, turn)
    transfer = next(exchange)               # an `AllReduce`, `AllToAll` or `AllGather`
    transfer = exchange.send(answer)        # what came of it
    ...                                     # StopIteration: an `Update`

A packet takes one of three routes, by its codec:

    summable packets        all-reduce of the values             the collective forms the sum on the way
    codecs in rounds        an all-reduce per round              each rests on the mean of the one before
    all others              by ranges: all-to-all, all-gather    the owner of a range averages and replies

Whatever the route, `mean_of` is where a sum becomes an average.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tweed.collective.ranges import bounds
from tweed.compress import (
    Compressor,
    Memory,
    Nonzero,
    Packet,
    ReduceRequest,
    Rounds,
    Spec,
    Turn,
    Update,
    Values,
    unpack,
)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Add `values` up over all ranks. Answer: the sum, `[count]`, same dtype."""

    values: Tensor


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Send `pieces[rank]` to each rank. Answer: what each rank sent to this one, by rank; all `[bytes]`
    uint8."""

    pieces: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class AllGather:
    """Send `piece` to all ranks. Answer: every rank's, by rank; all `[bytes]` uint8."""

    piece: Tensor


Transfer = AllReduce | AllToAll | AllGather
BufferExchange = Generator[Transfer, Any, Update]

#: Added to the slot of a reply, so that it draws other random numbers: the same again would not be unbiased.
_REPLY = 2**32


@dataclass(slots=True)
class BufferState:
    """All that is kept of one buffer from one exchange to the next.

    Attributes:
      memory: the strategy's.
      state: the memory's.
      parts: states of the codecs that it asks for, by part.
      replies: the same for replies about the range that this rank owns, where these are compressed too: state
        and error.
      mean: `[numel]`, scratch memory for averages.
    """

    memory: Memory[Any]
    state: Any
    parts: dict[str, Any]
    mean: Tensor
    replies: dict[str, tuple[Any, Tensor | None]] = field(default_factory=dict)

    @classmethod
    def start(cls, memory: Memory[Any], spec: Spec, like: Tensor) -> BufferState:
        """Before the first exchange of a buffer `like`, `[numel]` float32."""
        parts = {name: part.start(spec) for name, part in memory.parts.items()}
        return cls(memory, memory.start(like), parts, torch.empty_like(like))


def exchange_buffer(buffer: BufferState, value: Tensor, turn: Turn, silent: bool = False) -> BufferExchange:
    """One exchange of `value`, `[numel]` float32, which may be used as scratch memory."""
    requests = buffer.memory.exchange(value, buffer.state, turn, silent)
    try:
        request = next(requests)
        while True:
            yield from _reduce(buffer, request, turn)
            request = requests.send(buffer.mean)
    except StopIteration as end:
        update: Update = end.value
        return update


def _reduce(buffer: BufferState, request: ReduceRequest, turn: Turn) -> Generator[Transfer, Any, None]:
    """Leaves the mean over ranks of what `request` asks for in `buffer.mean`."""
    codec = request.codec
    if request.silent and codec.sums:  # a sum needs every rank's values: zeros
        request = replace(request, value=torch.zeros_like(request.value), error=None, silent=False)
    if isinstance(codec, Rounds):
        yield from _in_rounds(buffer, request, codec, turn)
        return
    assert isinstance(codec, Compressor)  # there is no third form
    packet: Packet | None = None
    if not request.silent:
        state = buffer.parts[request.part]
        packet, buffer.parts[request.part] = codec.encode(request.value, state, turn, request.error)
    if codec.sums:
        assert isinstance(packet, Values)  # the contract of `sums`
        yield from _summed(buffer, packet, turn)
    else:
        yield from _by_ranges(buffer, request, packet, turn)


def mean_of(total: Tensor, ranks: int) -> Tensor:
    """The average over ranks of what `total`, used as scratch memory, is the sum of, as float32."""
    return total.float().div_(ranks)


def _summed(buffer: BufferState, packet: Values, turn: Turn) -> Generator[Transfer, Any, None]:
    buffer.mean.zero_()
    if packet.values.numel():
        total = yield AllReduce(packet.values)
        replace(packet, values=mean_of(total, turn.size)).add_to(buffer.mean)


def _in_rounds(
    buffer: BufferState, request: ReduceRequest, codec: Rounds[Any], turn: Turn
) -> Generator[Transfer, Any, None]:
    rounds = codec.rounds(request.value, buffer.parts[request.part], turn, buffer.mean, request.error)
    try:
        values = next(rounds)
        while True:
            total = yield AllReduce(values)
            values = rounds.send(mean_of(total, turn.size))
    except StopIteration as end:
        buffer.parts[request.part] = end.value


def _by_ranges(
    buffer: BufferState, request: ReduceRequest, packet: Packet | None, turn: Turn
) -> Generator[Transfer, Any, None]:
    """Each rank owns one range: it decodes and averages what came for it, and replies to all."""
    ends = bounds(turn.spec.numel, turn.size)
    received = yield AllToAll(_pieces(packet, ends, request.value))
    mine = buffer.mean[ends[turn.rank] : ends[turn.rank + 1]].zero_()
    for piece in received:
        _add(piece, mine)
    replies = yield AllGather(_reply(buffer, request, mean_of(mine, turn.size), turn))
    buffer.mean.zero_()
    for rank, piece in enumerate(replies):
        _add(piece, buffer.mean[ends[rank] : ends[rank + 1]])


def _pieces(packet: Packet | None, ends: Sequence[int], like: Tensor) -> list[Tensor]:
    if packet is None:
        return [_no_bytes(like)] * (len(ends) - 1)
    return [piece.pack() if piece.numel else _no_bytes(like) for piece in packet.cut(ends)]


def _no_bytes(like: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=like.device)


def _add(piece: Tensor, out: Tensor) -> None:
    packet = unpack(piece, out.numel())
    if packet is not None:
        packet.add_to(out)


def _reply(buffer: BufferState, request: ReduceRequest, mean: Tensor, turn: Turn) -> Tensor:
    """What the owner of a range sends to all: as few bytes as it exactly takes, or compressed too."""
    if not mean.numel():
        return _no_bytes(mean)
    codec = request.codec.reply_codec
    if codec is None:
        return Nonzero().encode(mean, None, turn)[0].pack()
    spec = Spec(((mean.numel(),),))
    if request.part not in buffer.replies:
        buffer.replies[request.part] = reply_state(codec, mean)
    state, error = buffer.replies[request.part]
    packet, state = codec.encode(mean, state, replace(turn, spec=spec, slot=_REPLY + turn.slot), error)
    buffer.replies[request.part] = (state, error)
    return packet.pack()


def reply_state(codec: Compressor[Any], mean: Tensor) -> tuple[Any, Tensor | None]:
    """State and error before the first reply about a range like `mean`."""
    return codec.start(Spec(((mean.numel(),),))), None if codec.unbiased else torch.zeros_like(mean)
