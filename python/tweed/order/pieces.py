"""Tensors in pieces, so that an urgent one need not wait for the whole of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tweed.errors import UsageError
from tweed.order.base import Transfer


class Piece(NamedTuple):
    """The key of a piece: its layer, and its place in the layer's tensor."""

    layer: int
    place: int


def pieces(layer: int, numbytes: int, *, most_bytes: int = 200_000, rate: float = 1.0) -> Iterator[Transfer]:
    """The tensor of a layer, in pieces from its front to its end; all but the last are of `most_bytes`.

    Args:
      layer: its place in the forward pass, from 0.
      numbytes: of the tensor.
      most_bytes: of a piece. The default are the 50,000 values of P3, in float32.
      rate: of the link, in bytes per second.

    Raises: UsageError for pieces of nothing.
    Source: P3, SysML 2019, section 4.1.

    Example:
      >>> [piece.numbytes for piece in pieces(0, 450_000)]
      [200000, 200000, 50000]
    """
    if most_bytes < 1:
        raise UsageError(f"layer {layer}: pieces of {most_bytes} bytes hold nothing; give at least 1")
    for place, begin in enumerate(range(0, numbytes, most_bytes)):
        yield Transfer(Piece(layer, place), min(most_bytes, numbytes - begin), rate=rate, layer=layer)
