"""Messages of any length from each rank to each rank, by one all-to-all.

    to each rank    8 bytes, the length; as many bytes as are eager, or padding; the rest by itself

The rest leaves together with all else. Where the backend sends before a receiver asks, as "tweed" does, it
takes no latency of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.exchange.communicator import Communicator
from tweed.exchange.eager import EagerLimits
from tweed.exchange.pending import Pending

_LENGTH_BYTES = 8


def exchange_messages(
    messages: Sequence[Tensor], comm: Communicator, limits: EagerLimits
) -> Pending[list[Tensor]]:
    """Sends `messages[rank]`, `[bytes]` uint8 on the CPU, to `rank`; returns what each rank sent to this one.
    Pauses once, while all is under way.

    Args:
      limits: of such messages.

    Cost: an all-to-all, and a send and a receive for each message that is longer than its eager bytes.
    """
    lengths = [len(message) for message in messages]
    sent, received = limits.sent(), limits.received()
    sent[comm.rank] = received[comm.rank] = lengths[comm.rank]
    outgoing = torch.cat([_front(message, eager) for message, eager in zip(messages, sent, strict=True)])
    by_sender, by_receiver = ([_LENGTH_BYTES + eager for eager in limit] for limit in (received, sent))
    incoming = outgoing.new_empty(sum(by_sender))
    work = dist.all_to_all_single(incoming, outgoing, by_sender, by_receiver, comm.group, async_op=True)
    rests = [message[eager:] for message, eager in zip(messages, sent, strict=True)]
    sends = [
        dist.isend(rest, group=comm.group, tag=limits.tag, group_dst=rank)
        for rank, rest in enumerate(rests)
        if len(rest)
    ]
    for data in (outgoing, *rests):
        comm.count(data, crossings=1)
    yield
    comm.wait(comm.work(work))
    found = _completed(torch.split(incoming, by_sender), comm, limits.tag)
    for send in sends:
        comm.wait(comm.work(send))
    limits.note(lengths, [len(message) for message in found])
    return found


def _front(message: Tensor, eager: int) -> Tensor:
    """What goes at once of `message`."""
    length = torch.tensor([len(message)]).view(torch.uint8)
    return torch.cat([length, message[:eager], message.new_zeros(max(0, eager - len(message)))])


def _completed(fronts: Sequence[Tensor], comm: Communicator, tag: int) -> list[Tensor]:
    """The whole messages that `fronts` begin, by rank. Waits for what is still to come of them."""
    heads = torch.stack([front[:_LENGTH_BYTES] for front in fronts]).view(torch.int64)
    lengths = heads.flatten().tolist()
    found = [front[_LENGTH_BYTES:][:length] for front, length in zip(fronts, lengths, strict=True)]
    rests = [part.new_empty(length - len(part)) for part, length in zip(found, lengths, strict=True)]
    receives = [
        dist.irecv(rest, group=comm.group, tag=tag, group_src=rank)
        for rank, rest in enumerate(rests)
        if len(rest)
    ]
    for receive in receives:
        comm.wait(comm.work(receive))
    return [torch.cat([part, rest]) if len(rest) else part for part, rest in zip(found, rests, strict=True)]
