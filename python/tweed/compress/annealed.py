"""Strong compression first, milder later: early steps are coarse anyway, late ones need detail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tweed.compress.base import Compressor, Spec, Turn
from tweed.errors import StrategyError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from tweed.compress.packet import Packet


@dataclass(slots=True)
class Stages:
    """State of `Relaxing`: that of each stage."""

    states: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Relaxing:
    """Goes from one compressor to the next every so many turns, and stays with the last.

    Behind a hub a worker's turns are its own contributions; of a model on its way to workers, its versions.

    Args:
      stages: compressors, the strongest first.
      every: turns of each.

    Raises:
      UsageError: there is no stage, or no turn of each.
      StrategyError: packets of a stage say nothing without those of other ranks.
    Cost: that of the stage; states of all.
    Source: dynamic decay of sparsity and bits in TEASQ-Fed, arXiv 2312.15186, 2023.

    Example:
      >>> Relaxing((TopK(0.01), TopK(0.1)), every=50).stage(50)
      1
    """

    stages: tuple[Compressor[Any], ...]
    every: int

    sums = False

    def __post_init__(self) -> None:
        if not self.stages or self.every < 1:
            raise UsageError(f"{self!r}: give one stage or more, and one turn of each or more")
        for stage in self.stages:
            if stage.sums:  # as the factors of rounds do, too
                raise StrategyError(
                    f"Relaxing does not go with {stage!r}: its packets do not say how they were made. Take "
                    "codecs whose packets say it, such as TopK, Quantise or Chain"
                )

    @property
    def unbiased(self) -> bool:
        """Whether all stages are unbiased."""
        return all(stage.unbiased for stage in self.stages)

    @property
    def reply_codec(self) -> Relaxing | None:
        """The stages' own, if all have one."""
        replies = [stage.reply_codec for stage in self.stages]
        found = tuple(reply for reply in replies if reply is not None)
        return Relaxing(found, self.every) if len(found) == len(replies) else None

    def stage(self, turn: int) -> int:
        """The number of the stage that a turn uses; both count from 0."""
        return min(turn // self.every, len(self.stages) - 1)

    def start(self, spec: Spec) -> Stages:
        """The states of all stages before the first turn."""
        return Stages(tuple(stage.start(spec) for stage in self.stages))

    def encode(
        self, value: Tensor, state: Stages, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, Stages]:
        now = self.stage(turn.step)
        packet, kept = self.stages[now].encode(value, state.states[now], turn, error)
        return packet, Stages((*state.states[:now], kept, *state.states[now + 1 :]))

    def error_bound(self, spec: Spec) -> float:
        """The error bound of the worst stage."""
        return max(stage.error_bound(spec) for stage in self.stages)

    def packet_bytes(self, spec: Spec) -> float:
        """The bytes of the last stage, which goes on for ever."""
        return self.stages[-1].packet_bytes(spec)
