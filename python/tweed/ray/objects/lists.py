"""Lists of arrays as one object: all elements in one buffer, and the shapes in a small object beside it.

The small object's id is made from the shapes, so lists of equal shapes share one: it is put once by each
process that puts such a list, lies in the directory as all small objects do, and is never deleted. A sum of
lists has the shapes of its sources without a word about them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tweed.errors import UsageError
from tweed.ray.objects.refs import Ref

Shapes = tuple[tuple[int, ...], ...]
_LAYOUT_BITS = 55  # of what tells lists apart on the wire


def is_list(value: object) -> bool:
    """A list or tuple of arrays or tensors. One of numbers is an array, as for NumPy."""
    return (
        isinstance(value, list | tuple)
        and all(hasattr(item, "__array__") for item in value)
        and not all(isinstance(item, np.generic) for item in value)
    )


def array_of(value: Any) -> npt.NDArray[Any]:
    """What NumPy makes of a value.

    Raises: UsageError if it is a tensor of numbers that NumPy does not have.
    """
    # By name: most processes that share objects have no torch.
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        raise UsageError(
            "objects have no elements of dtype bfloat16, as NumPy has none: put tensor.float(), or, if "
            "nobody is to sum it, tensor.view(torch.uint16), and whoever gets that takes it back by "
            "torch.tensor(array).view(torch.bfloat16)"
        )
    return np.asarray(value)


def arrays_of(value: Sequence[Any]) -> list[npt.NDArray[Any]]:
    """The arrays of a list.

    Raises: UsageError if they have several dtypes: a sum is of one.
    """
    arrays = [array_of(item) for item in value]
    dtypes = sorted({array.dtype.name for array in arrays})
    if len(dtypes) > 1:
        raise UsageError(
            f"the arrays of a list have one dtype, not {' and '.join(dtypes)}: put a list for each"
        )
    return arrays


def layout_of(shapes: Shapes) -> int:
    """What tells lists of these shapes from others."""
    return int.from_bytes(_digest(encode(shapes))) >> (128 - _LAYOUT_BITS)


def shapes_ref(layout: int) -> Ref:
    """The object in which the shapes are."""
    return Ref(int.from_bytes(_digest(b"%d" % layout)))


def encode(shapes: Shapes) -> bytes:
    """As bytes of that object."""
    return json.dumps(shapes).encode()


def decode(data: bytes) -> Shapes:
    """The inverse of `encode`."""
    return tuple(tuple(int(dim) for dim in shape) for shape in json.loads(data))


def split(flat: npt.NDArray[Any], shapes: Shapes) -> list[npt.NDArray[Any]]:
    """Views of the elements in these shapes."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(flat, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, person=b"tweed lists").digest()
