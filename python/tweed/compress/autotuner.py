"""Which of several candidates takes least time to exchange: tried in turns, and anew when the link changes.

Pure: what exchanges took goes in, which candidate to take next and for how long comes out. They are tried
from the fewest bytes up. Two of them show what a byte costs on this link, and from then on a candidate is
left out if it cannot be the quickest: so a slow link never has to carry everything once just to find out that
it is slow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from tweed.compress.base import Codec, Memory, ReduceRequest, ReduceRequests, Spec, Turn, Update
from tweed.compress.chain import Chain
from tweed.compress.checks import check_contracts
from tweed.compress.half import Half
from tweed.compress.identity import Identity
from tweed.compress.quantise import Quantise
from tweed.compress.top_k import TopK

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Timing:
    """What one exchange took, in seconds.

    Attributes:
      seconds: from the first gradient that was there, or for movements from its beginning, to its end.
      waiting_s: of these, the training stood still for the network.
      ready_s: of these, those before all was there that was to be exchanged. 0 for movements.
    """

    seconds: float
    waiting_s: float
    ready_s: float = 0.0


class Reason(Enum):
    """Why a candidate is taken. The value is the text for people."""

    TRIED = "it is being tried"
    QUICKEST = "it is the quickest here"
    DOES_NOT_PAY = "compression does not pay here"
    CHANGED = "exchanges take another time than before: all candidates are tried anew"


@dataclass(frozen=True, slots=True)
class Phase:
    """Take candidate `choice` for `exchanges` exchanges."""

    choice: int
    exchanges: int
    reason: Reason = Reason.TRIED


@dataclass(frozen=True, slots=True)
class Record:
    """What is known: the present phase, and by candidate the medians of its last phase."""

    phase: Phase
    seen: Mapping[int, Timing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gain:
    """What the candidate that was chosen brings against exchanging everything.

    Attributes:
      times: seconds of an exchange of everything, over those of that candidate.
      break_even_bits: bits per second of a link at which the two take equally long; above it everything is
        quicker. Infinite if compressing takes no time, 0 if nothing is saved.
      measured: whether everything was tried here; else its time follows from that of smaller packets.
    """

    times: float
    break_even_bits: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Autotuner:
    """The rules.

    Args:
      wire_bytes: by candidate, what a rank sends in an exchange; number 0 exchanges everything, as it is,
        while the backward pass still runs. Estimates will do.
      tried: exchanges of a phase in which a candidate is tried; the first of them does not count.
      kept: exchanges of a phase in which the quickest is taken.
      worth: a candidate with loss must take at most so much of the time of everything, else everything is
        taken.
      changed: trials begin anew when the quickest takes longer or shorter than it did by this factor.
    """

    wire_bytes: tuple[float, ...]
    tried: int = 4
    kept: int = 250
    worth: float = 0.95
    changed: float = 1.5

    def start(self) -> Record:
        """Before the first exchange: the one with the fewest bytes is tried."""
        return Record(Phase(self._order()[0], self.tried))

    def _order(self) -> list[int]:
        return sorted(range(len(self.wire_bytes)), key=lambda choice: self.wire_bytes[choice])

    def next(self, record: Record, timings: Sequence[Timing]) -> Record:
        """What to do after a phase whose exchanges took `timings`."""
        phase, middle = record.phase, _middle(timings[1:] or timings)
        before = record.seen.get(phase.choice, middle)
        ratio = middle.seconds / max(before.seconds, 1e-9)
        if phase.reason is not Reason.TRIED and not 1 / self.changed <= ratio <= self.changed:
            return Record(Phase(phase.choice, self.tried, Reason.TRIED), {phase.choice: middle})
        seen = dict(record.seen) | {phase.choice: middle}
        for choice in self._order():
            if choice not in seen and self._least(choice, seen) < self.worth * min(
                timing.seconds for timing in seen.values()
            ):
                return Record(Phase(choice, self.tried), seen)
        return Record(self._settled(seen), seen)

    def _settled(self, seen: Mapping[int, Timing]) -> Phase:
        quickest = min(seen, key=lambda choice: seen[choice].seconds)
        if 0 in seen and seen[quickest].seconds > self.worth * seen[0].seconds:
            return Phase(0, self.kept, Reason.DOES_NOT_PAY)
        return Phase(quickest, self.kept, Reason.QUICKEST)

    def _least(self, choice: int, seen: Mapping[int, Timing]) -> float:
        """Seconds that `choice` takes at the very least, by what others took; 0 where that is not known yet.

        A third is left for what the estimate does not know.
        """
        waiting_s = self._waiting(choice, seen)
        if waiting_s is None:
            return 0.0
        ready_s = min(timing.ready_s for timing in seen.values())
        return max(ready_s, 0.67 * waiting_s) if choice == 0 else ready_s + 0.67 * waiting_s

    def _waiting(self, choice: int, seen: Mapping[int, Timing]) -> float | None:
        """Seconds that the bytes of `choice` take, by the line through the smallest and the largest seen."""
        by_size = sorted(seen, key=lambda other: self.wire_bytes[other])
        low, high = by_size[0], by_size[-1]
        apart = self.wire_bytes[high] - self.wire_bytes[low]
        if apart <= 0:
            return None
        slope = max(0.0, (seen[high].waiting_s - seen[low].waiting_s) / apart)
        return seen[low].waiting_s + slope * (self.wire_bytes[choice] - self.wire_bytes[low])

    def gain(self, record: Record) -> Gain | None:
        """What the present candidate brings; None while candidates are tried."""
        choice, seen = record.phase.choice, record.seen
        if record.phase.reason is Reason.TRIED or choice not in seen:
            return None
        ready_s = min(timing.ready_s for timing in seen.values())
        whole_s = seen[0].seconds if 0 in seen else ready_s + (self._waiting(0, seen) or 0.0)
        return Gain(whole_s / max(seen[choice].seconds, 1e-9), self._break_even(choice, seen), 0 in seen)

    def _break_even(self, choice: int, seen: Mapping[int, Timing]) -> float:
        """The bandwidth in bits per second below which the chosen candidate saves time; where the choice is
        everything, that of the best other candidate."""
        others = [other for other in seen if other != 0]
        chosen = choice or min(others, key=lambda other: seen[other].seconds, default=0)
        saved_bits = 8 * (self.wire_bytes[0] - self.wire_bytes[chosen])
        timing = seen[chosen]
        work_s = timing.seconds - timing.waiting_s - timing.ready_s
        return saved_bits / work_s if work_s > 0 else math.inf


def _middle(timings: Sequence[Timing]) -> Timing:
    of_each = ((timing.seconds, timing.waiting_s, timing.ready_s) for timing in timings)
    return Timing(*map(statistics.median, zip(*of_each, strict=True)))


#: From the most bytes to the fewest. All of them keep the accuracy of training in our experiments.
CANDIDATES: tuple[Codec, ...] = (
    Half(),
    Quantise(bits=8, nearest=True),
    Quantise(bits=4, nearest=True),
    TopK(0.01),
    Chain(TopK(0.01), Quantise(bits=8, nearest=True), bidirectional=True),
)


@dataclass(slots=True)
class Choice:
    """State of `Auto`: the residual, `[numel]`, and the driver's choice of a candidate by number."""

    error: Tensor
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Auto(Memory[Choice]):
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
    autotuned: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for candidate in self.candidates:
            check_contracts("auto", candidate)

    @property
    def choices(self) -> tuple[Codec, ...]:
        """The codecs by the number of the choice: everything as it is, then the candidates."""
        return (Identity(), *self.candidates)

    @property
    def parts(self) -> Mapping[str, Codec]:
        """The codecs that it asks for, named by the number of the choice."""
        return {str(number): choice for number, choice in enumerate(self.choices)}

    def start(self, like: Tensor) -> Choice:
        """No residual; everything is sent."""
        return Choice(like.new_zeros(like.shape))

    def residual(self, state: Choice) -> Tensor:
        return state.error

    def exchange(self, value: Tensor, state: Choice, turn: Turn, silent: bool = False) -> ReduceRequests:
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
