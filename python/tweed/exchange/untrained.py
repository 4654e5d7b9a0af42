"""What a model has beside the parameters that are trained: buffers, and parameters without gradients.

A loop may move them by hand, as the teachers of BYOL and DINO, and layers do, as batch norm. So ranks compare
their bytes whenever models are exchanged, and what differs becomes one again:

    floats, complex values     the mean, summed in the next wider type: one of equal values is that value
    all others                 the first rank's, since a mean of whole numbers need not be one

What is equal everywhere, as masks are, is neither sent nor touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.communicator import Communicator
from tweed.exchange.equal import compare
from tweed.exchange.verdicts import Verdict, check_verdicts

log = logging.getLogger("tweed")

_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


class Untrained:
    """See the module.

    Args:
      now: gives the tensors by name, always of the same names, shapes and dtypes.
      comm: the group.
      look: says why the parameters that are trained can no longer be exchanged; None: they can.
    """

    def __init__(
        self,
        now: Callable[[], Mapping[str, Tensor]],
        comm: Communicator,
        look: Callable[[], UsageError | None],
    ) -> None:
        self._now, self._comm, self._look = now, comm, look
        self._forms = _forms(now())

    def look(self) -> UsageError | None:
        """Why the model can no longer be exchanged; None: it can."""
        forms = _forms(self._now())
        if forms == self._forms:
            return self._look()
        name = next(name for name, _ in forms.items() ^ self._forms.items())
        return UsageError(
            f"{name!r} of the model, which is not trained, has come, left or changed its shape or dtype "
            "since attach: detach() and attach again, on all ranks"
        )

    def compare(self, tensors: Sequence[Tensor | None], device: torch.device) -> list[bool]:
        """Whether each of these is equal at all ranks, which must have as many; see `equal.compare`.

        Raises: UsageError, on all ranks, if the model of one can no longer be exchanged.
        """
        own = self.look()
        equal, said = compare(
            tensors if own is None else [None] * len(tensors),
            self._comm,
            device,
            Verdict.GO_ON if own is None else Verdict.REFUSED,
        )
        check_verdicts(said, self._comm, device, own)
        return equal

    def tensors(self) -> list[Tensor]:
        """As they are now; always as many."""
        now = self._now()
        return [now[name].detach() if name in now else torch.empty(0) for name in self._forms]

    @torch.no_grad()
    def average(self, equal: Sequence[bool] | None = None, broken: Collection[int] = ()) -> None:
        """Makes them equal on all ranks. All must call it. Waits for it.

        Args:
          equal: which of them are so; None: that is to be compared.
          broken: ranks whose values do not count.
        """
        if not self._forms:
            return
        tensors = self.tensors()
        if equal is None:
            equal = self.compare(tensors, tensors[0].device)
        differ = [tensor for tensor, same in zip(tensors, equal, strict=True) if not same]
        for tensor in differ:
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.copy_(self._mean(tensor, broken))
        exact = [tensor for tensor in differ if not (tensor.is_floating_point() or tensor.is_complex())]
        self._comm.receive(self._comm.broadcast(exact))

    def take_first(self, trained: Mapping[str, Tensor], root: int | None = None) -> None:
        """The whole model, those that are `trained` too, becomes that of the rank `root`, or of the first
        that contributes. All must call it."""
        all_of_it = {**trained, **dict(zip(self._forms, self.tensors(), strict=True))}
        tensors = [tensor.detach() for tensor in all_of_it.values()]
        equal = self.compare(tensors, tensors[0].device)
        differ = [tensor for tensor, same in zip(tensors, equal, strict=True) if not same]
        self._comm.receive(self._comm.broadcast(differ, root))
        names = [name for name, same in zip(all_of_it, equal, strict=True) if not same and name in trained]
        if names:
            log.warning(
                "at the end ranks had other values of %s, though gradients are the same on all: has one rank "
                "changed its parameters by hand, or taken other steps? All have those of rank %s now",
                ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
                self._comm.owners.first if root is None else root,
            )

    def _mean(self, tensor: Tensor, broken: Collection[int]) -> Tensor:
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        wide = real.to(_WIDER.get(real.dtype, real.dtype), copy=True)
        owners = self._comm.owners
        if self._comm.rank in broken or not owners.contributes:
            wide.zero_()
        total = self._comm.sum(wide.reshape(-1)).div_(owners.contributors - len(broken))
        mean = total.view_as(real).to(real.dtype)
        return torch.view_as_complex(mean) if tensor.is_complex() else mean


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
