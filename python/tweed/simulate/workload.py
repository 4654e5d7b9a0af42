"""What a training step asks of the network: layers whose gradients come one after the other.

from tweed.simulate import models, workload
exchange = workload.timer(schedule, topology)               # seconds for a number of bytes, simulated
workload.step(models.resnet50(), exchange, overlap=True)    # what a step takes, and what of it is waiting
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, Unpack

from tweed import _core
from tweed.collective.runs import Conditions, run
from tweed.errors import UsageError

AllReduceSeconds = Callable[[int], float]
"""Seconds that an all-reduce of so many bytes takes."""


class Layer(NamedTuple):
    """What one exchange sends: `numbytes` of gradient, there `backward_s` after the layer behind it."""

    name: str
    numbytes: int
    backward_s: float


@dataclass(frozen=True, slots=True)
class Workload:
    """One training step of one rank, without the network.

    Attributes:
      name: of the model.
      layers: in the order of the forward pass; the backward pass goes through them from the last on.
      forward_s: seconds of the forward pass, and of all else that is no backward pass.
      source: where sizes and times come from.
    """

    name: str
    layers: tuple[Layer, ...]
    forward_s: float
    source: str

    @property
    def numbytes(self) -> int:
        """The bytes of all gradients."""
        return sum(layer.numbytes for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Seconds of a step with nobody to talk to."""
        return self.forward_s + sum(layer.backward_s for layer in self.layers)

    def bucketed(self, numbytes: int) -> Workload:
        """Layers put together from the last on, until a bucket has at least `numbytes`, as DDP does."""
        buckets: list[Layer] = []
        for layer in reversed(self.layers):
            if buckets and buckets[-1].numbytes < numbytes:
                last = buckets[-1]
                both = (last.numbytes + layer.numbytes, last.backward_s + layer.backward_s)
                buckets[-1] = Layer(f"{layer.name} to {last.name.rpartition(' to ')[2]}", *both)
            else:
                buckets.append(layer)
        return replace(self, layers=tuple(reversed(buckets)))


class Step(NamedTuple):
    """What a step takes, in seconds: all of it, arithmetic, exchanges, and the part that waits for these."""

    seconds: float
    compute_s: float
    exchange_s: float
    waiting_s: float


def step(workload: Workload, exchange: AllReduceSeconds, *, overlap: bool) -> Step:
    """One training step in which every rank takes equally long for its arithmetic.

    The rule: each layer has an all-reduce of its own. They run one after the other in the order in which
    gradients are there, from the last layer on. With `overlap` each starts as soon as its gradient is there
    and the one before has ended; without it the first starts when the backward pass has ended. The step ends
    with the last of them. Arithmetic goes on at full speed meanwhile.
    """
    now, busy_until, exchange_s = workload.forward_s, 0.0, 0.0
    for layer in reversed(workload.layers):
        now += layer.backward_s
        took = exchange(layer.numbytes) if layer.numbytes else 0.0
        exchange_s += took
        busy_until = max(now, busy_until) + took
    compute_s = workload.compute_s
    seconds = max(compute_s, busy_until) if overlap else compute_s + exchange_s
    return Step(seconds, compute_s, exchange_s, seconds - compute_s)


def timer(
    schedule: _core.Schedule, topology: _core.Topology, **conditions: Unpack[Conditions]
) -> AllReduceSeconds:
    """What `schedule` takes for a number of bytes, simulated; each size once.

    Args:
      conditions: as for `tweed.simulate.run`.

    Raises: UsageError, when called, if some rank has no result.
    """

    @cache
    def seconds(numbytes: int) -> float:
        took = run(schedule, numbytes, topology, **conditions).seconds
        if took is None:
            raise UsageError("not every rank has a result: leave `deaths` out of the conditions")
        return took

    return seconds
