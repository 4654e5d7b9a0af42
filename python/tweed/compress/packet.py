"""What crosses the network, and the bytes that it is there: one class per form, one number per class.

Values   values that ranks can add up (an ordinary all-reduce carries them), or values as they are
Entries  single values and where they belong: see `entries`
Codes    few bits per value and a scale per block: see `codes`

Bytes begin with a header of 16: kind, coding, bits, scheme (a byte each), length, block, first (32 bits each,
little endian). Then come places and scales, without which nothing can be read, and last the values: a network
may lose some of these, and both ends know what that leaves out. No bytes at all are a packet too: one that is
empty.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tweed.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from tweed.compress.entries import Entries

#: `(begin, end)` of each.
ByteRanges = Sequence[tuple[int, int]]

HEADER_BYTES = 16
#: What values that stand for themselves are written as.
DTYPES = ("float32", "bfloat16", "float16")
_HEADER = struct.Struct("<BBBBIII")


class Packet(Protocol):
    """What one rank sends about `numel` values."""

    @property
    def numel(self) -> int:
        """Values that it is about."""

    def add_to(self, out: Tensor) -> None:
        """Adds what is sent to `out`, `[numel]` float32."""

    def cut(self, bounds: Sequence[int]) -> Sequence[Packet]:
        """What is sent about the values between each two of `bounds`, which ascend from 0 to `numel`."""

    def pack(self) -> Tensor:
        """As bytes: `[bytes]` uint8, on the same device."""

    @property
    def value_bytes(self) -> int:
        """How many bytes at the end of `pack` hold values: the others are critical."""

    def lost(self, ranges: ByteRanges) -> Entries:
        """What of it lies in these ranges of its value bytes, even if only in part."""


class Header(NamedTuple):
    """The fields in front of a packet's bytes; `first`: places of the first number within its block."""

    kind: int
    coding: int = 0
    bits: int = 0
    scheme: int = 0
    length: int = 0
    block: int = 0
    first: int = 0

    def pack(self, like: Tensor) -> Tensor:
        """`[16]` uint8 on the device of `like`."""
        import torch

        return torch.frombuffer(bytearray(_HEADER.pack(*self)), dtype=torch.uint8).to(like.device)


def _everywhere(values: Tensor, out: Tensor) -> None:
    out.add_(values)


@dataclass(frozen=True, slots=True)
class Values:
    """Values of any floating dtype that can be added to those of other ranks, number by number.

    Args:
      values: `[count]`.
      numel: of what they stand for.
      place: `place(values, out)` adds what values stand for to `out`; by default they stand for themselves.
    """

    KIND = 1

    values: Tensor
    numel: int
    place: Callable[[Tensor, Tensor], None] = _everywhere

    def add_to(self, out: Tensor) -> None:
        self.place(self.values, out)

    def cut(self, bounds: Sequence[int]) -> Sequence[Values]:
        """Only for values that stand for themselves."""
        spans = pairwise(bounds)
        return [replace(self, values=self.values[low:high], numel=high - low) for low, high in spans]

    def pack(self) -> Tensor:
        """The header's coding is the place of the dtype in `DTYPES`."""
        import torch

        header = Header(self.KIND, DTYPES.index(_dtype(self.values)), length=self.numel).pack(self.values)
        return torch.cat([header, self.values.contiguous().view(torch.uint8)])

    @property
    def value_bytes(self) -> int:
        return self.values.nbytes

    def lost(self, ranges: ByteRanges) -> Entries:
        """Only for values that stand for themselves."""
        from tweed.compress.entries import Entries

        places = places_in(ranges, 8 * self.values.element_size(), self.numel)
        return Entries(places, self.values[places].float(), self.numel)


def unpack(data: Tensor, numel: int) -> Packet | None:
    """The packet that `data` is; None if it is empty.

    Args:
      data: `[bytes]` uint8, from another rank.
      numel: how many values it is to be about.

    Raises: DataError if it is no packet, or one about something else.
    """
    from tweed.compress.codes import Codes
    from tweed.compress.entries import Entries

    if data.numel() == 0:
        return None
    if data.numel() < HEADER_BYTES:
        raise DataError(f"a packet of {data.numel()} bytes came in: no header fits into that")
    header = Header(*_HEADER.unpack(bytes(data[:HEADER_BYTES].cpu().numpy())))
    body = data[HEADER_BYTES:]
    if header.kind == Values.KIND:
        return _values(header, body, numel)
    if header.kind == Entries.KIND:
        return Entries.unpack(header, body, numel)
    if header.kind == Codes.KIND:
        return Codes.unpack(header, body, numel)
    raise DataError(f"a packet of kind {header.kind} came in: do all ranks run the same version of tweed?")


def _values(header: Header, body: Tensor, numel: int) -> Values:
    import torch

    check(header.length == numel and header.coding < len(DTYPES), header, body, numel)
    dtype: torch.dtype = getattr(torch, DTYPES[header.coding])
    check(body.numel() == dtype.itemsize * numel, header, body, numel)
    return Values(aligned(body).view(dtype), numel)


def _dtype(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def places_in(ranges: ByteRanges, bits: int, count: int) -> Tensor:
    """Which of `count` numbers of `bits` each, side by side, lie in `ranges` of bytes.

    Returns: `[k]` int32, ascending.
    """
    import torch

    touched = torch.zeros(count, dtype=torch.bool)
    for begin, end in ranges:
        touched[8 * begin // bits : -(-8 * end // bits)] = True
    return touched.nonzero().view(-1).int()


def aligned(body: Tensor) -> Tensor:
    """`body`, or a copy of it where its bytes do not begin where a float32 may."""
    return body if body.storage_offset() % 4 == 0 else body.clone()


def check(fits: bool, header: Header, body: Tensor, numel: int) -> None:
    """Raises DataError unless `fits`."""
    if not fits:
        raise DataError(f"a packet came in that does not fit {numel} values: {header}, {body.numel()} bytes")
