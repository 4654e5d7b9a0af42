"""The exchange of one buffer through compression and the network, as a coroutine without I/O.

It runs a memory's coroutine, encodes what that asks for, and yields what is to cross the network. The live
driver does that with a process group (`compressed_buffers`), the simulated one for all workers of one process
(`tweed.simulate.workers`).

    exchange = exchange_buffer(buffer, value, turn)
    transfer = next(exchange)               # an `AllReduce`, `AllToAll`, `AllGather` or `Total`
    transfer = exchange.send(answer)        # what came of it
    ...                                     # StopIteration: an `Update`

A packet takes one of three routes:

    packets add up, linear aggregate    all-reduce of values      the collective forms the sum on its way
    codecs in rounds                    an all-reduce per round   each rests on the mean of the one before
    all others                          all-to-all, all-gather    each range's owner aggregates, replies

Sums of 16 bits are rounded on their way, where nobody can tell by how much. Where a memory keeps what is left
of its request, owners form them.

A server runs the same coroutine as its workers, with nothing to contribute, and what it encodes is not sent.

What the network loses of a packet counts as if it had never been encoded: it goes to what the memory keeps of
the request, or, where a memory keeps nothing, is added to the next request for the same part.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tweed.aggregate import Question, of_range
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
from tweed.compress.packet import ByteRanges
from tweed.exchange.owners import Owners, Received


class Averaged(NamedTuple):
    """What came of an `AllReduce`.

    Attributes:
      mean: `[count]` float32, over those that contribute.
      lost: what of this rank's values did not get there: first place, and values.
    """

    mean: Tensor
    lost: Sequence[tuple[int, Tensor]] = ()


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Average `values`, `[count]`, over those that contribute; they may be overwritten. Answer: `Averaged`.

    Attributes:
      whole: the network may lose nothing of them.
    """

    values: Tensor
    whole: bool = False


class Piece(NamedTuple):
    """What one rank sends another about a range.

    Attributes:
      data: `[bytes]` uint8.
      critical: so many bytes in front must arrive; of the others the network may lose some.
    """

    data: Tensor
    critical: int


class Crossed(NamedTuple):
    """What came of an `AllToAll`; ranges are of a piece's bytes behind the critical ones.

    Attributes:
      arrived: what each rank sent to this one, `[bytes]` uint8, by rank; zeros where something is missing.
      missing: by rank, where that is.
      lost: by rank, what of this rank's piece for it was lost.
    """

    arrived: Sequence[Tensor]
    missing: Sequence[ByteRanges]
    lost: Sequence[ByteRanges]


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Send `pieces[rank]` to each rank. Answer: `Crossed`.

    Attributes:
      packed: they are packets, and count as such.
    """

    pieces: Sequence[Piece]
    packed: bool = True


@dataclass(frozen=True, slots=True)
class AllGather:
    """Send `piece` to all ranks. Answer: every rank's, by rank; all `[bytes]` uint8."""

    piece: Tensor


@dataclass(frozen=True, slots=True)
class Total:
    """Add up `values`, `[count]` float64, over all ranks, and over all buffers that ask at once about the
    same `part`. Answer: the sum, the same bits on every rank."""

    values: Tensor
    part: str


Transfer = AllReduce | AllToAll | AllGather | Total
BufferExchange = Generator[Transfer, Any, Update]

#: Added to the slot of a reply, so that it draws other random numbers: the same again would not be unbiased.
_REPLY = 2**32


@dataclass(slots=True)
class BufferState:
    """All that is kept of one buffer from one exchange to the next.

    Attributes:
      memory: the strategy's.
      owners: of its ranges.
      state: the memory's.
      parts: states of the codecs that it asks for, by part.
      mean: `[numel]`, scratch memory for averages.
      replies: as `parts`, for replies about the range that this rank owns, where these are compressed too:
        state and error.
      aggregates: states of the aggregate, by part, where each contribution is seen alone.
      lost: `[numel]`, by part, what the network lost of requests whose memory keeps nothing.
    """

    memory: Memory[Any]
    owners: Owners
    state: Any
    parts: dict[str, Any]
    mean: Tensor
    replies: dict[str, tuple[Any, Tensor | None]] = field(default_factory=dict)
    aggregates: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def start(cls, memory: Memory[Any], spec: Spec, like: Tensor, owners: Owners) -> BufferState:
        """Before the first exchange of a buffer `like`, `[numel]` float32."""
        parts = {name: part.start(spec) for name, part in memory.parts.items()}
        return cls(memory, owners, memory.start(like), parts, torch.empty_like(like))


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
    """Leaves the aggregate of what `request` asks for in `buffer.mean`."""
    codec, keeps, silent = request.codec, request.error is not None, request.silent
    if request.part in buffer.lost and not request.silent:
        request.value.add_(buffer.lost.pop(request.part))
    if (
        request.silent and codec.sums
    ):  # a sum needs every rank's values: zeros; a rule leaves out what is none
        nothing = torch.full_like(request.value, 0.0 if buffer.owners.linear else math.nan)
        request = replace(request, value=nothing, error=None, silent=False)
    if isinstance(codec, Rounds):
        yield from _in_rounds(buffer, request, codec, turn)
        return
    assert isinstance(codec, Compressor)  # there is no third form
    packet: Packet | None = None
    if not request.silent:
        state = buffer.parts[request.part]
        packet, buffer.parts[request.part] = codec.encode(request.value, state, turn, request.error)
    if not codec.sums:
        lost = yield from _by_ranges(buffer, request, packet, turn, buffer.mean)
        if lost is not None:
            _kept(buffer, request).add_(lost)
        return
    assert isinstance(packet, Values)  # the contract of `sums`
    if not packet.values.numel():
        buffer.mean.zero_()
        return
    mean, lost = yield from (
        _summed(packet.values)
        if buffer.owners.linear and not (keeps and packet.values.element_size() < 4)
        else _sum_by_ranges(buffer, request, packet.values, turn)
    )
    replace(packet, values=mean).add_to(buffer.mean.zero_())
    if lost is not None and not silent:
        replace(packet, values=lost).add_to(_kept(buffer, request))


