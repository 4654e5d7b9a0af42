"""The step of a caller that takes several means over the same samples, as an optimizer with a closure does.

Within it no state of the optimizer can be copied, as a part of it is in local variables; nor can another one
be loaded. So who joins gets what is kept as it was when the step began, and the means that the caller has had
since then; and what this process gets of others within a step, its caller gets when that is over.

    a step     moved by                                     to
    NONE       `begin`                                      BEGUN
    BEGUN      `has`, with a mean                           WITHIN
    BEGUN      `take_over`: it is loaded at once            BEGUN, with that
    WITHIN     `take_over`: others have given a state       HELD: there are no means any more
    any        `end`, `begin`: what is held is loaded       NONE, BEGUN
               `revert`: what is kept is as it began        NONE

Of a caller whose steps take one mean each there is no `begin`, and all of this stays NONE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tweed.data.sampler import Sampler
from tweed.elastic.results import Results, Transferred
from tweed.elastic.state import State


class ClosureStep:
    """See the module.

    Args:
      kept: what the caller has.

    Attributes:
      steps: that are in it.
      replays: means that others have had in this step, which the caller has next.
    """

    def __init__(self, kept: Results) -> None:
        self._kept, self.steps = kept, 0
        self.replays = deque[tuple[Tensor, Sequence[int]]]()
        self._start: State | None = None
        self._means: list[list[Any]] = []  # each with where the steps are
        self._held: State | None = None

    @property
    def is_within(self) -> bool:
        """The caller has had a mean, and is to have further ones over the same samples."""
        return bool(self._means)

    @property
    def is_held(self) -> bool:
        """Others have given a state, which waits until the step is over."""
        return self._held is not None

    def begin(self, sampler: Sampler, result: Tensor | None) -> None:
        """The caller has ended the step before. Cost: a copy of what is kept."""
        self._start = self._kept.state(sampler, result, self.steps).copy()

    def end(self) -> bool:
        """The caller is within none. Returns whether it has another state now."""
        held = self._held
        if held is not None:
            self.load(held)
        self._start, self._means, self._held = None, [], None
        return held is not None

    def has(self, mean: Tensor, where: Sequence[int]) -> None:
        """The caller has the mean of a step that counts, `[numel]`, which stays as it is."""
        self.steps += not self._means
        if self._start is not None:
            self._means = [*self._means, [mean, [*where]]]

    def state(self, sampler: Sampler, result: Tensor | None) -> State:
        """What others get: where the steps are, if this is no caller's step, and the result of the last."""
        if self._start is not None:
            return State(self._start.tree | {"since": self._means})
        return self._kept.state(sampler, result, self.steps)

    def take_over(self, state: State, given: Transferred) -> bool:
        """Others have given this. Returns whether the caller has it now."""
        self.replays = deque(given.since)
        if self._means:
            self._held = state
            return False
        self.load(state)
        if self._start is not None:  # a step that had just begun goes on from there
            self._start = state.copy()
        return True

    def revert(self) -> None:
        """What is kept becomes as it was when the step began, which does not count here."""
        if self._start is not None:
            self.load(self._start)
            self._start, self._means = None, []

    def load(self, state: State) -> None:
        """The caller has this."""
        self.steps = self._kept.load(state)
