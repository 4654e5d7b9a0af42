"""Strategies by which ranks of a group exchange something in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tweed.cadence import (
    Deferred,
    EventTriggered,
    EveryStep,
    LocalSteps,
    Moves,
    Ordered,
    ServerPolicy,
)
from tweed.compress import (
    Chain,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    LazyAggregation,
    LowRank,
    Nothing,
    Quantise,
    RandomBlocks,
    Sign,
    StepAhead,
    Threshold,
    TopK,
)
from tweed.compress.half import HalfType
from tweed.order import ByLayer, Credit, Prophet
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


def urgent() -> Strategy:
    """As `every_step`, bit for bit; a parameter is stepped when the next forward pass reads it, and waits for
    its own gradient alone.

    When: exchange and computing take about as long, and no value may differ; a fifth was saved so.
    Cost: as `every_step`; what is not there when the backward pass ends crosses during the forward pass.
    Source: see `tweed.cadence.Deferred`.
    """
    return Strategy(exchange="gradient", cadence=Deferred())


def p3(piece_bytes: int = 200_000) -> Strategy:
    """As `urgent`, in pieces of 50,000 values, one at a time: those that the next forward pass reads first go
    first.

    When: beside `urgent`, whose engine lets what is urgent overtake.
    Cost: as `every_step`, and a latency for each piece.
    Source: P3, Jayarajan et al., SysML 2019; see docs/gradient_order.md.
    """
    return Strategy(cadence=Deferred(), order=ByLayer(piece_bytes=piece_bytes))


def bytescheduler(
    window_bytes: int = 16_000_000, piece_bytes: int = 4_000_000, tuned: bool = True
) -> Strategy:
    """As `p3`, with a window of bytes under way; sizes of window and pieces are tuned while training goes on.

    Args:
      window_bytes, piece_bytes: where tuning begins, or what is kept.
      tuned: tries others every few steps.

    When: beside `urgent`, whose engine lets what is urgent overtake.
    Cost: as `every_step`, and steps at settings that are tried.
    Source: ByteScheduler, Peng et al., SOSP 2019; see docs/gradient_order.md.
    """
    return Strategy(cadence=Deferred(), order=Credit(window_bytes, piece_bytes, tuned))


def prophet(piece_bytes: int = 4_096_000) -> Strategy:
    """As `bytescheduler`, and no piece begins that would still be under way when the next burst of gradients
    comes, as rank 0's profile foresees.

    When: beside `bytescheduler`, where gradients come in bursts.
    Cost: as `every_step`; a link that waits for a burst stands still.
    Source: Prophet, Zhang et al., ICPP 2021; see docs/prophet.md.
    """
    return Strategy(cadence=Deferred(), order=Prophet(piece_bytes=piece_bytes))


def auto(every: int = 1, delay: int = 0) -> Strategy:
    """Exchanges in the form that is quickest on this link, of several with error feedback, or as it is.

    Args:
      every: steps between exchanges; 1 exchanges gradients.
      delay: steps that ranks take while their movements are under way; what is quickest is then what keeps
        them for the shortest time.

    When: how fast links are is not known; with every=8 it ended 1.1 points below DDP.
    Cost: see `compress.Auto`.
    """
    if every == 1 and delay == 0:
        return Strategy(compress="auto")
    return Strategy("difference", LocalSteps(every, delay=delay), "auto")


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


def _server(rank: int | None) -> Server | None:
    if rank is None:
        return None
    from tweed.collective.server import Server

    return Server(rank)


def _blocks(ratio: int) -> RandomBlocks:
    return RandomBlocks(ratio, block=16)  # a cache line: bytes come out even
