"""States of memories and codecs as plain values and tensors, for checkpoints, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from tweed.errors import UsageError
from tweed.exchange.transfers import BufferState, reply_state

#: Of the states that `tweed.attach` and the hooks of `tweed.torch` store. 1 had no number; its fields had
#: other names. 2 had thresholds that no controller held. 3 had hubs without forms of models; 4 without noise,
#: and without members that have numbers; 5 did not say of how many ranks it was.
FORMAT = 6


def check_format(state: Mapping[str, Any]) -> None:
    """Raises UsageError unless `state` is of this version's format."""
    if state.get("format") != FORMAT:
        raise UsageError(
            f"the state has format {state.get('format', 1)}, and this version of tweed reads {FORMAT}: "
            "finish the run with the version that stored it, or go on from its model alone"
        )


#: Of what an exchange keeps, what is the same at all ranks.
_SHARED = ("anchor", "references", "outer")


def check_other_ranks(state: Mapping[str, Any], ranks: int) -> None:
    """Raises UsageError if the `state` of a run holds what belongs to one of its ranks, since it is to go on
    with another number of `ranks`: a model of the rank's own, or what it had yet to send."""
    advice = (
        f"The state is of a run of {state['ranks']} ranks, and this one has {ranks}. Go on with "
        f"{state['ranks']}; or begin a new run with the stored model and optimizer alone, and leave out "
        "run.load_state_dict()"
    )
    if state["differs"]:
        raise UsageError(
            f"each rank has a model of its own in its state. {advice}. If all ranks call run.finish() before "
            "they store, their models are one, and any number of ranks can go on"
        )
    own = [value for name, value in state["exchange"].items() if name not in _SHARED]
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves([own, state["residuals"]])):
        raise UsageError(
            f"each rank's state holds what that rank had yet to send, which would be lost or count twice. "
            f"{advice}: what was yet to be sent is lost then"
        )


def stored(buffer: BufferState) -> dict[str, Any]:
    """What `buffer` holds, as a checkpoint has it."""
    return {
        name: plain(getattr(buffer, name)) for name in ("state", "parts", "replies", "aggregates", "lost")
    }


def restored(fresh: BufferState, kept: dict[str, Any]) -> BufferState:
    """`fresh`, which has seen no exchange yet, with what `stored` gave.

    Raises: UsageError if it is of a buffer of another size.
    """
    fresh.state = filled(fresh.state, kept["state"])
    fresh.parts = filled(fresh.parts, kept["parts"])
    fresh.lost = {part: filled(fresh.mean, one) for part, one in kept["lost"].items()}
    start = fresh.owners.aggregate.start()
    fresh.aggregates = {part: filled(start, one) for part, one in kept["aggregates"].items()}
    for part, one in kept["replies"].items():
        codec = fresh.memory.parts[part].reply_codec
        assert codec is not None  # the strategy is the same, and replies were compressed
        begun = reply_state(codec, fresh.owners.mine(fresh.mean))
        fresh.replies[part] = filled(begun, one)
    return fresh


def plain(value: Any) -> Any:
    """`value`, made of dataclasses, dicts, lists and tensors, as dicts, lists and copies of tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def filled(like: Any, kept: Any) -> Any:
    """`kept`, which `plain` gave, in the form of `like`.

    Raises: UsageError if tensors have other shapes.
    """
    if isinstance(like, Tensor) and isinstance(kept, Tensor):
        check_same(like.shape == kept.shape)
        return kept.to(like.device, copy=True)
    if is_dataclass(like) and not isinstance(like, type):
        return type(like)(**{name: filled(getattr(like, name), part) for name, part in kept.items()})
    if isinstance(like, dict):
        return {name: filled(like.get(name), part) for name, part in kept.items()}
    if isinstance(like, list | tuple):
        check_same(len(like) == len(kept))
        return type(like)(filled(*pair) for pair in zip(like, kept, strict=True))
    return kept.clone() if isinstance(kept, Tensor) else kept


def check_same(same: bool) -> None:
    """Raises UsageError unless what was stored is of the `same` buffers."""
    if not same:
        raise UsageError("the stored state has buckets of other sizes: is bucket_bytes the same?")
