"""Transfers of many exchanges as collectives of a process group.

In each round every exchange has one transfer under way. All `AllToAll`s of a round cross as one all-to-all,
all `AllGather`s as another; sums are all-reduces. What goes from one rank to another in an all-to-all is a
message:

    message = 8 bytes per piece, its length; the pieces side by side

How ranks know how long messages are is up to `tweed.exchange.messages`. Where the network may lose parts, an
all-to-all of lengths goes first, and what is critical of the pieces crosses as an all-to-all of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress.packet import ByteRanges
from tweed.exchange.communicator import Communicator
from tweed.exchange.eager import EagerLimits, LimitsByKind
from tweed.exchange.losses import Losses
from tweed.exchange.messages import exchange_messages
from tweed.exchange.pending import Pending, together
from tweed.exchange.transfers import (
    AllGather,
    AllReduce,
    AllToAll,
    Averaged,
    Crossed,
    Piece,
    Total,
    Transfer,
)

T = TypeVar("T")

_LENGTH_BYTES = 8


def run_exchanges(
    exchanges: Sequence[Generator[Transfer, Any, T]], comm: Communicator, limits: LimitsByKind
) -> Pending[list[T]]:
    """Runs `exchanges`, which are the same on every rank and in the same order, to their ends. Pauses while
    the transfers of a round are under way.

    Args:
      limits: of these exchanges, the same ones at every call.

    Cost: per round one all-reduce for each `AllReduce`; one all-to-all for all `AllToAll`s, one for all
      `AllGather`s, one for all `Total`s, and a latency more where a message was longer than foreseen.
    """
    done: dict[int, T] = {}
    answers: Mapping[int, Any] = dict.fromkeys(range(len(exchanges)))
    place = 0
    while answers:
        transfers: dict[int, Transfer] = {}
        for number, answer in answers.items():
            with comm.encoding():
                try:
                    transfers[number] = exchanges[number].send(answer)
                except StopIteration as end:
                    done[number] = end.value
        answers = yield from _round(transfers, comm, limits, place)
        place += 1
    return [done[number] for number in range(len(exchanges))]


def _round(
    transfers: Mapping[int, Transfer], comm: Communicator, limits: LimitsByKind, place: int
) -> Pending[dict[int, Any]]:
    """What came of each of `transfers`, those of the round with number `place`."""
    sums = {number: one for number, one in transfers.items() if isinstance(one, AllReduce)}
    pieces = {number: one.pieces for number, one in transfers.items() if isinstance(one, AllToAll)}
    replies = {number: one.piece for number, one in transfers.items() if isinstance(one, AllGather)}
    comm.stats.bytes_answered += sum(piece.numel() for piece in replies.values())
    comm.stats.bytes_packed += sum(one.values.nbytes for one in sums.values())
    packets = [one.pieces for one in transfers.values() if isinstance(one, AllToAll) and one.packed]
    comm.stats.bytes_packed += sum(one.data.numel() for by_rank in packets for one in by_rank)
    totals = {number: one for number, one in transfers.items() if isinstance(one, Total)}
    to_all = {number: [piece] * comm.size for number, piece in replies.items()}
    of_replies = limits["replies", place, *replies] if comm.losses is None else None
    kinds: list[Pending[dict[int, Any]]] = [
        _averaged(sums, comm),
        _crossed(pieces, comm, limits["pieces", place, *pieces]),
        _totalled(totals, comm),
        all_to_all(to_all, comm, of_replies),
    ]
    found = yield from together(kinds)
    return {number: answer for of_kind in found for number, answer in of_kind.items()}


def _averaged(sums: Mapping[int, AllReduce], comm: Communicator) -> Pending[dict[int, Averaged]]:
    """What came of all-reduces, all at once."""
    if not sums:
        return {}
    losses = comm.losses
    if losses is None:
        works = [comm.start_mean(one.values) for one in sums.values()]
        yield
        pairs = zip(sums.items(), works, strict=True)
        return {number: Averaged(comm.end_mean(work, one.values)) for (number, one), work in pairs}
    with losses.whole(one.values for one in sums.values() if one.whole):
        works = [comm.start_mean(one.values) for one in sums.values()]
        for work in works:
            comm.wait(work)
    lost = [pair for delivery in losses.take() for pair in delivery.lost]
    found = {}
    for (number, one), work in zip(sums.items(), works, strict=True):
        mine = _within(one.values, lost)
        found[number] = Averaged(comm.end_mean(work, one.values), mine)
    return found


def _totalled(asked: Mapping[int, Total], comm: Communicator) -> Pending[dict[int, Tensor]]:
    """What ranks and buffers have, added up: one rank after the other, so the same bits everywhere."""
    if not asked:
        return {}
    parts = sorted({one.part for one in asked.values()})
    of_part = [[one.values for one in asked.values() if one.part == part] for part in parts]
    mine = [torch.stack(values).sum(dim=0) for values in of_part]
    outgoing = torch.cat(mine).repeat(comm.size)  # all know how long it is
    incoming = torch.empty_like(outgoing)
    comm.stats.bytes_packed += sum(values.nbytes for values in mine)
    comm.count(outgoing, crossings=1)
    work = comm.work(dist.all_to_all_single(incoming, outgoing, group=comm.group, async_op=True))
    yield
    comm.wait(work)
    total = torch.zeros_like(outgoing[: len(outgoing) // comm.size])
    for one in incoming.view(comm.size, -1):
        total += one
    totals = dict(zip(parts, torch.split(total, [len(values) for values in mine]), strict=True))
    return {number: totals[one.part] for number, one in asked.items()}


def _within(values: Tensor, lost: Iterable[tuple[int, bytes]]) -> list[tuple[int, Tensor]]:
    """What of `lost`, addresses and bytes, was in `values`: first place, and values."""
    found = []
    for address, data in lost:
        first, part = address - values.data_ptr(), torch.frombuffer(bytearray(data), dtype=values.dtype)
        if 0 <= first < values.nbytes:
            found.append((first // values.element_size(), part))
    return found


def _crossed(
    pieces: Mapping[int, Sequence[Piece]], comm: Communicator, limits: EagerLimits
) -> Pending[dict[int, Crossed]]:
    """What came of all-to-alls: what is critical goes first, then what may get lost."""
    if comm.losses is None:
        data = {number: [one.data for one in mine] for number, mine in pieces.items()}
        nothing: list[ByteRanges] = [()] * comm.size
        whole = yield from all_to_all(data, comm, limits)
        return {number: Crossed(received, nothing, nothing) for number, received in whole.items()}
    critical = {number: [one.data[: one.critical] for one in mine] for number, mine in pieces.items()}
    values = {number: [one.data[one.critical :] for one in mine] for number, mine in pieces.items()}
    heads = yield from all_to_all(critical, comm)
    bodies, missing, lost = yield from _losing_all_to_all(values, comm, comm.losses)
    return {
        number: Crossed(
            [torch.cat(both) for both in zip(heads[number], bodies[number], strict=True)],
            missing[number],
            lost[number],
        )
        for number in pieces
    }


def all_to_all(
    pieces: Mapping[int, Sequence[Tensor]], comm: Communicator, limits: EagerLimits | None = None
) -> Pending[dict[int, list[Tensor]]]:
    """Sends `pieces[number][rank]`, `[bytes]` uint8, to `rank`; returns what each rank sent to this one.

    Args:
      limits: of such messages; None: lengths go first, by an all-to-all of their own.
    """
    if not pieces:
        return {}
    device = next(iter(pieces.values()))[0].device
    if limits is not None and (device.type == "cpu" or comm.sends_from_host):
        messages = [
            _with_lengths([of_rank[rank] for of_rank in pieces.values()]) for rank in range(comm.size)
        ]
        found = yield from exchange_messages(messages, comm, limits)
        came = [message.to(device) for message in found]
        return _by_number([piece for message in came for piece in _pieces(message, len(pieces))], pieces)
    outgoing, incoming, lengths = yield from _laid_out(pieces, comm)
    work = _start_all_to_all(incoming, outgoing, lengths, comm)
    yield
    comm.wait(work)
    return _by_number(torch.split(incoming, lengths.received), pieces)


def _with_lengths(pieces: Sequence[Tensor]) -> Tensor:
    """The pieces for one rank as one message."""
    lengths = torch.tensor([len(piece) for piece in pieces]).view(torch.uint8)
    return torch.cat([lengths, *(piece.cpu() for piece in pieces)])


def _pieces(message: Tensor, count: int) -> Sequence[Tensor]:
    """The `count` pieces of a message, as `_with_lengths` made it."""
    lengths = message[: _LENGTH_BYTES * count].clone().view(torch.int64)  # such numbers cannot lie anywhere
    return torch.split(message[_LENGTH_BYTES * count :], lengths.tolist())


def _losing_all_to_all(
    pieces: Mapping[int, Sequence[Tensor]], comm: Communicator, losses: Losses
) -> Pending[tuple[dict[int, list[Tensor]], dict[int, list[ByteRanges]], dict[int, list[ByteRanges]]]]:
    """As `all_to_all`, where parts may get lost: what came, what of it is missing, and what of this
    rank's was lost; both as ranges of bytes of a piece."""
    if not pieces:
        return {}, {}, {}
    outgoing, incoming, lengths = yield from _laid_out(pieces, comm)
    with losses.contributions(outgoing, incoming):
        comm.wait(_start_all_to_all(incoming, outgoing, lengths, comm))
    deliveries = losses.take()
    gone = [(at - outgoing.data_ptr(), len(data)) for one in deliveries for at, data in one.lost]
    absent = [(at - incoming.data_ptr(), count) for one in deliveries for at, count in one.missing]
    return (
        _by_number(torch.split(incoming, lengths.received), pieces),
        _by_number(_by_piece(absent, lengths.received), pieces),
        _by_number(_by_piece(gone, lengths.sent), pieces),
    )


