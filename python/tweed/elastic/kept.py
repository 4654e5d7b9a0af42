"""What members have in the same state, as one value that a joiner or a checkpoint gets, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

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
        return State.of(tree | sampler.position)

    def load(self, state: State, sampler: Sampler) -> tuple[Sampler, Tensor | None]:
        """The objects become so. Returns where the steps are, and the result of the last.

        Raises:
          UsageError: the state is of other samples than `sampler`, or has other objects.
          ShapeMismatch: it has other terms.
        """
        tree = state.tree
        follows = sampler.resumed(tree)
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
        return follows, tree["result"]
