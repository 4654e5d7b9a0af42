"""A few bits per value, and a scale per block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tweed.compress.native.form import LARGEST, SCHEMES, Form
from tweed.compress.packet import HEADER_BYTES, ByteRanges, Header, aligned, check, places_in
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from tweed.compress.entries import Entries


@dataclass(frozen=True, slots=True)
class Codes:
    """What is sent about `numel` values in `form`.

    On the wire the header's scheme is 1 for "sign", 2 for "uniform", 3 for "levels", its coding the levels.

    Args:
      scales: `[form.scale_count(numel, first)]` float32.
      codes: `[form.code_bytes(numel)]` uint8.
      form: how to read them.
      numel: values that they stand for.
      first: place of the first number within its block.
    """

    KIND = 3

    scales: Tensor
    codes: Tensor
    form: Form
    numel: int
    first: int = 0

    def add_to(self, out: Tensor) -> None:
        from tweed.compress.native import quant

        quant.decode_add(out, self.scales, self.codes, self.form, self.first)

    def cut(self, bounds: Sequence[int]) -> Sequence[Codes]:
        """Bounds are multiples of 8, or the end. A block that is cut has its scale in both."""
        return [self._piece(low, high) for low, high in pairwise(bounds)]

    def _piece(self, low: int, high: int) -> Codes:
        assert low % 8 == 0 or low == self.numel  # `ranges.GRAIN`
        bits, block = self.form.bits, self.form.block
        begin, first = divmod(self.first + low, block)
        scales = self.scales[begin : begin + self.form.scale_count(high - low, first)]
        codes = self.codes[low * bits // 8 :][: self.form.code_bytes(high - low)]
        return Codes(scales, codes, self.form, high - low, first)

    def cut_anywhere(self, bounds: Sequence[int]) -> Sequence[Codes]:
        """As `cut`, at any bounds. Cost: codes are unpacked and packed anew."""
        from tweed.compress.native import quant_torch

        whole = quant_torch.unpack(self.codes, self.form.bits, self.numel)
        pieces = []
        for low, high in pairwise(bounds):
            begin, first = divmod(self.first + low, self.form.block)
            scales = self.scales[begin : begin + self.form.scale_count(high - low, first)]
            codes = quant_torch.pack(whole[low:high], self.form.bits)
            pieces.append(Codes(scales, codes, self.form, high - low, first))
        return pieces

    def pack(self) -> Tensor:
        """Writes the header, the scales, then the codes."""
        import torch

        form = self.form
        scheme = SCHEMES.index(form.scheme) + 1
        header = Header(self.KIND, form.levels, form.bits, scheme, self.numel, form.block, self.first)
        return torch.cat([header.pack(self.codes), self.scales.contiguous().view(torch.uint8), self.codes])

    @property
    def value_bytes(self) -> int:
        return self.codes.numel()

    def lost(self, ranges: ByteRanges) -> Entries:
        """Cost: all are decoded."""
        from tweed.compress.entries import Entries

        values = self.scales.new_zeros(self.numel)
        self.add_to(values)
        places = places_in(ranges, self.form.bits, self.numel)
        return Entries(places, values[places], self.numel)

    @classmethod
    def unpack(cls, header: Header, body: Tensor, numel: int) -> Codes:
        """The inverse of `pack`. Raises DataError unless it is about `numel` values."""
        import torch

        form = form_of(header)
        check(form is not None and header.length == numel, header, body, numel)
        assert form is not None
        scale_bytes = 4 * form.scale_count(numel, header.first)
        check(body.numel() == scale_bytes + form.code_bytes(numel), header, body, numel)
        scales = aligned(body[:scale_bytes]).view(torch.float32)
        check(bool(((scales >= 0) & (scales <= LARGEST)).all()), header, body, numel)
        return cls(scales, body[scale_bytes:], form, numel, header.first)


def form_of(header: Header) -> Form | None:
    """The form that a header from another rank names, if there is such a form and a block has that place."""
    if not 1 <= header.scheme <= len(SCHEMES) or not 0 <= header.first < header.block:
        return None
    try:
        return Form(SCHEMES[header.scheme - 1], header.bits, header.block, header.coding)
    except UsageError:
        return None


def coded(value: Tensor, form: Form, key: int | None, error: Tensor | None) -> Codes:
    """`value`, or `value + error`, in `form`; see `native.quant.encode`."""
    from tweed.compress.native import quant

    scales, codes = quant.encode(value, form, key, error)
    return Codes(scales, codes, form, value.numel())


def form_bytes(form: Form, numel: int) -> float:
    """Bytes of a packet of `numel` values."""
    return float(HEADER_BYTES + 4 * form.scale_count(numel) + form.code_bytes(numel))


def shared_by(block: int | None, numel: int) -> int:
    """How many values share a scale: `block`, or all."""
    return max(1, numel if block is None else block)
