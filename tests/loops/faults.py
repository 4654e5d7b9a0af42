"""Old faults of `attach`, put back, and how many programs it takes to find each:

    python -m tests.loops.faults [NAME ...] --programs 1000 --seed 1

A fault is found by a program that goes wrong with it and goes right without.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import tweed.exchange.untrained as untrained
from tests.loops.draw import seeded
from tests.loops.judge import verdict
from tests.loops.program import Program
from tests.loops.ranks import StayingRanks
from tests.loops.shrink import shrunk
from tweed.cadence import Stop
from tweed.exchange.bucket import Bucket
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.movement import MovementExchange
from tweed.exchange.untrained import Untrained
from tweed.hooks.gradient import GradientExchange
from tweed.hooks.optimizers import Optimizers
from tweed.hooks.run import Run
from tweed.hooks.setup import Setup

base_run: Any = import_module("tweed.hooks.base_run")  # `tweed.attach` is a function too


@dataclass(frozen=True, slots=True)
class Fault:
    """What was wrong once, in words; `put` puts it back into this process."""

    what: str
    put: Callable[[], None]


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of what a mended tweed does."""


def _memory_of_attach() -> None:
    groups = MovementExchange._groups

    def first(self: Any) -> list[list[Tensor]]:
        if not hasattr(self, "_first_groups"):
            self._first_groups = groups(self)
        return self._first_groups

    MovementExchange._groups = first


def _snapshot_after() -> None:
    GradientExchange.before = _nothing


def _never_taken_back() -> None:
    GradientExchange._before_gradient = _nothing


def _partly_is_nothing() -> None:
    look = GradientExchange._before_gradient

    def kindly(self: Any, grad: Tensor) -> None:
        look(self, grad)
        self._partly = None

    GradientExchange._before_gradient = kindly


def _views_are_used_again() -> None:
    Bucket.is_shared = lambda self, params: False


def _any_number_of_ranks() -> None:
    base_run.check_other_ranks = _nothing


class _Unaware:
    """torch that does not know of backward passes."""

    def __getattr__(self, name: str) -> Any:
        return (lambda: -1) if name == "_current_graph_task_id" else getattr(torch._C, name)


class _Torch:
    _C = _Unaware()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _steps_anywhere() -> None:
    base_run.torch = _Torch()


def _finish_stops_all() -> None:
    finish = Run.finish

    def stops(self: Run) -> None:
        finish(self)
        self._cadence.handle(Stop())

    Run.finish = stops


def _masks_are_averaged() -> None:
    compare = untrained.compare
    untrained.compare = lambda tensors, *rest: ([False] * len(tensors), compare(tensors, *rest)[1])

    def mean(self: Any, tensor: Tensor, broken: Any) -> Tensor:
        total = self._comm.sum((tensor / self._comm.size).reshape(-1))
        return total.view_as(tensor)

    Untrained._mean = mean


def _teachers_are_forgotten() -> None:
    Setup.untrained = lambda self: dict(self.model.named_buffers())


def _buffers_end_as_they_are() -> None:
    Untrained.take_first = _nothing


def _moves_are_lost() -> None:
    MovementExchange._take_moved_by_hand = _nothing


def _others_step() -> None:
    Optimizers._refuse_other = _nothing


def _draws_go_on() -> None:
    load = CompressedBuffers.load

    def forgets(self: Any, state: Any) -> None:
        turns = self.turns
        load(self, state)
        self.turns = turns

    CompressedBuffers.load = forgets


def _residuals_are_lost() -> None:
    load = CompressedBuffers.load

    def forgets(self: Any, state: Any) -> None:
        load(self, state)
        self.forget()

    CompressedBuffers.load = forgets


def _new_parameters_are_deaf() -> None:
    GradientExchange._is_put_in = _nothing


def _never_paused() -> None:
    GradientExchange.paused = property(lambda self: False, _nothing)


FAULTS = {
    "memory": Fault("movements are those of the memory that parameters had at attach", _memory_of_attach),
    "skipped": Fault("an exchange of a skipped batch is not taken back", _never_taken_back),
    "partly": Fault("some gradients are cleared and others not, and nothing is said", _partly_is_nothing),
    "kept": Fault("gradients that are kept are overwritten", _views_are_used_again),
    "ranks": Fault("a state of another number of ranks is loaded", _any_number_of_ranks),
    "backward": Fault("optimizers step within a backward pass by a rank's own gradients", _steps_anywhere),
    "finish": Fault("after finish() the next exchange is left out", _finish_stops_all),
    "masks": Fault("buffers that are equal are averaged, in their own dtype", _masks_are_averaged),
    "teachers": Fault("what has no gradient is not made the same", _teachers_are_forgotten),
    "buffers": Fault("buffers differ after a batch that was skipped last", _buffers_end_as_they_are),
    "moves": Fault("what was moved by hand since an exchange is lost at the end", _moves_are_lost),
    "foreign": Fault("an optimizer that attach was not given steps", _others_step),
    "draws": Fault("draws are not taken back, and not resumed", _draws_go_on),
    "residuals": Fault("residuals are not resumed", _residuals_are_lost),
    "between": Fault("a state between backward pass and step is that after the exchange", _snapshot_after),
    "new": Fault("a new parameter object has no hook in its first backward pass", _new_parameters_are_deaf),
    "no_sync": Fault("run.no_sync() exchanges", _never_paused),
}


def found(name: str, seed: int, programs: int, shrinks: bool = True) -> tuple[int, Program] | None:
    """The first program that finds a fault, small, and its number; None: none of so many."""
    with StayingRanks(name) as faulty, StayingRanks() as sound:

        def wrong(program: Program) -> str:
            words, _ = verdict(program, faulty)
            if " raised:" in words:  # the fault itself does not fit tweed any more
                raise RuntimeError(f"fault {name!r}: {words}")
            return words if words and not verdict(program, sound)[0] else ""

        for number in range(programs):
            program = seeded(seed, number)
            if words := wrong(program):
                late = "did not end" in words
                return number, shrunk(program, wrong, 10 if late else 60) if shrinks else program
    return None


def main() -> int:
    """Returns the number of faults that were not found."""
    options = argparse.ArgumentParser(prog="python -m tests.loops.faults", description=__doc__)
    options.add_argument("names", nargs="*", help=f"of {', '.join(FAULTS)}; none: all")
    options.add_argument("--programs", type=int, default=1000, help="how many are tried at most")
    options.add_argument("--seed", type=int, default=1, help="of the draws")
    options.add_argument("--no-shrink", action="store_true", help="show programs as they were drawn")
    given = options.parse_args()
    missed = 0
    for name in given.names or FAULTS:
        hit = found(name, given.seed, given.programs, not given.no_shrink)
        missed += hit is None
        words = "not found" if hit is None else f"found by program {hit[0]}\n    {hit[1]}"
        print(f"{name} ({FAULTS[name].what}): {words}", flush=True)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
