"""Strategies by which workers reach a hub when they like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tweed.aggregate import All, Cache, DelayAdaptive, Mean, Weighted, ZenoPS
from tweed.cadence import (
    LocalSteps,
)
from tweed.compress import (
    Chain,
    ErrorFeedback,
    LocalResidual,
    Quantise,
    RandomTensors,
    TopK,
)
from tweed.order import BoundedDelay
from tweed.strategy import Strategy

if TYPE_CHECKING:
    pass


def teasq(
    hub: int = 0,
    every: int = 30,
    tasks: int = 10,
    density: float = 0.1,
    bits: int = 8,
    proximal: float = 0.01,
) -> Strategy:
    """Workers ask a hub for tasks, take steps alone, and send the largest values of their movement in few
    bits each; models come in 8 bits per value. Late contributions count less.

    Args:
      hub: the rank that holds the model; it has no data, and calls `run.serve()`.
      every: steps of a task.
      tasks: at most so many workers compute or send at once; as many contributions make an update.
      density, bits: of what a worker sends; the rest is sent later.
      proximal: how strongly a worker's steps are pulled to the model that it was given.

    When: members come and go, compute at their own pace, and have slow uplinks.
    Cost: some `density * (bits + 5) / 32` of a model up and a quarter of one down, per task.
    Source: TEASQ-Fed, arXiv 2312.15186, 2023, which sends models in the place of movements; see
      `tweed.systems.teasq`.
    """
    from tweed.collective.hub import Hub

    few = Chain(TopK(density), Quantise(bits, nearest=True))
    place = Hub(hub, Cache(tasks), tasks, model=Quantise(8))
    cadence = LocalSteps(every, proximal=proximal)
    return Strategy("difference", cadence, ErrorFeedback(few), None, place, aggregate=Weighted())


def zeno_ps(
    hub: int = 0,
    every: int = 8,
    lr: float = 0.1,
    validators: int = 1,
    skip: float = 0.2,
    skip_all: float = 0.0,
) -> Strategy:
    """Workers take steps alone and skip layers at random, which move their own model for a round; a hub
    judges each layer that comes by its own steps on samples that it trusts.

    Args:
      hub: the rank that holds the model; it calls `run.serve(trusted=...)`.
      every: steps between exchanges, in step with all.
      lr: of workers' optimizers, and of the hub's own steps.
      validators: how many take such steps, each on samples of its own.
      skip, skip_all: probabilities with which a layer, or all of a worker's, is not sent.

    When: some members may be hostile, and the hub has samples that it trusts.
    Cost: `(1 - skip) * (1 - skip_all)` of a model up and one down per worker and exchange; at the hub `every`
      steps for each validator.
    Source: ZenoPS, Algorithms 15(7):233, 2022; see `tweed.systems.zeno_ps`.
    """
    from tweed.collective.hub import Hub

    rule = ZenoPS(every, lr, validators)
    memory = LocalResidual(RandomTensors(skip, skip_all))
    return Strategy("difference", LocalSteps(every), memory, None, Hub(hub, All()), aggregate=rule)


def mlfabric(
    hub: int = 0,
    most: int = 64,
    at_once: int = 4,
    patience: int = 10,
    aggregators: int = 0,
    bits: int | None = None,
) -> Strategy:
    """Workers hand gradients to a hub when they have them, and go on from the newest model. The hub says
    whose moves first; what can no longer be in time is dropped before it moves, and late ones count less.

    Args:
      hub: the rank that holds the model; it has no data, and calls `run.serve()`.
      most: no gradient is applied more than so many updates after the model that it was taken at; about twice
        as many as there are workers. In full it counts up to half of that.
      at_once: so many gradients move to the hub together.
      patience: after so many drops in a row, a worker's next gradient is waited for.
      aggregators: so many members may add up what others send; then all count in full.
      bits: of each value that is sent, both ways; None: as they are.

    When: workers of uneven speed behind one hub, whose link is what is short.
    Cost: a gradient up and a model down per step of a worker.
    Source: MLfabric, arXiv 1907.00434, 2019; see `tweed.systems.mlfabric`.
    """
    from tweed.collective.hub import Hub

    few = None if bits is None else Quantise(bits)
    place = Hub(hub, patience=patience, aggregators=aggregators, model=few)
    weights = Mean() if aggregators else DelayAdaptive(samples=False, most=max(1, most // 2))
    return Strategy(compress=few, order=BoundedDelay(most, at_once), collective=place, aggregate=weights)
