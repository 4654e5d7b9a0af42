"""Bytes of tensors, packed without loss: of floating-point numbers only signs and exponents can be.

Bytes are sorted by their place in four, and of each place packed by zlib where a sample of it becomes
shorter. Trained weights, gradients and moments in float32 lose some seventh, zeros nearly all.

    one byte        which of the four places are packed, a bit each
    four of 4       bytes of each place, as they follow
    ...             the places, and the one to three bytes behind the last whole four
"""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import numpy as np

from tweed.errors import DataError

_PLACES = 4
_HEAD = struct.Struct(f"<B{_PLACES}I")
_SAMPLE_BYTES, _SHORTER = 1024, 0.9


def pack(data: bytes | bytearray | memoryview) -> bytes | None:
    """These bytes, packed; None: they would not become shorter.

    Cost: half a millisecond for 64 KiB.

    Example:
      >>> len(pack(bytes(1 << 16)))
      397
    """
    whole = len(data) // _PLACES * _PLACES
    places = np.frombuffer(data, np.uint8, whole).reshape(-1, _PLACES).T
    parts, is_packed = [], 0
    for number, place in enumerate(places):
        sample, one = place[:_SAMPLE_BYTES].tobytes(), place.tobytes()
        if len(zlib.compress(sample, 1)) < _SHORTER * len(sample):
            one = zlib.compress(one, 1)
            is_packed |= 1 << number
        parts.append(one)
    found = b"".join([_HEAD.pack(is_packed, *map(len, parts)), *parts, bytes(data[whole:])])
    return found if len(found) < len(data) else None


def unpack(data: bytes | bytearray | memoryview, most: int) -> bytes:
    """The inverse of `pack`, for what has at most so many bytes. Raises DataError for what is none."""
    if len(data) < _HEAD.size:
        raise DataError("what was packed is too short")
    is_packed, *sizes = _HEAD.unpack_from(data)
    ends = np.cumsum([_HEAD.size, *sizes]).tolist()
    rest = bytes(data[ends[-1] :])
    if is_packed >> _PLACES or ends[-1] > len(data) or len(rest) >= _PLACES:
        raise DataError("what was packed has other lengths than it says")
    places = []
    for number, (low, high) in enumerate(pairwise(ends)):
        one = bytes(data[low:high])
        places.append(_inflated(one, most // _PLACES) if is_packed >> number & 1 else one)
    if len({len(one) for one in places}) > 1 or _PLACES * len(places[0]) + len(rest) > most:
        raise DataError(f"what was packed has places of several lengths, or more than {most} bytes")
    return np.stack([np.frombuffer(one, np.uint8) for one in places], 1).tobytes() + rest


def _inflated(data: bytes, most: int) -> bytes:
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, most + 1)
    except zlib.error as error:
        raise DataError(f"what was packed cannot be read: {error}") from None
    if not inflating.eof or inflating.unused_data:
        raise DataError("what was packed ends too early, too late, or has too many bytes")
    return found
