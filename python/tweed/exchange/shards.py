"""Tensors that are spread over the processes of a replica, as FSDP2 has parameters: torch's `DTensor`.

Each process has a part, its *shard*. What is not spread goes through all of these unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tweed.errors import UsageError


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


def whole(tree: Any, *, keep: bool = True) -> Any:
    """A tree whose tensors are whole, and on the CPU if they were spread. All processes must call this alike.

    Args:
      keep: this process wants them; else what was spread is None.

    Cost: an all-gather for each tensor that is spread.
    """

    def gathered(leaf: Any) -> Any:
        if not is_spread(leaf):
            return leaf
        full = leaf.full_tensor()
        return full.cpu() if keep else None

    return tree_map(gathered, tree)


def load_whole(kept: Any, state: Mapping[str, Any]) -> None:
    """Has a model, an optimizer or another object take a state whose tensors are whole.

    Raises: UsageError if it cannot be said how a tensor is to be spread.
    """
    if isinstance(kept, Optimizer):
        kept.load_state_dict(_of_optimizer(kept, state))
        return
    (given, form), (own, own_form) = tree_flatten(state), tree_flatten(kept.state_dict())
    if form == own_form:
        kept.load_state_dict(tree_unflatten(map(_spread, given, own), form))
    elif any(map(is_spread, own)):
        raise UsageError(
            f"the state of {type(kept).__name__} has other entries here than on the other members, and some "
            "of them are spread over processes: let all members keep the same objects"
        )
    else:
        kept.load_state_dict(state)


def _of_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """What it keeps of a parameter is spread as that here, or else as the parameter if it has its shape."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    spread: dict[int, dict[str, Any]] = {}
    for index, of_param in state["state"].items():
        param, own = params[index], optimizer.state.get(params[index], {})
        spread[index] = {name: _spread(value, own.get(name, param)) for name, value in of_param.items()}
        for name, value in spread[index].items():
            if is_spread(param) and isinstance(value, Tensor) and value.dim() > 0 and not is_spread(value):
                raise UsageError(
                    f"{type(optimizer).__name__} keeps {name!r} of shape {tuple(value.shape)} of a parameter "
                    f"of shape {tuple(param.shape)} that is spread over processes: take an optimizer whose "
                    "state has the shape of parameters, such as AdamW"
                )
    return {**state, "state": spread}


def _spread(value: Any, like: Any) -> Any:
    """This process takes its part of a tensor that it has whole."""
    if not (is_spread(like) and isinstance(value, Tensor) and value.shape == like.shape):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
