"""What leaves first: a collective of an urgent tensor overtakes others that are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tweed.errors import UsageError
from tweed.torch.backend import engine_group

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


def set_urgency(tensor: torch.Tensor, urgency: int, group: dist.ProcessGroup | None = None) -> None:
    """Later collectives on `tensor`, or on a part of it, are so urgent at this rank.

    Where values of several calls wait for one link, those of more urgency leave before those of less, also
    before ones that have waited longer. What the link has begun to send is not interrupted. Results do not
    depend on it, and ranks need not agree: all call the same collectives in the same order as ever.

    Args:
      tensor: on the CPU, contiguous. It is named by its memory; name it again when it moves, and give it 0
        before it is freed, as other tensors may get its memory later.
      urgency: any number of 32 bits; what is not named has 0. Of several tensors of a call the most urgent
        counts.
      group: of the backend "tweed"; None: the default group.

    Raises:
      UsageError: the tensor is on another device or not contiguous, so that collectives copy it, or
        `urgency` does not fit; or the group is of another backend.

    Cost: none until a call is urgent. Then this process keeps little in the kernel's queues, some
      milliseconds of what each connection carries.

    Source: own design, docs/decisions/0071-urgency.md; the order of ByteScheduler (Peng et al., SOSP 2019,
      section 4), below the transport.

    Example:
      >>> set_urgency(first_layer.weight.grad, 1)  # doctest: +SKIP
      >>> dist.all_reduce(first_layer.weight.grad)  # doctest: +SKIP
    """
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        strides = "contiguous" if tensor.is_contiguous() else "not contiguous"
        raise UsageError(
            f"a tensor {list(tensor.shape)} on {tensor.device}, {strides}, cannot be urgent, since it is "
            "copied for a collective; name a contiguous tensor on the CPU"
        )
    if not -(2**31) <= urgency < 2**31:
        raise UsageError(f"urgency {urgency} does not fit into 32 bits; use small numbers, such as 1")
    engine_group(group).set_urgency(tensor.data_ptr(), tensor.nbytes, urgency)
