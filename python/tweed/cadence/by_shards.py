"""Talk after each shard: several workers hold the same shards, and what comes first counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.cadence.base import Cadence, Decision, Event
from tweed.cadence.every_step import EveryStep, EveryStepState
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class ByShards(Cadence[EveryStepState]):
    """A step's samples are cut into shards, each of them held by several workers, which send what they have
    after each. The server goes on as soon as what came gives the mean over shards.

    Workers take their shards from `run.shards()`. There are as many as workers, and worker i has shard i,
    i + 1 and so on, in that order. Models are equal on all ranks, and with `share=1` what is trained is what
    plain synchronous training trains: the mean over all shards.

    Args:
      code: what a message is, a name of `tweed.data.coding.CODES`: "uncoded" is each shard's gradient alone;
        "gradient_code" a combination of all of a worker's, sent once. "auto": one of these two, and how many
        shards a worker has, by the measured times of shards and messages.
      load: shards per worker, from 1 to all; with "auto" at most.
      share: of all shards that are waited for; their mean stands for that of all. Below 1 shards have other
        numbers in each step, so that no sample is left out more often than others: each worker needs all
        samples.
      most_behind: steps that the server may be ahead of the slowest worker, which goes through all of them
        without computing; then it waits.
      patience: before a shard that is needed only if others are slow, a worker waits for word that the server
        has enough, at first for so large a share of the time that its last shard took; twice as long after
        such a shard was in vain, half as long after one was not (from 1/8 to 1; 0 stays 0). Where nobody is
        slow, it else would always be in the middle of one that nobody needs.
      seed: of numbers of shards.

    Raises: UsageError for settings that cannot be.
    Cost: per step a worker's messages, each as large as the gradient (coded ones twice that), and the mean
      back; `load` gradients in each worker's memory, all messages of a step in the server's, and up to
      `most_behind` means.
    Source: Ozfatura, Ulukus, Gunduz, "Straggler-aware distributed learning: communication-computation latency
      trade-off", 2020.

    Example:
      >>> ByShards("uncoded", load=3).load
      3
    """

    code: str = "uncoded"
    load: int = 2
    share: float = 1.0
    most_behind: int = 32
    patience: float = 0.25
    seed: int = 0

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient"})
    reason: ClassVar[str] = "what adds up over shards is their gradients, at one model"
    redundant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.load < 1 or self.most_behind < 1 or not self.patience >= 0:
            raise UsageError(f"{self!r}: load and most_behind are to be at least 1, patience 0 or more")
        if self.code == "auto" and self.share != 1:
            raise UsageError(f"{self!r}: codes are chosen among exact ones; give share=1, or a code")
        from tweed.data.coding import work_of  # loads numpy

        work_of("uncoded" if self.code == "auto" else self.code, self.load, self.load, self.share)

    @property
    def coded(self) -> bool:
        return self.code != "uncoded"

    def start(self) -> EveryStepState:
        """The state before the first step."""
        return _EVERY_STEP.start()

    def handle(self, event: Event, state: EveryStepState, now: float) -> EveryStepState:
        """As `EveryStep`: within a step it is the server that decides."""
        return _EVERY_STEP.handle(event, state, now)

    def poll(self, state: EveryStepState, now: float) -> tuple[Decision, EveryStepState]:
        return _EVERY_STEP.poll(state, now)


_EVERY_STEP = EveryStep()
