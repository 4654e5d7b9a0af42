"""The state that members share, as bytes: equal at all of them, so that each can give a part of it."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from tweed.errors import DataError

DIGEST_BYTES = 16


class Stateful(Protocol):
    """What has a state, such as a model, an optimizer or a learning rate schedule."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class State:
    """A tree of dicts and lists, whose tensors are laid out behind each other.

    Not as `torch.save` writes it: that depends on which of equal objects are one, and so on the past of a
    process.

    Example:
      >>> state = State.of({"w": torch.ones(2)})
      >>> State.assembled(state.structure(), bytearray(state.part(0, 8))).tree["w"]
      tensor([1., 1.])
    """

    def __init__(self, leaves: list[Any], spec: TreeSpec) -> None:
        self._leaves, self._spec = leaves, spec
        self._tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._digests: dict[int, list[bytes]] = {}
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in self._tensors)

    @classmethod
    def of(cls, tree: Any) -> State:
        """The tensors are not copied yet."""
        return cls(*tree_flatten(tree))

    def copy(self) -> State:
        """With tensors of its own."""
        leaves = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        return State(leaves, self._spec)

    @property
    def tree(self) -> Any:
        """What it is of."""
        return tree_unflatten(self._leaves, self._spec)

    def structure(self) -> bytes:
        """All but the bytes of tensors."""
        shapes = [leaf.detach().to("meta") if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        file = io.BytesIO()
        torch.save(tree_unflatten(shapes, self._spec), file)
        return file.getvalue()

    def part(self, begin: int, end: int, into: bytearray | None = None) -> bytearray:
        """A copy of these bytes of all tensors; in `into`, if that is as long: in fresh memory it takes four
        times the time."""
        if into is None or len(into) != end - begin:
            into = bytearray(end - begin)
        at = 0
        for tensor in self._tensors:
            length = tensor.numel() * tensor.element_size()
            low, high = max(begin - at, 0), min(end - at, length)
            if low < high:
                into[at + low - begin : at + high - begin] = as_bytes(tensor)[low:high]
            at += length
        return into

    def digests(self, parts: int = 1) -> list[bytes]:
        """Of each of so many parts of the bytes of all tensors, as they are when this is first called.

        Cost: about a second for a gigabyte, once.
        """
        if parts not in self._digests:
            self._digests[parts] = self._digested(parts)
        return self._digests[parts]

    def _digested(self, parts: int) -> list[bytes]:
        found = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(parts)]
        at = 0
        for tensor in self._tensors:
            data = as_bytes(tensor)
            for part, hashed in enumerate(found):
                low, high = (min(max(end - at, 0), len(data)) for end in cut(self.bytes, part, parts))
                hashed.update(data[low:high])
            at += len(data)
        return [hashed.digest() for hashed in found]

    @classmethod
    def assembled(cls, structure: bytes | bytearray, tensors: bytearray) -> State:
        """From what other processes gave. Raises DataError if they do not fit each other."""
        try:
            tree = torch.load(io.BytesIO(structure), weights_only=True)
        except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
            raise DataError(f"the structure of a state cannot be read: {error}") from None
        leaves, spec = tree_flatten(tree)
        empty = cls(leaves, spec)
        if empty.bytes != len(tensors):
            raise DataError(f"the state has {len(tensors)} bytes, and its structure says {empty.bytes}")
        at = 0
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                length = leaf.numel() * leaf.element_size()
                leaves[place] = from_bytes(tensors[at : at + length], leaf)
                at += length
        return cls(leaves, spec)


def broadcast(state: State | None, group: dist.ProcessGroup, giver: int) -> State:
    """That of the rank `giver`, which gives it, at all ranks; they wait for it."""
    told: list[Any] = [None, 0] if state is None else [state.structure(), state.bytes]
    dist.broadcast_object_list(told, group=group, group_src=giver)
    structure, size = told
    tensors = bytearray(size) if state is None else state.part(0, size)
    if tensors:
        dist.broadcast(torch.frombuffer(tensors, dtype=torch.uint8), group=group, group_src=giver)
    return State.assembled(structure, tensors) if state is None else state


def digest_of(data: bytes | bytearray | memoryview) -> bytes:
    """Of these bytes, as `State.digests` has it."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def cut(total: int, part: int, parts: int) -> tuple[int, int]:
    """Begin and end of the part that one of `parts` members has to do with, of so many bytes."""
    return total * part // parts, total * (part + 1) // parts


def of_objects(objects: Mapping[str, Stateful]) -> dict[str, Any]:
    """By name, what they are in."""
    return {name: kept.state_dict() for name, kept in objects.items()}


def as_bytes(tensor: Tensor) -> memoryview:
    """Its elements, in order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def from_bytes(data: bytearray, like: Tensor) -> Tensor:
    """A tensor of the shape and type of `like`, which owns `data`."""
    if not data:
        return torch.empty(like.shape, dtype=like.dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(like.dtype).reshape(like.shape)
