"""Gradient descent in which ranks are silent now and then: all send, LAG, ordered transmission.

`descend` runs under a virtual clock, on the sums of functions of `tweed.data.problems`; `train` is the ranks'
part of the same on live ranks, with full gradients of a network on the digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

import tweed
from tweed.cadence import EventTriggered, Joined, Moves, Ordered, Ready, ServerPolicy, StepDone
from tweed.data.problems import Array, Problem
from tweed.simulate.ordered import Air, Cell
from tweed.strategy import Strategy
from tweed.testbed import Network, run_ranks
from tweed.train.shard import Shard, optimizer_step


class Method(Protocol):
    """A rule for which ranks send."""

    def iterate(self, norms: list[float], receive: Callable[[int], float]) -> float:
        """Calls `receive` for each rank that sends, in order. Returns the seconds that it took."""
        ...

    def moved(self, norm: float) -> None:
        """Says how far the model went."""
        ...


@dataclass(slots=True)
class All:
    """All send, one after the other over the one channel: gradient descent."""

    air: Air

    def iterate(self, norms: list[float], receive: Callable[[int], float]) -> float:
        for rank in range(len(norms)):
            receive(rank)
        return len(norms) * self.air.send_s + 2 * self.air.latency_s

    def moved(self, norm: float) -> None:
        pass


class Lag:
    """LAG's rule for workers; that a rank is silent is known in no time."""

    def __init__(self, rate: float, ranks: int, air: Air, share: float = 0.1) -> None:
        self._cadence = EventTriggered(Moves(rate, share))
        self._state = self._cadence.handle(Joined(0, ranks), self._cadence.start(), 0.0)
        self._air = air

    def iterate(self, norms: list[float], receive: Callable[[int], float]) -> float:
        sending = [rank for rank, norm in enumerate(norms) if not self._decides(norm)]
        for rank in sending:
            receive(rank)
        return len(sending) * self._air.send_s + 2 * self._air.latency_s

    def _decides(self, norm: float) -> bool:
        """Whether a rank with news of length `norm` is silent; `moved` is all that ranks have in common."""
        return self._cadence.poll(self._cadence.handle(Ready(norm), self._state, 0.0), 0.0)[0].silent

    def moved(self, norm: float) -> None:
        self._state = self._cadence.handle(StepDone(norm), self._state, 0.0)


class InOrder:
    """Ordered transmission; counts what breaks a promise.

    Attributes:
      out_of_order: messages that were longer than one received before.
      over: iterations with more withheld than the server allows.
      beyond_lag: messages that LAG would not have sent from the same state; only for the test by history.
      collisions: messages that were destroyed by others.
    """

    def __init__(self, cadence: Ordered, ranks: int, air: Air) -> None:
        self.cell = Cell(cadence, ranks, air)
        self.out_of_order = self.over = self.beyond_lag = self.collisions = 0

    def iterate(self, norms: list[float], receive: Callable[[int], float]) -> float:
        policy = self.cell.cadence.policy
        lag = policy.allowed(self.cell.server) / len(norms) if policy.history is not None else 0.0
        done = self.cell.iterate(norms, receive)
        received = [norms[rank] for rank in done.sent]
        self.out_of_order += sum(later > 1.000001 * before for before, later in pairwise(received))
        self.over += sum(norms[rank] for rank in done.silent) > 1.000001 * done.allowed if done.silent else 0
        self.beyond_lag += sum(norm <= 0.999999 * lag for norm in received)
        self.collisions += done.collisions
        return done.seconds

    def moved(self, norm: float) -> None:
        self.cell.moved(norm)


#: By name, the test by which the server ends an iteration, for a rate.
POLICIES: dict[str, Callable[[float], ServerPolicy]] = {
    "history": lambda rate: ServerPolicy(history=Moves(rate)),
    "history, last heard": lambda rate: ServerPolicy(history=Moves(rate), silence=False),
    "share 0.9": lambda rate: ServerPolicy(share=0.9),
    "share 2": lambda rate: ServerPolicy(share=2.0),
}
#: A descent with a gap above this has diverged.
FAR = 1e12
#: A channel that takes no time.
IDEAL = Air()
#: A channel on which a message takes a millisecond.
SHARED = Air(send_s=1e-3, latency_s=1e-4)
_LATE_S = tuple(rank % 5 * 0.0025 for rank in range(20))
#: Channels and their disturbances, by name; timers of up to 20 ranks.
AIRS = {
    "one channel": SHARED,
    "timers up to 10 ms late": replace(SHARED, skew_s=_LATE_S),
    "slots of 0.1 ms, collisions": replace(SHARED, slot_s=1e-4),
    "slots and late timers": replace(SHARED, slot_s=1e-4, skew_s=_LATE_S),
}


def methods(problem: Problem, air: Air = IDEAL, window_s: float = 0.05) -> Iterator[tuple[str, Method]]:
    """Every way to send, with its name."""
    yield "GD", All(air)
    yield "LAG-WK", Lag(problem.rate, problem.ranks, air)
    for name, make in POLICIES.items():
        yield name, in_order(problem, make(problem.rate), air, window_s)


def in_order(problem: Problem, policy: ServerPolicy, air: Air, window_s: float = 0.05) -> InOrder:
    """Ordered transmission over a channel, with time for a message that is on its way."""
    late_s = 2 * air.latency_s + air.send_s
    return InOrder(Ordered(replace(policy, late_s=late_s), window_s), problem.ranks, air)


