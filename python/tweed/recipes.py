"""Strategies that have a name: each is one visible expression over parts.

A new one is a function, and a row in the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tweed.aggregate import All, Cache, DelayAdaptive, Mean, Weighted, ZenoPS
from tweed.cadence import (
    EventTriggered,
    EveryStep,
    Intermittent,
    LocalSteps,
    Moves,
    Nesterov,
    Ordered,
    ServerPolicy,
)
from tweed.compress import (
    Chain,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    LazyAggregation,
    Levels,
    LocalResidual,
    LowRank,
    Nothing,
    Quantise,
    RandomBlocks,
    RandomTensors,
    Sign,
    StepAhead,
    Threshold,
    TopK,
)
from tweed.compress.half import HalfType
from tweed.order import BoundedDelay
from tweed.strategy import Strategy
from tweed.transport import Ltp
from tweed.transport.ltp import DivideBy

if TYPE_CHECKING:
    from tweed.collective.server import Server


def every_step() -> Strategy:
    """Averages gradients every step: the numbers of torch's DistributedDataParallel.

    When: ranks share a host or a fast network; and as what others are compared with.
    Cost: one all-reduce of the model's size per step, most of it during the backward pass.
    """
    return Strategy(exchange="gradient", cadence=EveryStep())


def local_steps(every: int = 8) -> Strategy:
    """Each rank takes `every` steps alone, then all average their models.

    When: links are slow or far, and every rank has data of the same kind.
    Cost: one all-reduce of the model's size per `every` steps.
    Source: Stich, "Local SGD converges fast and communicates little", 2018.
    """
    return Strategy(exchange="model", cadence=LocalSteps(every))


def auto(every: int = 1) -> Strategy:
    """Exchanges in the form that is quickest on this link, of several with error feedback, or as it is.

    Args:
      every: steps between exchanges; 1 exchanges gradients.

    When: how fast links are is not known; with every=8 it ended 1.1 points below DDP.
    Cost: see `compress.Auto`.
    """
    if every == 1:
        return Strategy(compress="auto")
    return Strategy("difference", LocalSteps(every), "auto")


def local_sign(every: int = 8) -> Strategy:
    """Each rank takes `every` steps alone, then sends the sign of each value of its movement, and how large
    values are in the mean. The average goes back likewise. The rest is sent later.

    When: uplinks of some 10 Mbit/s; the simplest with so few bytes.
    Cost: a 32nd of an all-reduce of the model's size per `every` steps.
    Source: Karimireddy et al., "Error feedback fixes SignSGD", 2019, of movements.
    """
    return Strategy("difference", LocalSteps(every), ErrorFeedback(Sign()))


def local_top_k(every: int = 8, density: float = 0.1, bits: int = 4) -> Strategy:
    """Each rank takes `every` steps alone, then sends the largest values of its movement in few bits each.

    Args:
      every: steps per round.
      density: share of values that is sent; the average goes back likewise. The rest is sent later.
      bits: per value; their places take some five more.

    When: uplinks of some 10 Mbit/s; the first to try there.
    Cost: some `density * (bits + 5) / 32` of an all-reduce of the model's size per `every` steps.
    Source: SparseLoCo, arXiv 2508.15706, 2025, without its outer optimizer.
    """
    few = Chain(TopK(density), Quantise(bits, nearest=True), bidirectional=True)
    return Strategy("difference", LocalSteps(every), ErrorFeedback(few))


def ltp(
    server: int | None = None,
    fraction: float = 0.98,
    slack_s: float = 0.03,
    divide_by: DivideBy = "all",
    return_lost: bool = True,
    lossless: bool = False,
) -> Strategy:
    """Averages gradients every step and does not wait for the last packet; what is lost comes a step later.

    Args:
      server: the rank that sums, and has no data; None: every rank sums its part of the gradient.
      fraction, slack_s, divide_by, return_lost, lossless: as in `tweed.transport.Ltp`.

    When: links lose packets, and the last ones hold up each step.
    Cost: one all-reduce of the model's size per step; with a server `P - 1` models into its link, and out.
    Source: LTP, arXiv 2305.04279, 2023; see `tweed.systems.ltp`.
    """
    transport = Ltp(fraction, slack_s, divide_by, return_lost, lossless)
    return Strategy(collective=_server(server), transport=transport)


def _server(rank: int | None) -> Server | None:
    if rank is None:
        return None
    from tweed.collective.server import Server

    return Server(rank)


def cser(ratio: int = 512, reset_ratio: int = 16, every: int = 32) -> Strategy:
    """Each rank applies all of its own step, but takes the average in a few blocks. Replicas diverge; now and
    then a few blocks of the difference are averaged.

    Args:
      ratio: one number in so many is averaged at each step.
      reset_ratio: one value in so many of the difference is averaged every `every` steps.

    When: SGD with momentum, and few bytes at each step are wanted rather than rounds.
    Cost: bytes of the model times `1 / ratio + 1 / (every * reset_ratio)` per step.
    Source: CSER, arXiv 2007.13221, 2020; see `tweed.systems.cser`.
    """
    memory = ErrorReset(_blocks(ratio), _blocks(reset_ratio), every)
    return Strategy("step", compress=memory)


def csea(ratio: int = 256) -> Strategy:
    """As `cser`, but no steps are averaged, and one value in `ratio` of the difference at each step.

    When: beside `cser`, where no step may be averaged at once.
    Cost: bytes of the model divided by `ratio` per step.
    Source: CSER, arXiv 2007.13221, 2020, where it is called error assimilation.
    """
    return Strategy("step", compress=ErrorReset(Nothing(), _blocks(ratio)))


def cser_pl(reset_ratio: int = 16, every: int = 16) -> Strategy:
    """Local steps; every `every` of them, one number in `reset_ratio` of the models is averaged.

    When: beside `cser`, where ranks shall be silent between rounds.
    Cost: bytes of the model divided by `every * reset_ratio` per step.
    Source: CSER, arXiv 2007.13221, 2020, where it is called partial local SGD.
    """
    return Strategy("difference", LocalSteps(every), ErrorReset(Nothing(), _blocks(reset_ratio)))


def ef_sgd(ratio: int = 256) -> Strategy:
    """Averages one number in `ratio` of each rank's step; the rest is fed back.

    When: beside `cser`, where replicas must stay equal.
    Cost: bytes of the model divided by `ratio` per step.
    Source: Karimireddy et al., "Error feedback fixes SignSGD", 2019; the blocks are CSER's.
    """
    return Strategy("step", compress=ErrorFeedback(_blocks(ratio)))


def qsparse_local(ratio: int = 32, every: int = 8) -> Strategy:
    """Local steps; every `every` of them, one number in `ratio` of how far models moved is averaged, and the
    rest fed back.

    When: local steps leave still too many bytes, and few values do not matter more than others.
    Cost: bytes of the model divided by `every * ratio` per step.
    Source: Basu et al., "Qsparse-local-SGD", 2019; the blocks are CSER's.
    """
    return Strategy("difference", LocalSteps(every), ErrorFeedback(_blocks(ratio)))


def half(dtype: HalfType = "bfloat16") -> Strategy:
    """Averages gradients every step, in 16 bits per number.

    When: the network takes up to half of a step, and no accuracy may be risked.
    Cost: half the bytes of `every_step`.
    """
    return Strategy(compress=Half(dtype))


def quantised(bits: int = 8, block: int = 256) -> Strategy:
    """Averages gradients every step, in `bits` bits per number both ways; what rounding leaves is fed back.

    When: the network takes most of a step: a quarter of the bytes, all values sent.
    Cost: `bits / 8 + 4 / block` bytes per number, in two all-to-alls.
    Source: see `tweed.compress.Quantise`.
    """
    return Strategy(compress=ErrorFeedback(Quantise(bits, block, nearest=True)))


def sign(block: int = 4096) -> Strategy:
    """Averages gradients every step, in one bit per number both ways; what that leaves is fed back.

    When: a 32nd of the bytes at each step is wanted, and no rounds.
    Cost: `1 / 8 + 4 / block` bytes per number, in two all-to-alls.
    Source: see `tweed.compress.Sign`.
    """
    return Strategy(compress=ErrorFeedback(Sign(block)))


def top_k(density: float = 0.01) -> Strategy:
    """Averages the largest numbers of each rank's gradient every step, exactly; the rest is fed back.

    When: few values matter, and those that do must go exactly.
    Cost: 8 bytes per value sent, and as many per value that any rank has sent, in two all-to-alls.
    Source: see `tweed.compress.TopK`.
    """
    return Strategy(compress=ErrorFeedback(TopK(density)))


def sparse(density: float = 0.01, bits: int = 8) -> Strategy:
    """As `top_k`, with `bits` bits per value, its place coded, and the same on the way back.

    When: links below some 100 Mbit/s, and an exchange at each step.
    Cost: `bits / 8 + (log2(1 / density) + 3) / 8` bytes per value sent, about, in two all-to-alls.
    Source: see `tweed.compress.Chain`.
    """
    chain = Chain(TopK(density), Quantise(bits, nearest=True), bidirectional=True)
    return Strategy(compress=ErrorFeedback(chain))


def factors() -> Strategy:
    """As `every_step`; the gradient of a linear layer's weight goes as the rows that it is the product of,
    where that is less. Equal to rounding.

    When: large linear layers, small batches, and no value may be left out.
    Cost: for `P` ranks with batches of `B` rows, `4 P B (inputs + outputs)` bytes for a weight at each rank
      where `every_step` has `8 inputs outputs`: the less of both. Layers that share a weight, or use one
      several times, count their rows together.
    Source: see `exchange.factors`.
    """
    return Strategy("factors")


def powersgd(rank: int = 2) -> Strategy:
    """Averages each matrix of the gradient as a product of `rank` columns and rows; the rest is fed back.

    When: most of the model is large matrices, as in transformers.
    Cost: `4 rank (rows + columns)` bytes per matrix, in two all-reduces.
    Source: see `tweed.compress.LowRank`.
    """
    return Strategy(compress=ErrorFeedback(LowRank(rank)))


def saef(density: float = 0.05, fraction: float = 1.0, average_every: int = 20) -> Strategy:
    """Averages the largest numbers of each rank's step; gradients are taken where the rest would lead.

    Args:
      density: share of values that is sent.
      fraction: of the rest that is stepped ahead; below 1 it is SA-PEF, at 0 error feedback.
      average_every: steps from one averaging of all rests to the next; 0: never.

    When: sparse steps with stale feedback cost accuracy.
    Cost: 8 bytes per value sent; the model's size divided by `average_every` per step.
    Source: SAEF, arXiv 2008.05823, 2021; SA-PEF, 2026; see `tweed.systems.saef`.
    """
    return Strategy("step", compress=StepAhead(TopK(density), fraction, average_every))


def dct(sparsity: float = 0.99, life_span: int = 0, bits: int = 8) -> Strategy:
    """Averages the largest gradients, told by a threshold that a controller holds; in few bits each, their
    places coded. The rest is fed back.

    Args:
      sparsity: share of values that is not sent.
      life_span: as published: steps from one search for each tensor's threshold to the next, and values as
        they are; 0: a controller holds one threshold for all tensors of a buffer.
      bits: per value, without a life span.

    When: as `sparse`, where a selection of the largest values takes too long.
    Cost: some `bits / 8 + 1.2` bytes per value sent, so that at 99 % some 170 times fewer bytes are sent; one
      pass over the gradient. With a life span 8 bytes per value, and a selection every `life_span` steps.
    Source: DCT, arXiv 2010.08899, 2021; see `tweed.systems.dct`.
    """
    density = round(1 - sparsity, 9)
    if life_span:
        return Strategy(compress=ErrorFeedback(Threshold(density, life_span)))
    few = Chain(Threshold(density, per_tensor=False), Quantise(bits, nearest=True))
    return Strategy(compress=ErrorFeedback(few))


def diloco(every: int = 50, lr: float = 0.7, momentum: float = 0.9) -> Strategy:
    """Each rank takes `every` steps alone; then the model moves by Nesterov's momentum over the mean
    movements. The inner optimizer is the one that is attached: AdamW in the paper, which takes some 500 steps
    per round.

    Args:
      every: steps per round.
      lr, momentum: of the outer optimiser.

    When: rounds of hundreds of steps with AdamW, over links between continents.
    Cost: one all-reduce of the model's size per `every` steps; memory for three more copies of the model.
    Source: DiLoCo, arXiv 2311.08105, 2023.
    """
    return Strategy("difference", LocalSteps(every, outer=Nesterov(lr, momentum)))


def lag(lr: float = 0.1, ranks: int = 4, share: float = 0.1, window: int = 10) -> Strategy:
    """A rank sends its gradient only if that has changed enough since it last did; otherwise the old one
    counts.

    Args:
      lr: the optimizer's learning rate; a plain gradient step is assumed.
      ranks: how many take part.
      share, window: how much change is too little, see `tweed.cadence.Moves`.

    When: gradients change slowly: full batches, convex problems.
    Cost: per step, what ranks send whose gradients have changed; and the answer to all.
    Source: LAG, Chen et al., 2018, rule LAG-WK.
    """
    cadence = EventTriggered(Moves(lr / ranks, share, window))
    return Strategy("gradient", cadence, LazyAggregation(Identity(by_ranges=True)))


def ofedqit(probability: float = 0.1, levels: int = 1, block: int = 256) -> Strategy:
    """Each rank sends its gradient with some probability only, in a few bits per number. Rounds of several
    batches without a step are `run.no_sync()`.

    Args:
      probability: with which a rank sends; what it sends is divided by it.
      levels, block: of the quantiser, see `tweed.compress.Levels`.

    When: members learn online from streams, and may be silent most of the time.
    Cost: `probability * (1 + ceil(log2(levels + 1)) + 32 / block)` bits per number, rank and step; and the
      answer.
    Source: OFedQIT, arXiv 2205.06491, 2022; see `tweed.systems.ofedqit`.
    """
    memory = Direct(Levels(levels, block, bidirectional=False), weight=1 / probability)
    return Strategy("gradient", Intermittent(probability=probability), memory)


def ordered_gradient(server: int = 0, share: float = 0.9, window_s: float = 0.05) -> Strategy:
    """Ranks send gradients to a server in the order of how much they have changed, until the rest is short.

    Args:
      server: the rank that hears all; it has no data.
      share: how long what is not sent may be, as a share of the sum's length.
      window_s: seconds within which all would have sent.

    When: many members, of which few have something new to send.
    Cost: per step, the gradients that are sent, one model to each rank, and up to `window_s` of waiting.
    Source: Chen, Blum, Sadler, SPAWC 2020; see `tweed.systems.ordered_gradient`.
    """
    return Strategy("gradient", Ordered(ServerPolicy(share=share), window_s), collective=_server(server))


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


def _blocks(ratio: int) -> RandomBlocks:
    return RandomBlocks(ratio, block=16)  # a cache line: bytes come out even


#: All of them, in the order in which they are listed.
RECIPES: tuple[Callable[..., Strategy], ...] = (
    every_step,
    local_steps,
    ltp,
    auto,
    local_sign,
    local_top_k,
    cser,
    csea,
    cser_pl,
    ef_sgd,
    half,
    quantised,
    sign,
    top_k,
    sparse,
    factors,
    powersgd,
    qsparse_local,
    saef,
    dct,
    diloco,
    lag,
    ofedqit,
    ordered_gradient,
    teasq,
    mlfabric,
    zeno_ps,
)
