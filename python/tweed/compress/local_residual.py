"""What was not sent moves this rank's own model until the next exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Turn, Update
from tweed.compress.checks import check_contracts

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Ahead:
    """State of `LocalResidual`: `[numel]`, how far this rank's model is ahead of the one common to all."""

    error: Tensor


@dataclass(frozen=True, slots=True)
class LocalResidual(Memory[Ahead]):
    """This rank goes on from the newest model and what it did not send of its last movement, which nobody
    else sees and which is forgotten with the next exchange: no error is ever older than one round.

    A sum over ranks takes what is not sent for zero. A hub knows that it was not sent, and averages each
    value over those who sent it.

    Raises: StrategyError for a compressor whose random draws leave more than it was given.
    Cost: memory for one more copy of what is exchanged.
    Source: the error reset of ZenoPS, Algorithms 15(7):233, 2022.
    """

    compressor: Codec

    exchanges: ClassVar[frozenset[str]] = frozenset({"step", "difference"})
    reason: ClassVar[str] = "what is not sent moves this rank's model, and a gradient moves none"
    one_by_one: ClassVar[bool] = True
    skips_unsent: ClassVar[bool] = True
    one_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_contracts("LocalResidual", self.compressor)

    @property
    def parts(self) -> Mapping[str, Codec]:
        return {"main": self.compressor}

    def start(self, like: Tensor) -> Ahead:
        """All models are equal."""
        return Ahead(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Ahead, turn: Turn, silent: bool = False) -> ReduceRequests:
        """Movements begin ahead, and so contain what was left; that is forgotten here."""
        value.sub_(state.error)
        state.error.copy_(value) if silent else state.error.zero_()
        mean = yield ReduceRequest(self.compressor, value, state.error, silent=silent)
        return Update(mean, state.error)
