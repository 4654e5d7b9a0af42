"""Single values and where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tweed.compress.codes import Codes, form_of
from tweed.compress.native.form import SCHEMES
from tweed.compress.packet import ByteRanges, Header, aligned, check, places_in
from tweed.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

#: How indices are written: in 32 bits each; as the gaps between them; as a bit per value that is or is not
#: sent; or as whichever of these is shortest.
Coding = Literal["raw", "delta", "bitmap", "shortest"]
_CODINGS: tuple[Coding, ...] = ("raw", "delta", "bitmap")


@dataclass(frozen=True, slots=True)
class Entries:
    """Some of `numel` values; the others are zero.

    On the wire indices come first, then values, as float32 or as `Codes` write them. The header's scheme is
    that of the codes or 0, plus 16 times 0 for raw, 1 for delta, 2 for bitmap.

    Args:
      indices: `[count]` int32, ascending.
      values: `[count]` float32.
      numel: of all.
      coding: how indices are written.
      codes: if given, what `values` are is what they stand for, and they are written.
    """

    KIND = 2

    indices: Tensor
    values: Tensor
    numel: int
    coding: Coding = "raw"
    codes: Codes | None = None

    def add_to(self, out: Tensor) -> None:
        """Cost: the touched lines of `out`."""
        from tweed.compress.native import sparse

        sparse.scatter_add(out, self.indices, self.values)

    def cut(self, bounds: Sequence[int]) -> Sequence[Entries]:
        """Cost: two binary searches per piece; codes are unpacked and packed anew."""
        import torch

        marks = torch.tensor(list(bounds), dtype=torch.int32, device=self.indices.device)
        at = torch.searchsorted(self.indices, marks).tolist()
        codes = [None] * (len(bounds) - 1) if self.codes is None else self.codes.cut_anywhere(at)
        return [
            Entries(self.indices[begin:end] - low, self.values[begin:end], high - low, self.coding, part)
            for (low, high), (begin, end), part in zip(pairwise(bounds), pairwise(at), codes, strict=True)
        ]

    def pack(self) -> Tensor:
        import torch

        coding, indices = _written(self.indices, self.numel, self.coding)
        header = Header(self.KIND, length=len(self.indices))
        if self.codes is None:
            sent = self.values.contiguous().view(torch.uint8)
        else:
            form = self.codes.form
            scheme = SCHEMES.index(form.scheme) + 1
            header = header._replace(coding=form.levels, bits=form.bits, scheme=scheme, block=form.block)
            header = header._replace(first=self.codes.first)
            sent = torch.cat([self.codes.scales.contiguous().view(torch.uint8), self.codes.codes])
        header = header._replace(scheme=header.scheme + 16 * _CODINGS.index(coding))
        return torch.cat([header.pack(self.values), indices, sent])

    @property
    def value_bytes(self) -> int:
        return 4 * len(self.values) if self.codes is None else self.codes.value_bytes

    def lost(self, ranges: ByteRanges) -> Entries:
        bits = 32 if self.codes is None else self.codes.form.bits
        at = places_in(ranges, bits, len(self.indices))
        return Entries(self.indices[at], self.values[at], self.numel)

    @classmethod
    def unpack(cls, header: Header, body: Tensor, numel: int) -> Entries:
        """The inverse of `pack`. Raises DataError unless it is about `numel` values."""
        import torch

        coding, scheme = divmod(header.scheme, 16)
        count = header.length
        check(coding < len(_CODINGS) and count <= numel, header, body, numel)
        codes, values_bytes = None, 4 * count
        if scheme:
            inner = header._replace(scheme=scheme)
            form = form_of(inner)
            check(form is not None, header, body, numel)
            assert form is not None
            values_bytes = 4 * form.scale_count(count, header.first) + form.code_bytes(count)
            check(values_bytes <= body.numel(), header, body, numel)
            codes = Codes.unpack(inner, body[body.numel() - values_bytes :], count)
            values = torch.zeros(count, device=body.device)
            codes.add_to(values)
        else:
            check(values_bytes <= body.numel(), header, body, numel)
            values = aligned(body[body.numel() - values_bytes :]).view(torch.float32)
        indices = _read(body[: body.numel() - values_bytes], count, numel, _CODINGS[coding])
        return cls(indices, values, numel, _CODINGS[coding], codes)


def parted(value: Tensor, error: Tensor | None, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor | None]]:
    """Views of tensors side by side, of `value` and of `error`."""
    import torch

    values = torch.split(value, list(sizes))
    if error is None:
        return [(mine, None) for mine in values]
    return list(zip(values, torch.split(error, list(sizes)), strict=True))


def joined(parts: Sequence[tuple[Tensor, Tensor]], sizes: Sequence[int]) -> Entries:
    """Entries of tensors side by side, from indices and values of each.

    Args:
      sizes: values of each tensor.
    """
    import torch

    indices, at = [], 0
    for (mine, _), size in zip(parts, sizes, strict=True):
        indices.append(mine + at)
        at += size
    return Entries(torch.cat(indices), torch.cat([values for _, values in parts]), at)


def _written(indices: Tensor, numel: int, coding: Coding) -> tuple[Coding, Tensor]:
    import torch

    from tweed.compress.native import sparse

    if coding == "raw":
        return coding, indices.contiguous().view(torch.uint8)
    if coding == "bitmap":
        return coding, sparse.bitmap_encode(indices, numel)
    gaps = sparse.delta_encode(indices, numel)
    if coding == "delta" or len(gaps) <= min(4 * len(indices), (numel + 7) // 8):
        return "delta", gaps
    return _written(indices, numel, "raw" if 4 * len(indices) <= (numel + 7) // 8 else "bitmap")


def _read(data: Tensor, count: int, numel: int, coding: Coding) -> Tensor:
    import torch

    from tweed.compress.native import sparse

    if coding == "delta":
        return sparse.delta_decode(data, count, numel)
    if coding == "bitmap":
        return sparse.bitmap_decode(data, count, numel)
    if len(data) != 4 * count:
        raise DataError(f"{len(data)} bytes came in that are not {count} indices")
    indices = aligned(data).view(torch.int32)
    ascends = bool((indices[1:] > indices[:-1]).all())
    if count and not (ascends and 0 <= int(indices[0]) and int(indices[-1]) < numel):
        raise DataError(f"indices came in that do not ascend from 0 to {numel - 1}")
    return indices
