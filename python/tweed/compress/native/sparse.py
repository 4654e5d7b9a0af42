"""Choosing values of a buffer, and coding where they belong.

Values are `[numel]` float32, at most 2^31 - 1 of them; indices are int32. Magnitudes are compared as bits:
the order is that of `|x|`, denormal numbers count, both zeros are equal, infinity comes next and NaN last.
`error`, where it is given, is what was left of the last time: values are chosen from `x + error`, and what
is not chosen stays in `error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tweed import _core
from tweed.errors import DataError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**31 - 1  # values of a buffer: an index is an int32
BLOCK = 32  # gaps that share a width in `delta_encode`


def top_k(x: Tensor, count: int, error: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `count` values of largest magnitude; of equal ones those of lowest index.

    Args:
      x: `[numel]` float32; not changed.
      count: 0 to numel.
      error: `[numel]` float32, other memory than `x`.

    Returns: `[count]` indices, ascending, and `[count]` values.
    Raises: UsageError.
    Cost: one pass over `x`, and over `error`.
    """
    from tweed.compress.native import sparse_torch

    _check(x, error)
    _check_count(count, x)
    if not _native(x, error):
        return sparse_torch.top_k(x, count, error)
    return _selection(x, _core.top_k(x.data_ptr(), x.numel(), _address(error), count))


