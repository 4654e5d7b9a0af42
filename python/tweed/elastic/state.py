"""The state that members share, as bytes: equal at all of them, so that each can give a part of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tweed.exchange import values
from tweed.exchange.encoding import as_bytes, assembled, most_state_bytes, structure

DIGEST_BYTES = 16


class Stateful(Protocol):
    """What has a state, such as a model, an optimizer or a learning rate schedule."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values and tensors."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Goes on from a state that `state_dict` has returned."""
        ...


class State:
    """A tree of dicts and lists, whose tensors are laid out behind each other. See `exchange.encoding`.

    Args:
      tree: its tensors are not copied yet.

    Attributes:
      bytes: of all tensors.

    Raises: whatever looks at tensors raises UsageError if the tree has what is no plain value.

    Example:
      >>> state = State({"w": torch.ones(2)})
      >>> State.assembled(state.structure(), bytearray(state.part(0, 8))).tree["w"]
      tensor([1., 1.])
    """

    def __init__(self, tree: Any) -> None:
        self._tree = _with_own_dicts(tree)
        tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self._digests: dict[int, list[bytes]] = {}

    @property
    def tree(self) -> Any:
        """What it is of."""
        return _with_own_dicts(self._tree)

    def copy(self) -> State:
        """With tensors of its own."""
        return State(tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), self._tree))

    def structure(self) -> bytes:
        """All but the bytes of tensors."""
        return self._split[0]

    @cached_property
    def _split(self) -> tuple[bytes, list[Tensor]]:
        return structure(self._tree)

    def part(self, begin: int, end: int, into: bytearray | None = None) -> bytearray:
        """A copy of these bytes of all tensors; in `into`, if that is as long: in fresh memory it takes four
        times the time."""
        if into is None or len(into) != end - begin:
            into = bytearray(end - begin)
        at = 0
        for tensor in self._split[1]:
            length = tensor.numel() * tensor.element_size()
            low, high = max(begin - at, 0), min(end - at, length)
            if low < high:
                into[at + low - begin : at + high - begin] = as_bytes(tensor)[low:high]
            at += length
        return into

    def digests(self, parts: int = 1) -> list[bytes]:
        """The digests of the bytes of all tensors, cut into `parts`, as they are when this is first called.

        Cost: about a second for a gigabyte, once.
        """
        if parts not in self._digests:
            self._digests[parts] = self._digested(parts)
        return self._digests[parts]

    def _digested(self, parts: int) -> list[bytes]:
        found = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(parts)]
        at = 0
        for tensor in self._split[1]:
            data = as_bytes(tensor)
            for part, hashed in enumerate(found):
                low, high = (min(max(end - at, 0), len(data)) for end in cut(self.bytes, part, parts))
                hashed.update(data[low:high])
            at += len(data)
        return [hashed.digest() for hashed in found]

    @classmethod
    def assembled(cls, structure: bytes | bytearray, tensors: bytearray) -> State:
        """From what other processes gave. Raises DataError if they do not fit each other."""
        return cls(assembled(structure, tensors))


def broadcast(state: State | None, group: dist.ProcessGroup, giver: int, own_bytes: int) -> State:
    """Gives the state of the rank `giver` to all ranks; they wait for it.

    Args:
      own_bytes: of the model or the state that this process has: bounds what it takes.

    Raises: see `values.broadcast`.
    """
    tree = None if state is None else state.tree
    found = values.broadcast(group, tree, giver, most_bytes=most_state_bytes(own_bytes))
    return State(found) if state is None else state


def _with_own_dicts(tree: Any) -> Any:
    """A copy of dicts and lists, with the same leaves: those of others may change."""
    return tree_map(lambda leaf: leaf, tree)


def digest_of(data: bytes | bytearray | memoryview) -> bytes:
    """The digest of these bytes, as `State.digests` has it."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def cut(total: int, part: int, parts: int) -> tuple[int, int]:
    """Begin and end of the part that one of `parts` members has to do with, of so many bytes."""
    return total * part // parts, total * (part + 1) // parts


def of_objects(objects: Mapping[str, Stateful]) -> dict[str, Any]:
    """The states of these objects, by their names."""
    return {name: kept.state_dict() for name, kept in objects.items()}