def disturbed(
    windows_s: Sequence[float],
) -> Iterator[tuple[str, float, str, Callable[[Problem], Method]]]:
    """Channel, window, name, and the method of a problem: those that know no windows, then `AIRS` with
    ordered transmission."""
    yield "one channel", 0.0, "GD", lambda problem: All(SHARED)
    yield "one channel", 0.0, "LAG-WK", lambda problem: Lag(problem.rate, problem.ranks, SHARED)
    for where, air in AIRS.items():
        for window_s in windows_s:
            yield where, window_s, "share 2", partial(_shared, air, window_s)


def _shared(air: Air, window_s: float, problem: Problem) -> Method:
    return in_order(problem, POLICIES["share 2"](0.0), air, window_s)


def broken(method: Method) -> dict[str, int]:
    """How often a method broke each of its promises."""
    names = ("out_of_order", "over", "beyond_lag", "collisions")
    return {name: getattr(method, name) for name in names} if isinstance(method, InOrder) else {}


@dataclass(slots=True)
class Descent:
    """How far a descent has come.

    Attributes:
      x: where it stands.
      uploads, iterations: so far.
      seconds: of virtual time, waiting included.
    """

    x: Array
    uploads: int = 0
    iterations: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """How a descent goes.

    Args:
      momentum: of Polyak's heavy ball; with silent ranks that is CHB.
      bits: of each value sent, rounded to nearest by the largest of them; None: sent exactly.
      compute_s: seconds that ranks take for a gradient, all at the same time.
    """

    momentum: float = 0.0
    bits: int | None = None
    compute_s: float = 0.0


_PLAIN = Options()


def descend(problem: Problem, method: Method, goal: float, limit: int, options: Options = _PLAIN) -> Descent:
    """Goes down until `problem.gap` is at most `goal`, or above `FAR`, or `limit` iterations are over."""
    descent, held = Descent(problem.start.copy()), np.zeros((problem.ranks, problem.numel))
    before = descent.x
    while descent.iterations < limit:
        descent.seconds += options.compute_s + _iterate(problem, method, descent, held, options.bits)
        step = -problem.rate * held.sum(axis=0)
        if options.momentum:
            step += options.momentum * (descent.x - before)
        before, descent.x = descent.x, descent.x + step
        method.moved(float(np.linalg.norm(step)))
        descent.iterations += 1
        if goal > 0 and not goal < problem.gap(descent.x) < FAR:
            break
    return descent


def counts(descent: Descent) -> dict[str, int]:
    """Messages and iterations, as notes have them."""
    return {"uploads": descent.uploads, "iterations": descent.iterations}


def _iterate(problem: Problem, method: Method, descent: Descent, held: Array, bits: int | None) -> float:
    gradients = problem.gradients(descent.x, descent.iterations)
    news = gradients - held
    total = held.sum(axis=0)

    def receive(rank: int) -> float:
        nonlocal total
        new = gradients[rank] if bits is None else held[rank] + _rounded(news[rank], bits)
        total = total + new - held[rank]
        held[rank] = new
        descent.uploads += 1
        return float(np.linalg.norm(total))

    return method.iterate(np.linalg.norm(news, axis=1).tolist(), receive)


def _rounded(values: Array, bits: int) -> Array:
    most = float(np.abs(values).max())
    unit = most / (2 ** (bits - 1) - 1) if most else 1.0
    rounded: Array = np.rint(values / unit) * unit
    return rounded


@dataclass(frozen=True, slots=True)
class Live:
    """What live ranks train: the task digits, with full gradients.

    Attributes:
      lr: of plain gradient descent.
      steps: to take.
      goal: loss on all samples at which the clock is read.
    """

    lr: float = 0.3
    steps: int = 80
    goal: float = 0.5


def run_live(strategy: Strategy, ranks: int, live: Live, network: Network | None) -> dict[str, Any]:
    """What rank 0 of `ranks` returns of `train`, over links of the machine or of a testbed."""
    found: list[dict[str, Any]] = run_ranks(
        train, ranks, strategy, live, backend="tweed", network=network, timeout=300
    )
    return found[0]


def train(rank: int, size: int, strategy: Strategy, live: Live) -> dict[str, Any]:
    """Trains. Returns seconds, messages with content, and seconds and steps at which the goal was reached."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    workers = size - (strategy.collective is not None)
    # Few classes each, so that gradients differ.
    shard = Shard("digits", 1, max(0, rank - (size - workers)), workers, "dirichlet:0.3")
    model = shard.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=live.lr)
    run = tweed.attach(model, optimizer, strategy)
    loss = None if run.serves else lambda: shard.loss(model, shard.samples)
    seen: dict[str, Any] = {"goal_s": None, "goal_steps": None, "messages": None}
    dist.barrier()
    began = time.monotonic()
    for step in range(live.steps):
        optimizer_step(optimizer, loss)
        if rank == 0 and seen["goal_s"] is None and step % 5 == 4:
            with torch.no_grad():
                reached = float(shard.loss(model, np.arange(len(shard.arrays.train)))) <= live.goal
            if reached:
                seen |= {"goal_s": time.monotonic() - began, "goal_steps": step + 1}
    seen |= {
        "seconds": time.monotonic() - began,
        "messages": getattr(getattr(run._exchange, "reducer", None), "sent", None),
    }
    dist.barrier()
    run.detach()
    return seen
