"""The optimizers of a run: when a step of all of them begins and ends, and that no other one steps the model.

Theory of operation. A *round* is one step of each optimizer of the run. It begins before the first of them
steps, and ends after the last one has; or when one is about to step again that has stepped in it already, for
a gradient scaler may skip one of several. What happens at either end is the run's: it exchanges.

An optimizer that was not given to the run steps the same parameters only by mistake: the run would not hear
of its steps. It is refused before it changes anything. One that an optimizer of the run calls within its own
step is not. All runs of a process share one hook on all optimizers, which stays: torch goes through its hooks
while another thread attaches a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tweed.errors import UsageError
from tweed.hooks.trained import Trained

#: Called with whether the step runs a closure, which has its backward passes still before it.
Before = Callable[[bool], None]

#: Those that watch, in a tuple that is replaced and never changed: another thread may be going through it.
_watching: tuple[Optimizers, ...] = ()
_hook: Any = None
_lock = Lock()


def _refuse_others(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for one in _watching:
        one.refuse_other(optimizer)


class Optimizers:
    """Hooks on the optimizers of a run.

    Args:
      given: at least one; each steps some of the `trained` parameters.
      trained: these.
    """

    def __init__(self, given: Sequence[Optimizer], trained: Trained) -> None:
        self._given = list(given)
        self._trained = trained
        self._stepped: list[Optimizer] = []  # in this round
        self._within: Optimizer | None = None  # whose step runs now
        self._hooks: list[Any] = []
        self._after: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[Optimizer]:
        return iter(self._given)

    @property
    def found_inf(self) -> bool:
        """Whether a gradient scaler has told one of them that its step is to change nothing."""
        return any(bool(getattr(optimizer, "found_inf", None)) for optimizer in self._given)

    def watch(self, before: Before, after: Callable[[], None]) -> None:
        """From now on `before` is called at the begin of each round, and `after` at its end."""
        self._after = after

        def begins(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if optimizer in self._stepped:
                self._end(after)
            self._within = optimizer
            if not self._stepped:
                before(any(callable(arg) for arg in (*args, *kwargs.values())))

        def ends(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._within = None
            self._stepped.append(optimizer)
            if len(self._stepped) == len(self._given):
                self._end(after)

        self._watch_others(True)
        for optimizer in self._given:
            self._hooks += [
                optimizer.register_step_pre_hook(begins),
                optimizer.register_step_post_hook(ends),
            ]

    def step(self) -> None:
        """Takes one step of each optimizer, and clears the gradients."""
        for optimizer in self._given:
            optimizer.step()
            optimizer.zero_grad()

    def only(self, what: str) -> Optimizer:
        """The one that there is. Raises UsageError if there are several, which `what` cannot be of."""
        if len(self._given) > 1:
            raise UsageError(
                f"{what} is of one optimizer, and attach was given {len(self._given)}: give it one"
            )
        return self._given[0]

    def end_round(self) -> None:
        """Ends one in which a gradient scaler has skipped an optimizer."""
        if self._stepped:
            self._end(self._after)

    def forget(self) -> None:
        """Removes the hooks from the optimizers."""
        self._watch_others(False)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _end(self, after: Callable[[], None]) -> None:
        self._stepped.clear()
        after()

    def _watch_others(self, watches: bool) -> None:
        global _hook, _watching
        with _lock:
            _hook = _hook or register_optimizer_step_pre_hook(_refuse_others)
            others = tuple(one for one in _watching if one is not self)
            _watching = (*others, self) if watches else others

    def refuse_other(self, optimizer: Optimizer) -> None:
        """Raises UsageError if an optimizer that was not given is to step what is trained."""
        if optimizer in self._given or self._within is not None:
            return
        params = {param for group in optimizer.param_groups for param in group["params"]}
        name = self._trained.name_of(params)
        if name is None:
            return
        mine = " and ".join(type(one).__name__ for one in self._given)
        raise UsageError(
            f"{type(optimizer).__name__}.step() would change {name!r} of the attached model, "
            f"and attach was given another optimizer ({mine}): the ranks' models would differ. Step the "
            "attached one, or give attach all that step the model, as a list"
        )
