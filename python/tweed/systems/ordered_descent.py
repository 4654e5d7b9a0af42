"""Gradient descent in which ranks are silent now and then, under a virtual clock: all, LAG, ordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from tweed.cadence import EventTriggered, Joined, Moves, Ordered, Ready, StepDone
from tweed.simulate.ordered import Air, Cell
from tweed.systems.ordered_problems import Array, Problem


class Codec(Protocol):
    """Who speaks."""

    def iterate(self, norms: list[float], hear: Callable[[int], float]) -> float:
        """Calls `hear` for each rank that speaks, in order. Returns the seconds that it took."""
        ...

    def moved(self, norm: float) -> None:
        """The model went so far."""
        ...


@dataclass(slots=True)
class Everybody:
    """All speak, one after the other over the one channel: gradient descent."""

    air: Air

    def iterate(self, norms: list[float], hear: Callable[[int], float]) -> float:
        """See `Codec`."""
        for rank in range(len(norms)):
            hear(rank)
        return len(norms) * self.air.send_s + 2 * self.air.latency_s

    def moved(self, norm: float) -> None:
        """Nobody asks."""


class Lag:
    """LAG's rule for workers; who is silent says so in no time."""

    def __init__(self, rate: float, ranks: int, air: Air, share: float = 0.1) -> None:
        self._cadence = EventTriggered(Moves(rate, share))
        self._state = self._cadence.handle(Joined(0, ranks), self._cadence.start(), 0.0)
        self._air = air

    def iterate(self, norms: list[float], hear: Callable[[int], float]) -> float:
        """See `Codec`."""
        speak = [rank for rank, norm in enumerate(norms) if not self._decides(norm)]
        for rank in speak:
            hear(rank)
        return len(speak) * self._air.send_s + 2 * self._air.latency_s

    def _decides(self, norm: float) -> bool:
        """Whether a rank with news of length `norm` is silent; `moved` is all that ranks have in common."""
        return self._cadence.poll(self._cadence.handle(Ready(norm), self._state, 0.0), 0.0)[0].silent

    def moved(self, norm: float) -> None:
        """See `Codec`."""
        self._state = self._cadence.handle(StepDone(norm), self._state, 0.0)


class InOrder:
    """Ordered transmission; counts what breaks a promise.

    Attributes:
      out_of_order: messages that were longer than one heard before.
      over: iterations with more left out than the server vouched for.
      beyond_lag: messages that LAG would not have sent from the same state; only for the test by history.
      collisions: messages that were destroyed by others.
    """

    def __init__(self, cadence: Ordered, ranks: int, air: Air) -> None:
        self.cell = Cell(cadence, ranks, air)
        self.out_of_order = self.over = self.beyond_lag = self.collisions = 0

    def iterate(self, norms: list[float], hear: Callable[[int], float]) -> float:
        """See `Codec`."""
        policy = self.cell.cadence.policy
        lag = policy.allowed(self.cell.server) / len(norms) if policy.history is not None else 0.0
        done = self.cell.iterate(norms, hear)
        heard = [norms[rank] for rank in done.sent]
        self.out_of_order += sum(later > 1.000001 * before for before, later in pairwise(heard))
        self.over += sum(norms[rank] for rank in done.silent) > 1.000001 * done.allowed if done.silent else 0
        self.beyond_lag += sum(norm <= 0.999999 * lag for norm in heard)
        self.collisions += done.collisions
        return done.seconds

    def moved(self, norm: float) -> None:
        """See `Codec`."""
        self.cell.moved(norm)


@dataclass(slots=True)
class Way:
    """What a descent has come to.

    Attributes:
      x: where it stands.
      uploads, iterations: so far.
      seconds: of virtual time, waiting included.
      gaps: after each iteration, if they were to be kept.
    """

    x: Array
    uploads: int = 0
    iterations: int = 0
    seconds: float = 0.0
    gaps: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Options:
    """How a descent goes.

    Args:
      momentum: of Polyak's heavy ball; with silent ranks that is CHB.
      bits: of each number of what is said, rounded to nearest by the largest of them; None: said exactly.
      compute_s: seconds that ranks take for a gradient, all at the same time.
      keep: keep the gap of every iteration.
    """

    momentum: float = 0.0
    bits: int | None = None
    compute_s: float = 0.0
    keep: bool = False


_PLAIN = Options()


def descend(problem: Problem, method: Codec, goal: float, limit: int, options: Options = _PLAIN) -> Way:
    """Goes down until `problem.gap` is at most `goal`, or `limit` iterations are over."""
    way, held = Way(problem.start.copy()), np.zeros((problem.ranks, problem.numel))
    before = way.x
    while way.iterations < limit:
        way.seconds += options.compute_s + _iterate(problem, method, way, held, options.bits)
        step = -problem.rate * held.sum(axis=0)
        if options.momentum:
            step += options.momentum * (way.x - before)
        before, way.x = way.x, way.x + step
        method.moved(float(np.linalg.norm(step)))
        way.iterations += 1
        gap = problem.gap(way.x) if options.keep or goal > 0 else np.inf
        if options.keep:
            way.gaps.append(gap)
        if gap <= goal:
            break
    return way


def _iterate(problem: Problem, method: Codec, way: Way, held: Array, bits: int | None) -> float:
    gradients = problem.gradients(way.x, way.iterations)
    news = gradients - held
    total = held.sum(axis=0)

    def hear(rank: int) -> float:
        nonlocal total
        new = gradients[rank] if bits is None else held[rank] + _rounded(news[rank], bits)
        total = total + new - held[rank]
        held[rank] = new
        way.uploads += 1
        return float(np.linalg.norm(total))

    return method.iterate(np.linalg.norm(news, axis=1).tolist(), hear)


def _rounded(values: Array, bits: int) -> Array:
    most = float(np.abs(values).max())
    unit = most / (2 ** (bits - 1) - 1) if most else 1.0
    rounded: Array = np.rint(values / unit) * unit
    return rounded
