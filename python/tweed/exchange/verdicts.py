"""What ranks must agree on before an exchange: what became of the last one, and whether they can take part.

Each rank says one word, which goes with the flags that are exchanged anyhow. All ranks hear all words, so all
raise an error, or none does, and nobody waits for a rank that has raised one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
import torch.distributed as dist

from tweed.errors import UsageError
from tweed.exchange.communicator import Communicator

_TEXT_BYTES = 1024


class Verdict(IntEnum):
    """What a rank says."""

    #: The gradients of the last exchange were used, or are added to.
    GO_ON = 0
    #: All of them were cleared, and no step was taken: the last exchange is taken back.
    TAKE_BACK = 1
    #: This rank cannot take part, and has a reason.
    REFUSED = 2


def check_verdicts(
    said: Sequence[int], comm: Communicator, device: torch.device, own: UsageError | None
) -> None:
    """Raises UsageError, on all ranks, unless all can go on and in the same way.

    Args:
      said: by each rank.
      device: of tensors that the group can exchange.
      own: why this rank says `REFUSED`, if it does.
    """
    if Verdict.REFUSED in said:
        raise refusal(comm, device, own)
    if len(set(said)) > 1:
        back = [rank for rank, word in enumerate(said) if word == Verdict.TAKE_BACK]
        others = [rank for rank, word in enumerate(said) if word != Verdict.TAKE_BACK]
        raise UsageError(
            f"ranks {back} took no step with the gradients of the last exchange and cleared them, and ranks "
            f"{others} did not: their models would differ. Nothing was exchanged now. Let all ranks skip the "
            "same batches"
        )


def other_steps(comm: Communicator, device: torch.device, steps: int) -> UsageError:
    """An error, which all raise, that ranks have taken other numbers of steps. All must call it.

    Args:
      device: of tensors that the group can exchange.
      steps: of this rank.
    """
    each = greatest(comm, device, [steps if rank == comm.rank else 0 for rank in range(comm.size)])
    return UsageError(
        f"ranks have taken other numbers of steps since attach, by rank {each}, so that their models differ. "
        "Nothing was exchanged now. Let all ranks skip the same steps; what one rank alone finds, such as a "
        "loss that is too large, must be told to all (torch.distributed.all_reduce)"
    )


def refusal(comm: Communicator, device: torch.device, own: UsageError | None) -> UsageError:
    """Why a rank cannot take part, for all ranks to raise. All must call it.

    Args:
      device: of tensors that the group can exchange.
      own: this rank's reason; None: it has none.
    """
    refuses = greatest(comm, device, [own is not None and rank == comm.rank for rank in range(comm.size)])
    first = refuses.index(1)
    text = str(own or "").encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES)
    sent = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
    comm.wait(comm.work(dist.broadcast(sent, group=comm.everybody, group_src=first, async_op=True)))
    reason = bytes(sent.tolist()).decode(errors="ignore").rstrip()
    return own or UsageError(f"rank {first} cannot take part, and nothing was exchanged: {reason}")


def greatest(comm: Communicator, device: torch.device, values: Sequence[int]) -> list[int]:
    """The greatest of all ranks' values, place by place. All must call it, with as many."""
    flat = torch.tensor(values, dtype=torch.int64, device=device)
    comm.count(flat)
    comm.wait(comm.work(dist.all_reduce(flat, dist.ReduceOp.MAX, comm.everybody, async_op=True)))
    found: list[int] = flat.tolist()
    return found
