"""The codec that is quickest on this link, of several, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.autotuner import Autotuner
from tweed.compress.base import Codec, ReduceRequest, ReduceRequests, Spec, Turn, Update, check_contracts
from tweed.compress.half import Half
from tweed.compress.identity import Identity
from tweed.compress.quantise import Quantise
from tweed.compress.top_k import TopK

if TYPE_CHECKING:
    from torch import Tensor

#: From the most bytes to the fewest. All of them keep the accuracy of training in our experiments.
CANDIDATES: tuple[Codec, ...] = (
    Half(),
    Quantise(bits=8, nearest=True),
    Quantise(bits=4, nearest=True),
    TopK(0.01),
)


@dataclass(slots=True)
class Choice:
    """State of `Auto`: the residual, `[numel]`, and the driver's choice of a candidate by number."""

    error: Tensor
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Auto:
    """Error feedback around the quickest of several candidates.

    Choice 0 sends everything as it is, and the residual with it; choice `n` is candidate `n - 1`. The driver
    measures exchanges and puts the choice into the state, by the rules of an `Autotuner`: see there. Where a
    candidate compresses replies too, the residuals of owners of ranges wait until it comes again.

    Args:
      candidates: to choose from, each fit for error feedback.

    Raises: StrategyError for a candidate that is not.
    Cost: as `ErrorFeedback`; four exchanges of each candidate that may be the quickest, now and then.
    Source: own design.
    """

    candidates: Sequence[Codec] = field(default=CANDIDATES)

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "what was left of a model is no part of the next one"
    replicas_diverge: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for candidate in self.candidates:
            check_contracts("auto", candidate)

    @property
    def choices(self) -> tuple[Codec, ...]:
        """By number."""
        return (Identity(), *self.candidates)

    @property
    def parts(self) -> Mapping[str, Codec]:
        """See `Memory`; named by number."""
        return {str(number): choice for number, choice in enumerate(self.choices)}

    def start(self, like: Tensor) -> Choice:
        """No residual; everything is sent."""
        return Choice(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Choice, turn: Turn, silent: bool = False) -> ReduceRequests:
        """See `Memory`."""
        if silent:
            state.error.add_(value)
        part = str(state.choice)
        mean = yield ReduceRequest(self.parts[part], value, state.error, part, silent)
        return Update(mean)

    def autotuner(self, specs: Sequence[Spec], ranks: int) -> Autotuner:
        """The rules for buffers like `specs`, all exchanged at once by so many ranks."""
        return Autotuner(
            tuple(sum(wire_bytes(choice, spec, ranks) for spec in specs) for choice in self.choices)
        )


def wire_bytes(codec: Codec, spec: Spec, ranks: int) -> float:
    """Bytes that a rank sends in an exchange, about: for packets that fill up in the sum, at most."""
    packet, others = codec.packet_bytes(spec), (ranks - 1) / ranks
    if codec.sums:
        return 2 * others * packet
    exact = codec.reply_codec is None or codec.reply_codec.error_bound(spec) == 0
    answer = min(4.0 * spec.numel, ranks * packet) if exact else packet
    return others * (packet + answer)