def _kept(buffer: BufferState, request: ReduceRequest) -> Tensor:
    """What this rank still has to send of `request`: what is lost is added to it."""
    if request.error is not None:
        return request.error
    return buffer.lost.setdefault(request.part, torch.zeros_like(buffer.mean))


def _summed(sent: Tensor) -> Generator[Transfer, Any, tuple[Tensor, Tensor | None]]:
    """The mean of `sent` over ranks, and what of this rank's was lost: zero elsewhere; None: nothing."""
    averaged: Averaged = yield AllReduce(sent)
    if not averaged.lost:
        return averaged.mean, None
    lost = torch.zeros_like(averaged.mean)
    for first, values in averaged.lost:
        lost[first : first + len(values)] = values
    return averaged.mean, lost


def _sum_by_ranges(
    buffer: BufferState, request: ReduceRequest, sent: Tensor, turn: Turn
) -> Generator[Transfer, Any, tuple[Tensor, Tensor | None]]:
    """As `_summed`, by owners: what ranks send has one layout, so that ranges of it have owners too."""
    mean = torch.empty_like(sent, dtype=torch.float32)
    lost = yield from _by_ranges(buffer, request, Values(sent, len(sent)), turn, mean)
    return mean, lost


def _in_rounds(
    buffer: BufferState, request: ReduceRequest, codec: Rounds[Any], turn: Turn
) -> Generator[Transfer, Any, None]:
    """All goes whole: a number of one round stands for many of the buffer."""
    rounds = codec.rounds(request.value, buffer.parts[request.part], turn, buffer.mean, request.error)
    try:
        values = next(rounds)
        while True:
            averaged = yield AllReduce(values, whole=True)
            values = rounds.send(averaged.mean)
    except StopIteration as end:
        buffer.parts[request.part] = end.value


def _by_ranges(
    buffer: BufferState, request: ReduceRequest, packet: Packet | None, turn: Turn, out: Tensor
) -> Generator[Transfer, Any, Tensor | None]:
    """Leaves the aggregate of packets in `out`. Returns what was lost of this rank's, zero elsewhere; None:
    nothing."""
    owners, part = buffer.owners, request.part
    ends = owners.bounds(out.numel())
    nothing: Sequence[Packet | None] = [None] * owners.size
    parts = packet.cut(ends) if packet is not None and owners.contributes else nothing
    crossed: Crossed = yield AllToAll([_piece(one, out) for one in parts])
    mine = owners.mine(out)
    pairs = zip(crossed.arrived, crossed.missing, strict=True)
    received = [Received(unpack(data, len(mine)), missing) for data, missing in pairs]
    state = buffer.aggregates.get(part, owners.aggregate.start())
    combined = owners.combine(received, state, float(turn.step), mine)
    buffer.aggregates[part] = yield from _answered(combined, part)
    replies = yield AllGather(_reply(buffer, request, mine, turn))
    out.zero_()
    for reply, (low, high) in zip(replies, pairwise(ends), strict=True):
        answer = unpack(reply, high - low)
        if answer is not None:
            answer.add_to(out[low:high])
    if not any(crossed.lost):
        return None
    lost = torch.zeros_like(out)
    for one, (low, high), ranges in zip(parts, pairwise(ends), crossed.lost, strict=True):
        if one is not None and ranges:
            one.lost(ranges).add_to(lost[low:high])
    return lost


def _answered(combined: Generator[Question, Any, Any], part: str) -> Generator[Transfer, Any, Any]:
    """Runs `combined`, in which all owners ask alike; what they know is of their ranges of all buffers."""
    try:
        question = next(combined)
        while True:
            known = of_range(question)
            total: Tensor = yield Total(known.flatten(), part)
            question = combined.send(total.view(known.shape))
    except StopIteration as end:
        return end.value


def nothing_sent(like: Tensor, size: int) -> BufferExchange:
    """In the place of an exchange of a buffer `like`: this rank sends nothing to any of `size` ranks, and
    ends there, as all do that hear why."""
    yield AllToAll([Piece(_no_bytes(like), 0)] * size)
    raise AssertionError("nobody goes on when a rank has encoded nothing")


def _piece(packet: Packet | None, like: Tensor) -> Piece:
    if packet is None or not packet.numel:
        return Piece(_no_bytes(like), 0)
    data = packet.pack()
    return Piece(data, data.numel() - packet.value_bytes)


def _no_bytes(like: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=like.device)


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