def threshold(x: Tensor, tau: float, error: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The values of magnitude `tau` and more: `largest_above` without a limit.

    Returns: `[count]` indices, ascending, and `[count]` values.
    """
    indices, values, _ = largest_above(x, tau, MOST, error)
    return indices, values


def largest_above(
    x: Tensor, tau: float, most: int, error: Tensor | None = None
) -> tuple[Tensor, Tensor, int]:
    """The `most` values of largest magnitude among those of magnitude `tau` and more, as `top_k` has them.

    Args:
      x: `[numel]` float32; not changed.
      tau: 0 or more; rounded to float32.
      most: 0 or more.
      error: `[numel]` float32, other memory than `x`.

    Returns: `[count]` indices, ascending, `[count]` values, and how many reach `tau`.
    Raises: UsageError.
    Cost: one pass over `x`, and over `error`; a selection among those that reach `tau`, if they are more.
    """
    from tweed.compress.native import sparse_torch

    _check(x, error)
    if math.isnan(tau) or tau < 0:
        raise UsageError(f"threshold: tau={tau!r} is no magnitude; give 0 or more")
    if not _native(x, error):
        return sparse_torch.largest_above(x, tau, most, error)
    found = _core.threshold(x.data_ptr(), x.numel(), _address(error), tau, most)
    return *_selection(x, min(found, most)), found


def kth_magnitude(x: Tensor, count: int) -> float:
    """The least magnitude among the `count` values of largest magnitude; 1 to numel. Cost: as `top_k`."""
    from tweed.compress.native import sparse_torch

    _check(x)
    _check_count(count, x, least=1)
    if not _native(x):
        return sparse_torch.kth_magnitude(x, count)
    return _core.kth_magnitude(x.data_ptr(), x.numel(), count)


def nonzero(x: Tensor) -> tuple[Tensor, Tensor]:
    """Indices, ascending, and values of all values that are not zero. Cost: one pass."""
    from tweed.compress.native import sparse_torch

    _check(x)
    if not _native(x):
        return sparse_torch.nonzero(x)
    return _selection(x, _core.nonzero(x.data_ptr(), x.numel()))


def scatter_add(out: Tensor, indices: Tensor, values: Tensor) -> None:
    """Adds `values[i]` to `out[indices[i]]`.

    Args:
      out: `[numel]` float32.
      indices: `[count]` int32, no two equal.
      values: `[count]` float32.

    Raises: UsageError, also for an index outside of `out`; then `out` is as it was.
    Cost: the touched lines of `out`.
    """
    from tweed.compress.native import sparse_torch

    _check(out)
    _check(values)
    _check_indices(indices)
    if len(indices) != len(values):
        raise UsageError(f"{len(indices)} indices came with {len(values)} values; give one of each per value")
    if _native(out, indices, values):
        _core.scatter_add(out.data_ptr(), out.numel(), indices.data_ptr(), values.data_ptr(), len(indices))
    else:
        _check_range(indices, out.numel())
        sparse_torch.scatter_add(out, indices, values)


def gather(x: Tensor, indices: Tensor) -> Tensor:
    """`x[indices]`. Raises UsageError for an index outside of `x`. Cost: the touched lines of `x`."""
    from tweed.compress.native import sparse_torch

    _check(x)
    _check_indices(indices)
    if not _native(x, indices):
        _check_range(indices, x.numel())
        return sparse_torch.gather(x, indices)
    out = x.new_empty(len(indices))
    _core.gather(x.data_ptr(), x.numel(), indices.data_ptr(), len(indices), out.data_ptr())
    return out


def delta_encode(indices: Tensor, numel: int) -> Tensor:
    """Indices as the gaps between them, each block of 32 with as many bits per gap as its largest needs.

    A gap is the number of indices left out. First come the widths, a byte per block; then the blocks' bits,
    low ones first, each block at a whole byte.

    Args:
      indices: `[count]` int32, ascending, no two equal.
      numel: they are below it.

    Returns: `[bytes]` uint8; about `log2(numel / count) + 2.7` bits per index where they are spread evenly.
    Raises: UsageError for indices that do not ascend from 0 to `numel - 1`.
    Cost: one pass.
    Source: binary packing of gaps in blocks, as in Lemire and Boytsov, "Decoding billions of integers per
    second through vectorization", 2015.
    """
    import torch

    from tweed.compress.native import indices_torch

    _check_indices(indices)
    if not _native(indices):
        return indices_torch.delta_encode(_ascending(indices, numel))
    data = torch.empty(_core.gaps_room(len(indices)), dtype=torch.uint8)
    length = _core.encode_gaps(indices.data_ptr(), len(indices), numel, data.data_ptr())
    if length is None:
        raise _cannot_be_coded(numel)
    return data[:length]


def delta_decode(data: Tensor, count: int, numel: int) -> Tensor:
    """The `count` indices below `numel` that `data` codes: the inverse. Raises DataError if it codes none."""
    from tweed.compress.native import indices_torch

    return _decoded(data, count, numel, (_core.decode_gaps, indices_torch.delta_decode))


def bitmap_encode(indices: Tensor, numel: int) -> Tensor:
    """A bit per value, 1 for those that are sent, low bits first.

    Args: as `delta_encode`.
    Returns: `[(numel + 7) // 8]` uint8.
    Raises: UsageError for indices that do not ascend from 0 to `numel - 1`.
    Cost: one pass over indices and bits.
    """
    import torch

    from tweed.compress.native import indices_torch

    _check_indices(indices)
    if not _native(indices):
        return indices_torch.bitmap_encode(_ascending(indices, numel), numel)
    data = torch.empty((numel + 7) // 8, dtype=torch.uint8)
    if not _core.encode_bitmap(indices.data_ptr(), len(indices), numel, data.data_ptr()):
        raise _cannot_be_coded(numel)
    return data


def bitmap_decode(data: Tensor, count: int, numel: int) -> Tensor:
    """The `count` indices below `numel` that `data` codes: the inverse. Raises DataError if it codes none."""
    from tweed.compress.native import indices_torch

    return _decoded(data, count, numel, (_core.decode_bitmap, indices_torch.bitmap_decode))


def all_finite(x: Tensor) -> bool:
    """Whether no number is infinite or NaN. Cost: one pass, or less if one is."""
    from tweed.compress.native import sparse_torch

    _check(x)
    if not _native(x):
        return sparse_torch.all_finite(x)
    return _core.all_finite(x.data_ptr(), x.numel())


def _native(*tensors: Tensor | None) -> bool:
    """Whether the extension module can work on their memory."""
    return all(x is None or (x.device.type == "cpu" and x.is_contiguous() and _aligned(x)) for x in tensors)


def _aligned(x: Tensor) -> bool:
    return x.data_ptr() % x.element_size() == 0


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _selection(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """What the last call selected."""
    import torch

    indices, values = torch.empty(count, dtype=torch.int32), x.new_empty(count)
    _core.selection(indices.data_ptr(), values.data_ptr(), count)
    return indices, values


def _check(*tensors: Tensor | None) -> None:
    import torch

    given = [x for x in tensors if x is not None]
    for x in given:
        if x.dtype != torch.float32 or x.dim() != 1 or x.numel() > MOST:
            raise UsageError(
                f"expected one row of at most {MOST} float32 values, not {x.dtype} of shape {list(x.shape)}"
            )
    if len({x.numel() for x in given}) > 1:
        raise UsageError(f"the error has another length than the values: {[x.numel() for x in given]}")


def _check_count(count: int, x: Tensor, least: int = 0) -> None:
    if not least <= count <= x.numel():
        raise UsageError(f"count is {count}, but must be from {least} to {x.numel()}, the number of values")


def _check_indices(indices: Tensor) -> None:
    import torch

    if indices.dtype != torch.int32 or indices.dim() != 1:
        raise UsageError(
            f"expected one row of int32 indices, not {indices.dtype} of shape {list(indices.shape)}"
        )


def _check_range(indices: Tensor, numel: int) -> None:
    if len(indices) and not (0 <= int(indices.min()) and int(indices.max()) < numel):
        raise UsageError(f"an index is outside of 0 to {numel} - 1")


def _ascending(indices: Tensor, numel: int) -> Tensor:
    inside = not len(indices) or (int(indices[0]) >= 0 and int(indices[-1]) < numel)
    if not inside or bool((indices[1:] <= indices[:-1]).any()):
        raise _cannot_be_coded(numel)
    return indices


def _cannot_be_coded(numel: int) -> UsageError:
    return UsageError(f"indices that are coded have to ascend from 0 to {numel} - 1, no two equal")


#: The native way, which writes indices and returns whether there are any; and torch's, which gives them.
_Decoders = tuple[Callable[[int, int, int, int, int], bool], Callable[["Tensor", int, int], "Tensor | None"]]


def _decoded(data: Tensor, count: int, numel: int, ways: _Decoders) -> Tensor:
    import torch

    if data.dtype != torch.uint8 or data.dim() != 1:
        raise UsageError(f"expected one row of bytes, not {data.dtype} of shape {list(data.shape)}")
    native, otherwise = ways
    indices: Tensor | None = None
    if not _native(data):
        indices = otherwise(data, count, numel)
    elif 0 <= count <= numel:
        out = torch.empty(count, dtype=torch.int32)
        coded = native(data.data_ptr(), data.numel(), count, numel, out.data_ptr())
        indices = out if coded else None
    if indices is None:
        raise DataError(f"{len(data)} bytes came in that do not code {count} indices below {numel}")
    return indices
