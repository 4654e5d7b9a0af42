"""Tensors that are spread over the processes of a replica, as FSDP2 has parameters: torch's `DTensor`.

Each process has a part, its *shard*. What is not spread goes through all of these unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map


def is_spread(tensor: object) -> bool:
    """Whether other processes have parts of it."""
    module = sys.modules.get("torch.distributed.tensor")  # imported here it would cost seconds
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """What this process has of it, the same memory."""
    return tensor._local_tensor if is_spread(tensor) else tensor  # type: ignore[attr-defined]


def spread_as(shard: Tensor, like: Tensor) -> Tensor:
    """`shard` as this process's part of a tensor that is spread as `like` is; the same memory."""
    if not is_spread(like):
        return shard
    from torch.distributed.tensor import DTensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return DTensor.from_local(
        shard, mesh, placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def whole(tree: Any) -> Any:
    """A tree whose tensors are whole at all processes, which must call this alike.

    Cost: an all-gather for each tensor that is spread.
    """
    return tree_map(lambda leaf: leaf.full_tensor() if is_spread(leaf) else leaf, tree)


def load_whole(kept: Any, state: Mapping[str, Any]) -> None:
    """Has a model, an optimizer or another object take a state whose tensors are whole."""
    if isinstance(kept, Optimizer):
        kept.load_state_dict(_of_optimizer(kept, state))
        return
    own = kept.state_dict()
    kept.load_state_dict({name: _spread(value, own.get(name)) for name, value in state.items()})


def _of_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """What it keeps of a parameter in the parameter's shape is spread as that is."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    spread = {
        index: {name: _spread(value, params[index]) for name, value in of_param.items()}
        for index, of_param in state["state"].items()
    }
    return {**state, "state": spread}


def _spread(value: Any, like: Any) -> Any:
    """This process takes its part of a tensor that it has whole."""
    if not (is_spread(like) and isinstance(value, Tensor) and value.shape == like.shape):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