class _Lengths(NamedTuple):
    """Bytes of each piece in the buffers: of rank after rank, number after number."""

    sent: list[int]
    received: list[int]

    def by_rank(self, size: int) -> tuple[list[int], list[int]]:
        """How much comes from each rank, and goes to it."""
        received, sent = (torch.tensor(every).view(size, -1).sum(1).tolist() for every in self[::-1])
        return received, sent


def _laid_out(
    pieces: Mapping[int, Sequence[Tensor]], comm: Communicator
) -> Pending[tuple[Tensor, Tensor, _Lengths]]:
    """What goes out side by side, room for what comes in, and their lengths, which ranks tell each other."""
    mine = [of_rank[rank] for rank in range(comm.size) for of_rank in pieces.values()]
    outgoing = torch.cat(mine)
    sizes = torch.tensor([piece.numel() for piece in mine]).view(comm.size, -1).to(outgoing.device)
    theirs = torch.empty_like(sizes)
    work = comm.work(dist.all_to_all_single(theirs, sizes, group=comm.group, async_op=True))
    yield
    comm.wait(work)
    lengths = _Lengths(sizes.flatten().tolist(), theirs.flatten().tolist())
    comm.count(outgoing, crossings=1)
    return outgoing, outgoing.new_empty(sum(lengths.received)), lengths


