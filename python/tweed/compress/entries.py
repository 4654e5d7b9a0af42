"""Single numbers and where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.packet import Header, check

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Entries:
    """Some of `numel` numbers; the others are zero.

    Args:
      indices: `[count]` int32, ascending.
      values: `[count]` float32.
      numel: of all.
    """

    KIND = 2

    indices: Tensor
    values: Tensor
    numel: int

    def add_to(self, out: Tensor) -> None:
        """See `Packet`. Cost: the touched lines of `out`."""
        out.index_add_(0, self.indices, self.values)

    def cut(self, bounds: Sequence[int]) -> Sequence[Entries]:
        """See `Packet`. Cost: two binary searches per piece."""
        import torch

        marks = torch.tensor(list(bounds), dtype=torch.int32, device=self.indices.device)
        at = torch.searchsorted(self.indices, marks).tolist()
        return [
            Entries(
                self.indices[at[i] : at[i + 1]] - bounds[i], self.values[at[i] : at[i + 1]], high - bounds[i]
            )
            for i, high in enumerate(bounds[1:])
        ]

    def pack(self) -> Tensor:
        """See `Packet`: indices, then values, 8 bytes per entry."""
        import torch

        header = Header(self.KIND, length=len(self.indices)).pack(self.values)
        return torch.cat(
            [header, *(part.contiguous().view(torch.uint8) for part in (self.indices, self.values))]
        )

    @classmethod
    def unpack(cls, header: Header, body: Tensor, numel: int) -> Entries:
        """The inverse of `pack`. Raises DataError unless it is about `numel` numbers."""
        import torch

        count = header.length
        check(body.numel() == 8 * count, header, body, numel)
        both = (body if body.storage_offset() % 4 == 0 else body.clone()).view(torch.int32)
        indices, values = both[:count], both[count:].view(torch.float32)
        check(count == 0 or (0 <= int(indices.min()) and int(indices.max()) < numel), header, body, numel)
        return cls(indices, values, numel)
