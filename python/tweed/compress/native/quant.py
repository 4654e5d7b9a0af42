"""Values as codes of a few bits and a scale per block, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tweed.compress.native.form import Form
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Form", "decode_add", "encode"]


def encode(
    x: Tensor, form: Form, key: int | None = None, error: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Writes `x`, or `x + error`, in a few bits per value.

    Args:
      x: `[numel]` float32, contiguous, without NaN. Not modified.
      form: see `Form`.
      key: 64 bits, where draws come from (`chance`); rounding at random is unbiased. None: rounds to
        nearest. Signs draw nothing.
      error: as `x`; `x + error` is written, and `error` becomes what the codes leave out of it.

    Returns:
      scales, `[form.scale_count(numel)]` float32, and codes, `[form.code_bytes(numel)]` uint8.

    Raises: UsageError for tensors of another kind.
    Cost: reads `x` (and `error`) from memory once, writes the codes (and `error`), if a block stays in cache.
    Source: Karimireddy et al. 2019 (sign with scale); Alistarh et al., "QSGD", 2017.
    """
    _check("x", x)
    if error is not None:
        _check("error", error)
        if error.numel() != x.numel() or error.data_ptr() == x.data_ptr() != 0:
            raise UsageError(f"error has {error.numel()} values; give {x.numel()}, in other memory than x")
    if x.device.type != "cpu":
        from tweed.compress.native import quant_torch

        return quant_torch.encode(x, form, key, error)
    return _encode(x, form, key, error)


def _encode(x: Tensor, form: Form, key: int | None, error: Tensor | None) -> tuple[Tensor, Tensor]:
    import torch

    from tweed import _core

    numel = x.numel()
    scales = torch.empty(form.scale_count(numel), dtype=torch.float32)
    codes = torch.empty(form.code_bytes(numel), dtype=torch.uint8)
    _core.quant_encode(
        x.data_ptr(),
        numel,
        None if error is None else error.data_ptr(),
        form.fields,
        None if key is None else key & (2**64 - 1),
        (scales.data_ptr(), codes.data_ptr()),
    )
    return scales, codes


def decode_add(out: Tensor, scales: Tensor, codes: Tensor, form: Form, first: int = 0) -> None:
    """Adds the values that codes stand for to `out`.

    Args:
      out: `[numel]` float32, contiguous.
      scales, codes: from `encode`, or a piece of them, from the block and the byte of the first number on.
      form: as it was then.
      first: place of the first number within its block.

    Raises: UsageError unless there are as many scales and codes as `out` needs.
    Cost: reads the codes, reads and writes `out`, once.
    """
    _check("out", out)
    _check("scales", scales)
    need = (form.scale_count(out.numel(), first), form.code_bytes(out.numel()))
    fit = (scales.numel(), codes.numel()) == need and codes.is_contiguous() and codes.element_size() == 1
    if not fit or not 0 <= first < form.block:
        raise UsageError(
            f"{out.numel()} values from place {first} of {form} need {need[0]} scales and {need[1]} bytes; "
            f"there are {scales.numel()} and {codes.numel()}"
        )
    if out.device.type != "cpu":
        from tweed.compress.native import quant_torch

        quant_torch.decode_add(out, scales, codes, form, first)
        return
    from tweed import _core

    written = (scales.data_ptr(), codes.data_ptr())
    _core.quant_decode_add(out.data_ptr(), out.numel(), written, form.fields, first)


def _check(name: str, tensor: Tensor) -> None:
    if str(tensor.dtype) != "torch.float32" or not tensor.is_contiguous() or tensor.dim() != 1:
        shape = list(tensor.shape)
        raise UsageError(f"{name} is {tensor.dtype} {shape}; give float32 values in one contiguous row")