def _start_all_to_all(incoming: Tensor, outgoing: Tensor, lengths: _Lengths, comm: Communicator) -> dist.Work:
    received, sent = lengths.by_rank(comm.size)
    work = dist.all_to_all_single(incoming, outgoing, received, sent, group=comm.group, async_op=True)
    return comm.work(work)


def _by_piece(ranges: Sequence[tuple[int, int]], lengths: Sequence[int]) -> list[ByteRanges]:
    """`ranges`, begin and length in the whole buffer, as ranges of the pieces that lie in it side by side."""
    ends = [0, *accumulate(lengths)]
    found: list[list[tuple[int, int]]] = [[] for _ in lengths]
    for begin, length in ranges:
        place = bisect_right(ends, begin) - 1
        while place < len(lengths) and ends[place] < begin + length:
            low, high = max(begin, ends[place]), min(begin + length, ends[place + 1])
            if low < high:
                found[place].append((low - ends[place], high - ends[place]))
            place += 1
    return [sorted(of_piece) for of_piece in found]


def _by_number(every: Sequence[T], pieces: Mapping[int, Any]) -> dict[int, list[T]]:
    """What lies rank after rank, and within a rank number after number: for each number, what each rank
    has."""
    width = len(pieces)
    return {number: list(every[place::width]) for place, number in enumerate(pieces)}
