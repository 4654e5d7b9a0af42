"""Strategies by which ranks of a group take steps alone, and then exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tweed.cadence import (
    Intermittent,
    LocalSteps,
    Nesterov,
)
from tweed.compress import (
    Chain,
    Direct,
    ErrorFeedback,
    Levels,
    Quantise,
    RandomBlocks,
    Sign,
    TopK,
)
from tweed.strategy import Strategy

if TYPE_CHECKING:
    pass


def local_steps(every: int = 8) -> Strategy:
    """Each rank takes `every` steps alone, then all average their models.

    When: links are slow or far, and every rank has data of the same kind.
    Cost: one all-reduce of the model's size per `every` steps.
    Source: Stich, "Local SGD converges fast and communicates little", 2018.
    """
    return Strategy(exchange="model", cadence=LocalSteps(every))


def local_sign(every: int = 8) -> Strategy:
    """Each rank takes `every` steps alone, then sends the sign of each value of its movement, and how large
    values are in the mean. The average goes back likewise. The rest is sent later.

    When: uplinks of some 10 Mbit/s; the simplest with so few bytes.
    Cost: a 32nd of an all-reduce of the model's size per `every` steps.
    Source: Karimireddy et al., "Error feedback fixes SignSGD", 2019, of movements.
    """
    return Strategy("difference", LocalSteps(every), ErrorFeedback(Sign()))


def local_top_k(
    every: int = 8, density: float = 0.1, bits: int = 4, delay: int = 0, fragments: int = 1
) -> Strategy:
    """Each rank takes `every` steps alone, then sends the largest values of its movement in few bits each.

    Args:
      every: steps per round.
      density: share of values that is sent; the average goes back likewise. The rest is sent later.
      bits: per value; their places take some five more.
      delay: steps that ranks take while their movements are under way; 0: they wait.
      fragments: parts of the model that are sent one after the other, so that a link is busy more evenly.

    When: uplinks of some 10 Mbit/s; the first to try there.
    Cost: some `density * (bits + 5) / 32` of an all-reduce of the model's size per `every` steps.
    Source: SparseLoCo, arXiv 2508.15706, 2025, without its outer optimizer.
    """
    few = Chain(TopK(density), Quantise(bits, nearest=True), bidirectional=True)
    return Strategy("difference", LocalSteps(every, delay=delay, fragments=fragments), ErrorFeedback(few))


def overlapped_top_k(
    every: int = 4, density: float = 0.05, bits: int = 4, delay: int = 1, fragments: int = 1
) -> Strategy:
    """As `local_top_k`, and ranks take a further step while their movements cross.

    Args:
      every, density, bits, delay, fragments: as in `local_top_k`.

    When: as `local_top_k`, where round trips are long too; its accuracy was measured on a CNN alone.
    Cost: as `local_top_k`, and memory for two more copies of the model.
    Source: SparseLoCo, arXiv 2508.15706, 2025, with the delay of Streaming DiLoCo, arXiv 2501.18512, 2025.
    """
    return local_top_k(every, density, bits, delay, fragments)


def qsparse_local(ratio: int = 32, every: int = 8) -> Strategy:
    """Local steps; every `every` of them, one number in `ratio` of how far models moved is averaged, and the
    rest fed back.

    When: local steps leave still too many bytes, and few values do not matter more than others.
    Cost: bytes of the model divided by `every * ratio` per step.
    Source: Basu et al., "Qsparse-local-SGD", 2019; the blocks are CSER's.
    """
    return Strategy("difference", LocalSteps(every), ErrorFeedback(RandomBlocks(ratio, block=16)))


def diloco(
    every: int = 50, lr: float = 0.7, momentum: float = 0.9, delay: int = 0, fragments: int = 1
) -> Strategy:
    """Each rank takes `every` steps alone; then the model moves by Nesterov's momentum over the mean
    movements. The inner optimizer is the one that is attached: AdamW in the paper, which takes some 500 steps
    per round.

    Args:
      every: steps per round.
      lr, momentum: of the outer optimiser.
      delay, fragments: as in `local_top_k`; with them it is Streaming DiLoCo, without its 4 bits.

    When: rounds of hundreds of steps with AdamW, over links between continents.
    Cost: one all-reduce of the model's size per `every` steps; memory for three more copies of the model.
    Source: DiLoCo, arXiv 2311.08105, 2023; Streaming DiLoCo, arXiv 2501.18512, 2025.
    """
    rounds = LocalSteps(every, Nesterov(lr, momentum), delay=delay, fragments=fragments)
    return Strategy("difference", rounds)


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
