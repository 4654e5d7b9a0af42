"""What crosses between server and clients of split learning: activations, outputs, gradients. Pure.

    rows       client -> server   activations as `Cut` encodes them, labels if the server has the loss
    outputs    server -> client   where the loss is at the client; it answers with `loss`, their gradients
    shared     server -> all      the gradient of the rows that were aggregated
    own        server -> client   that of its other rows; ends the step
    again      client -> server   the client asks for `shared`, which has not come
    failed     server -> all      an error of the server's, which clients raise

Each has the number of the client's step; `shared` that of the server's. `own` has the SHA-256 digest of
`shared`, which may come by other ways than a link.

Each message is a dict of plain values and tensors, as `exchange.encoding` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.encoding import packed, unpacked
from tweed.exchange.stages import Sent

#: By kind, what a message has beside its kind and the number of the step, and of which type.
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "rows": {"activations": Tensor, "labels": (Tensor, type(None)), "weight": float},
    "outputs": {"outputs": Tensor},
    "loss": {"gradient": Tensor, "loss": float},
    "shared": {"gradient": Tensor},
    "own": {"gradient": Tensor, "rows": int, "digest": str, "loss": float},
    "again": {},
    "failed": {"error": str, "text": str},
}
Message = Mapping[str, Any]


def write(kind: str, step: int, **fields: Any) -> bytes:
    """A message as bytes."""
    return bytes(packed({"kind": kind, "step": step, **fields}))


def read(data: bytes | bytearray | memoryview, sender: str) -> Message:
    """The inverse. Raises: DataError for anything else, which names the sender."""
    try:
        message = unpacked(data)
    except DataError as error:
        raise DataError(f"{sender} has sent no message of split learning: {error}") from None
    if isinstance(message, dict) and isinstance(message.get("step"), int):
        fields = FIELDS.get(str(message.get("kind")))
        if fields is not None and all(isinstance(message.get(name), of) for name, of in fields.items()):
            return message
    raise DataError(f"{sender} has sent what is no message of split learning: do all run the same version?")


def part(sent: Sent, begin: int, end: int) -> Sent:
    """What was sent of the rows from `begin` to `end` of a batch.

    Example:
      >>> whole = Sent((3, 2), torch.float32, torch.tensor([0, 3, 5], dtype=torch.int32), True)
      >>> part(whole, 1, 3).places.tolist()
      [1, 3]
    """
    shape = (end - begin, *sent.shape[1:])
    if sent.places is None:
        return replace(sent, shape=shape)
    width = int(torch.Size(sent.shape[1:]).numel())
    inside = sent.places[(sent.places >= begin * width) & (sent.places < end * width)]
    return replace(sent, shape=shape, places=inside - begin * width)


def whole(sent: Sent, rows: int) -> Sent:
    """The first rows of a batch, with all their values: averages have gradients everywhere."""
    return replace(part(sent, 0, rows), places=None)


def mask(gradient: Tensor, sent: Sent) -> Tensor:
    """Zero where nothing was sent."""
    if sent.places is None:
        return gradient
    kept = torch.zeros_like(gradient).view(-1)
    kept[sent.places.long()] = gradient.reshape(-1)[sent.places.long()]
    return kept.view(gradient.shape)
