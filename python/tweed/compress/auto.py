"""What is said by whichever candidate is quickest on this link, or by none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Ask, Exchange, Method, Placed, Spec, Turn
from tweed.compress.contract import check_contracts
from tweed.compress.half import Half
from tweed.compress.identity import Identity
from tweed.compress.quantise import Quantise
from tweed.compress.top_k import TopK
from tweed.compress.trial import Trial

if TYPE_CHECKING:
    from torch import Tensor

#: From the most bytes to the fewest. All of them keep the accuracy of training in our experiments.
CANDIDATES: tuple[Method, ...] = (
    Half(),
    Quantise(bits=8, nearest=True),
    Quantise(bits=4, nearest=True),
    TopK(0.01),
)


@dataclass(slots=True)
class Choice:
    """State of `Auto`: what is still to be said, `[numel]`, and the way that the driver has chosen."""

    error: Tensor
    way: int = 0


@dataclass(frozen=True, slots=True)
class Auto:
    """Error feedback around the quickest of several candidates.

    Way 0 says everything as it is, and what is still owed with it; way `n` is candidate `n - 1`. The driver
    measures exchanges and puts the way into the state, by the rules of a `Trial`: see there. Where a
    candidate compresses the answer too, what owners of ranges still owe waits until it comes again.

    Args:
      candidates: to choose from, each fit for error feedback.

    Raises: StrategyError for a candidate that is not.
    Cost: as `ErrorFeedback`; four exchanges of each candidate that may be the quickest, now and then.
    Source: own design.
    """

    candidates: Sequence[Method] = field(default=CANDIDATES)

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "what was left of a model is no part of the next one"
    forks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for candidate in self.candidates:
            check_contracts("auto", candidate)

    @property
    def ways(self) -> tuple[Method, ...]:
        """By number."""
        return (Identity(), *self.candidates)

    @property
    def parts(self) -> Mapping[str, Method]:
        """See `Memory`; named by number."""
        return {str(number): way for number, way in enumerate(self.ways)}

    def start(self, like: Tensor) -> Choice:
        """Nothing is owed; everything is said."""
        return Choice(like.new_zeros(like.shape))

    def exchange(self, value: Tensor, state: Choice, turn: Turn, silent: bool = False) -> Exchange:
        """See `Memory`."""
        if silent:
            state.error.add_(value)
        part = str(state.way)
        mean = yield Ask(self.parts[part], value, state.error, part, silent)
        return Placed(mean)

    def trial(self, specs: Sequence[Spec], ranks: int) -> Trial:
        """The rules for buffers like `specs`, all exchanged at once by so many ranks."""
        return Trial(tuple(sum(wire_bytes(way, spec, ranks) for spec in specs) for way in self.ways))


def wire_bytes(method: Method, spec: Spec, ranks: int) -> float:
    """Bytes that a rank sends in an exchange, about: for packets that fill up in the sum, at most."""
    packet, others = method.packet_bytes(spec), (ranks - 1) / ranks
    if method.sums:
        return 2 * others * packet
    exact = method.back is None or method.back.error_bound(spec) == 0
    answer = min(4.0 * spec.numel, ranks * packet) if exact else packet
    return others * (packet + answer)
