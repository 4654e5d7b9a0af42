"""What members have in the same state, as one value that a joiner or a checkpoint gets, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from torch import Tensor

from tweed.data.sampler import Sampler
from tweed.elastic.state import State, Stateful, of_objects
from tweed.errors import ShapeMismatch, UsageError


class Kept:
    """See the module.

    Args:
      objects: by name, such as a model and an optimizer.
      terms: what else all must have alike, a line each.
    """

    def __init__(self, objects: Mapping[str, Stateful], terms: Sequence[str]) -> None:
        self._objects, self._terms = dict(objects), list(terms)

    @property
    def now(self) -> State:
        """The objects alone, as they are."""
        return State.of(of_objects(self._objects))

    def state(self, sampler: Sampler, result: Tensor | None) -> State:
        """With where the steps are, and the result of the last, `[numel]`."""
        tree = {"kept": of_objects(self._objects), "result": result, "terms": self._terms}
        return State.of(tree | position_of(sampler))

    def load(self, state: State, sampler: Sampler) -> tuple[Sampler, Tensor | None]:
        """The objects become so. Returns where the steps are, and the result of the last.

        Raises:
          UsageError: the state is of other samples than `sampler`, or has other objects.
          ShapeMismatch: it has other terms.
        """
        tree, own = state.tree, samples_of(sampler)
        if tree["samples"] != own:
            raise UsageError(
                f"the state is of {tree['samples']} (samples, seed, batch), and this process was given "
                f"{own}: give all the same"
            )
        if set(tree["kept"]) != set(self._objects):
            raise UsageError(
                f"the state has {sorted(tree['kept'])}, and this process keeps {sorted(self._objects)}"
            )
        for theirs, mine in zip_longest(tree.get("terms", ()), self._terms, fillvalue="nothing"):
            if theirs != mine:
                raise ShapeMismatch(
                    f"members do not hold the same model and settings: the others have {theirs}, and this "
                    f"process has {mine}"
                )
        for name, kept in self._objects.items():
            kept.load_state_dict(tree["kept"][name])
        where = tree["where"]
        cursor, again = where["cursor"], tuple(where["again"])
        return Sampler(sampler.order, sampler.batch, False, where["step"], cursor, again), tree["result"]


def samples_of(sampler: Sampler) -> list[int]:
    """What must be the same at all members: how many samples, the seed of their order, the batch."""
    return [sampler.order.numel, sampler.order.seed, sampler.batch]


def position_of(sampler: Sampler) -> dict[str, Any]:
    """Where the steps are in which samples, as plain values."""
    where = {"step": sampler.step, "cursor": sampler.cursor, "again": list(sampler.again)}
    return {"where": where, "samples": samples_of(sampler)}
