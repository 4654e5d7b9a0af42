"""What collectives must give, computed without any: every rank knows every rank's contribution.

And functions of rank and size that all ranks run one after the other: one start of ranks for all of them.
"""

from __future__ import annotations

import functools
import operator
import traceback
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
REAL = [*FLOATS, *SIGNED, *UNSIGNED, torch.bool]
MOVED = [*REAL, *COMPLEX, torch.float8_e4m3fn]


def value(rank: int, shape: tuple[int, ...], dtype: torch.dtype, salt: int = 0) -> Tensor:
    """Rank `rank`'s contribution, `[*shape]`: small whole numbers, so that sums and products are exact."""
    numel = torch.Size(shape).numel()
    numbers = (torch.arange(numel) * 7 + rank * 5 + salt * 3) % 3
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers + rank).double()).to(dtype).reshape(shape)
    return (numbers % 2 if dtype == torch.bool else numbers + 1).to(dtype).reshape(shape)


def reduced(op: str, parts: list[Tensor]) -> Tensor:
    """`parts` put together elementwise, in a wide type."""
    wide = [widen(part) for part in parts]
    if op == "avg":
        return functools.reduce(operator.add, wide) / len(wide)
    fold = {
        "sum": operator.add, "product": operator.mul, "min": torch.minimum, "max": torch.maximum,
        "band": operator.and_, "bor": operator.or_, "bxor": operator.xor,
    }[op]  # fmt: skip
    return functools.reduce(fold, wide)


def widen(tensor: Tensor) -> Tensor:
    """As a type that holds all sums and products of the tests exactly; bool stays, where + is "or"."""
    if tensor.dtype == torch.bool:
        return tensor
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def same(actual: Tensor, expected: Tensor) -> None:
    """Raises AssertionError with both, unless all elements are equal."""
    wanted = expected.to(actual.dtype)
    if not torch.equal(as_bytes(actual), as_bytes(wanted)):
        raise AssertionError(f"expected {wanted}, got {actual}")


def as_bytes(tensor: Tensor) -> Tensor:
    """The bits, so that types without == can be compared."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


Case = Callable[[int, int], None]


def failures_of(cases: Mapping[str, Case], rank: int, size: int) -> dict[str, str]:
    """Runs all of them on this rank. Returns the traceback of each that failed."""
    failures = {}
    for name, fn in cases.items():
        try:
            fn(rank, size)
        except Exception:  # noqa: BLE001 a failure of any kind is the result
            failures[name] = traceback.format_exc()
    return failures


def check(name: str, failures: list[dict[str, str]]) -> None:
    """Asserts that this one failed on no rank."""
    failed = [f"rank {rank}:\n{found[name]}" for rank, found in enumerate(failures) if name in found]
    assert not failed, "\n".join(failed)
