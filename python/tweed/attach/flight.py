"""The way of one buffer through compression and the network, as a coroutine without I/O.

It walks a memory's coroutine, compresses what that asks for, and yields what is to cross the network. The
live driver does that with a process group, the simulated one for all workers of one process.

    transfers = flight(luggage, value, turn)
    transfer = next(transfers)              # a `Sum`, `Swap` or `Share`
    transfer = transfers.send(answer)       # what came of it
    ...                                     # StopIteration: a `Placed`
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tweed.collective.ranges import bounds
from tweed.compress import (
    Ask,
    Compressor,
    Memory,
    Nonzero,
    Numbers,
    Packet,
    Placed,
    Rounds,
    Spec,
    Turn,
    unpack,
)


@dataclass(frozen=True, slots=True)
class Sum:
    """Add `values` up over all ranks. Answer: the sum, `[count]`, same dtype."""

    values: Tensor


@dataclass(frozen=True, slots=True)
class Swap:
    """Give `pieces[rank]` to each rank. Answer: what each rank gave to this one, by rank; all `[bytes]`
    uint8."""

    pieces: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Share:
    """Give `piece` to all ranks. Answer: every rank's, by rank; all `[bytes]` uint8."""

    piece: Tensor


Transfer = Sum | Swap | Share

#: Added to the slot on the way back, so that it draws other lots: the same again would not be unbiased.
_BACK = 2**32
Flight = Generator[Transfer, Any, Placed]


@dataclass(slots=True)
class Luggage:
    """All that is kept of one buffer from one exchange to the next.

    Attributes:
      memory: the strategy's.
      state: the memory's.
      parts: states of the compressors that it asks for, by part.
      ways_back: the same of the range that this rank owns, where the answer is compressed too: state and
      error.
      mean: `[numel]`, scratch memory for averages.
    """

    memory: Memory[Any]
    state: Any
    parts: dict[str, Any]
    mean: Tensor
    ways_back: dict[str, tuple[Any, Tensor | None]] = field(default_factory=dict)


def pack(memory: Memory[Any], spec: Spec, like: Tensor) -> Luggage:
    """Luggage before the first exchange of a buffer `like`, `[numel]` float32."""
    parts = {name: part.start(spec) for name, part in memory.parts.items()}
    return Luggage(memory, memory.start(like), parts, torch.empty_like(like))


def flight(luggage: Luggage, value: Tensor, turn: Turn, silent: bool = False) -> Flight:
    """One exchange of `value`, `[numel]` float32, which may be used as scratch memory."""
    exchange = luggage.memory.exchange(value, luggage.state, turn, silent)
    try:
        ask = next(exchange)
        while True:
            yield from _averaged(luggage, ask, turn)
            ask = exchange.send(luggage.mean)
    except StopIteration as end:
        placed: Placed = end.value
        return placed


def _averaged(luggage: Luggage, ask: Ask, turn: Turn) -> Generator[Transfer, Any, None]:
    """Leaves the mean over ranks of what `ask` asks for in `luggage.mean`."""
    if ask.silent and ask.by.sums:
        ask = replace(ask, value=torch.zeros_like(ask.value), error=None, silent=False)
    if isinstance(ask.by, Rounds):
        yield from _in_rounds(luggage, ask, ask.by, turn)
        return
    assert isinstance(ask.by, Compressor)  # there is no third form
    packet: Packet | None = None
    if not ask.silent:
        state = luggage.parts[ask.part]
        packet, luggage.parts[ask.part] = ask.by.encode(ask.value, state, turn, ask.error)
    if ask.by.sums:
        assert isinstance(packet, Numbers)  # the contract of `sums`
        yield from _summed(luggage, packet, turn)
    else:
        yield from _by_ranges(luggage, ask, packet, turn)


def _summed(luggage: Luggage, packet: Numbers, turn: Turn) -> Generator[Transfer, Any, None]:
    luggage.mean.zero_()
    if packet.values.numel():
        total = yield Sum(packet.values)
        replace(packet, values=total.float().div_(turn.size)).add_to(luggage.mean)


def _in_rounds(luggage: Luggage, ask: Ask, by: Rounds[Any], turn: Turn) -> Generator[Transfer, Any, None]:
    rounds = by.rounds(ask.value, luggage.parts[ask.part], turn, luggage.mean, ask.error)
    try:
        values = next(rounds)
        while True:
            total = yield Sum(values)
            values = rounds.send(total.float().div_(turn.size))
    except StopIteration as end:
        luggage.parts[ask.part] = end.value


def _by_ranges(
    luggage: Luggage, ask: Ask, packet: Packet | None, turn: Turn
) -> Generator[Transfer, Any, None]:
    ends = bounds(turn.spec.numel, turn.size)
    said = yield Swap(_pieces(packet, ends, ask.value))
    mine = luggage.mean[ends[turn.rank] : ends[turn.rank + 1]].zero_()
    for piece in said:
        _add(piece, mine)
    answer = _answer(luggage, ask, mine.div_(turn.size), turn)
    answers = yield Share(answer)
    luggage.mean.zero_()
    for rank, piece in enumerate(answers):
        _add(piece, luggage.mean[ends[rank] : ends[rank + 1]])


def _pieces(packet: Packet | None, ends: Sequence[int], like: Tensor) -> list[Tensor]:
    if packet is None:
        return [_nothing(like)] * (len(ends) - 1)
    return [piece.pack() if piece.numel else _nothing(like) for piece in packet.cut(ends)]


def _nothing(like: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=like.device)


def _add(piece: Tensor, out: Tensor) -> None:
    packet = unpack(piece, out.numel())
    if packet is not None:
        packet.add_to(out)


def _answer(luggage: Luggage, ask: Ask, mean: Tensor, turn: Turn) -> Tensor:
    """What the owner of a range tells everybody: as few bytes as it exactly takes, or compressed too."""
    if not mean.numel():
        return _nothing(mean)
    back = ask.by.back
    if back is None:
        return Nonzero().encode(mean, None, turn)[0].pack()
    spec = Spec(((mean.numel(),),))
    if ask.part not in luggage.ways_back:
        luggage.ways_back[ask.part] = way_back(back, mean)
    state, error = luggage.ways_back[ask.part]
    packet, state = back.encode(mean, state, replace(turn, spec=spec, slot=_BACK + turn.slot), error)
    luggage.ways_back[ask.part] = (state, error)
    return packet.pack()


def way_back(back: Compressor[Any], mean: Tensor) -> tuple[Any, Tensor | None]:
    """State and error before the first answer about a range like `mean`."""
    return back.start(Spec(((mean.numel(),),))), None if back.unbiased else torch.zeros_like(mean)
