"""What members have in the same state, as one value that a joiner or a checkpoint gets, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from tweed.data.sampler import Sampler
from tweed.elastic.state import State, Stateful, of_objects
from tweed.elastic.terms import difference
from tweed.errors import ShapeMismatch, UsageError


class Transferred(NamedTuple):
    """Where members are, in a state that they gave.

    Attributes:
      sampler: where the steps are.
      result: of the last, `[numel]`; None: there is none.
      since: of means that the caller's step has had since then, each with where the steps are with it.
    """

    sampler: Sampler
    result: Tensor | None
    since: list[tuple[Tensor, Sequence[int]]]


class Results:
    """See the module.

    Args:
      objects: by name, such as a model and an optimizer.
      terms: what else all must have alike, a line each.

    Attributes:
      run: its name, which members get with the state.
    """

    def __init__(self, objects: Mapping[str, Stateful], terms: Sequence[str]) -> None:
        self._objects, self._terms, self.run = dict(objects), list(terms), ""

    @property
    def now(self) -> State:
        """The objects alone, as they are."""
        return State(of_objects(self._objects))

    def state(self, sampler: Sampler, result: Tensor | None, steps: int) -> State:
        """With where the steps are, the result of the last, `[numel]`, and how many the caller has."""
        tree = {"kept": of_objects(self._objects), "result": result, "terms": self._terms, "steps": steps}
        return State(tree | {"run": self.run} | sampler.position)

    def given(self, state: State, sampler: Sampler) -> Transferred:
        """Where those are who gave it. The objects stay as they are.

        Raises: UsageError: the state is of other samples than `sampler`.
        """
        tree = state.tree
        since = [(mean, where) for mean, where in tree.get("since", ())]
        # Within the first step there is no result, and who joins needs one to see what another looks like.
        result = since[0][0] if tree["result"] is None and since else tree["result"]
        return Transferred(sampler.resumed(tree), result, since)

    def load(self, state: State) -> int:
        """The objects become so. Returns how many steps the caller has then.

        Raises:
          UsageError: the state has other objects.
          ShapeMismatch: it has other terms.
        """
        tree = state.tree
        if set(tree["kept"]) != set(self._objects):
            raise UsageError(
                f"the state has {sorted(tree['kept'])}, and this process keeps {sorted(self._objects)}: let "
                "all members keep objects of the same names"
            )
        if why := difference(tree.get("terms", ()), self._terms):
            raise ShapeMismatch(why)
        for name, kept in self._objects.items():
            kept.load_state_dict(tree["kept"][name])
        self.run = tree.get("run", "")
        return int(tree.get("steps", tree["where"][0]))  # earlier checkpoints are of plain loops
