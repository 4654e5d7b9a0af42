"""The contract of the stage: in which form values are sent, and what becomes of those that are not.

A *compressor* turns values into a packet and back. It is pure: settings only; the caller holds the state and
passes whose turn it is, from which all randomness is drawn.

    state = compressor.start(spec)
    packet, state = compressor.encode(value, state, turn, error)    # error: what was left; then what is left
    packet.add_to(out)                                              # out += what the packet holds

Conservation: the packet plus the new `error` is `value` plus the old `error`, value by value, to rounding.
Where a packet holds exactly what it was given (sparsifiers), so is the law. What is finite, up to 3e38,
leaves a finite packet and a finite error; that nothing else comes in is the driver's part.

A *memory* wraps a compressor and decides what becomes of the error: it is fed back, or applied at once and
reset later, or stepped ahead of. It is a coroutine without I/O. It yields what is to be averaged over ranks,
and is sent the average; the live driver (`tweed.exchange`) and the simulated one (`tweed.simulate`) run the
same code.

    exchange = memory.exchange(value, state, turn)
    request = next(exchange)                 # a `ReduceRequest`: compress and average this
    request = exchange.send(mean)            # perhaps another
    ...                                      # StopIteration: what is to be done to the model, an `Update`

Modules of this folder load torch inside functions only: a strategy is a plain value and costs no import.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from tweed.rng import splitmix64

if TYPE_CHECKING:
    from torch import Tensor

    from tweed.compress.packet import Packet

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Spec:
    """The buffer that is compressed again and again: tensors side by side.

    Args:
      shapes: of the tensors, in their order in the buffer.
    """

    shapes: tuple[tuple[int, ...], ...]

    @property
    def numel(self) -> int:
        """Values in the buffer."""
        return sum(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each tensor."""
        return tuple(_product(shape) for shape in self.shapes)


def _product(shape: tuple[int, ...]) -> int:
    numel = 1
    for length in shape:
        numel *= length
    return numel


@dataclass(frozen=True, slots=True)
class Turn:
    """Which exchange of which buffer this is, and whose. Equal turns draw alike on every machine.

    Args:
      spec: the buffer.
      step: exchanges of it before this one; equal on all ranks.
      slot: number of the buffer; equal on all ranks.
      rank: of `size` ranks.
    """

    spec: Spec
    step: int = 0
    slot: int = 0
    rank: int = 0
    size: int = 1

    def shared(self, seed: int) -> int:
        """A 64-bit key, equal on all ranks, another one for each step and slot."""
        return splitmix64(splitmix64(splitmix64(seed) ^ self.step) ^ self.slot)

    def own(self, seed: int) -> int:
        """A 64-bit key, another one for each rank, step and slot."""
        return splitmix64(self.shared(seed) ^ (self.rank + 1))


@runtime_checkable
class Codec(Protocol):
    """In which form values are sent: what is known of it. It is a `Compressor` or goes in `Rounds`.

    Attributes:
      unbiased: the mean of what packets hold, over all draws, is the input.
      sums: packets of ranks can be added value by value; the sum holds the sum. Such packets are `Values`,
        and an ordinary all-reduce adds them up. Others go by ranges (`tweed.exchange.owners`).
      reply_codec: what the owner of a range compresses the average with before it replies to all; None: it
        replies exactly, with entries or in full, whichever is shorter.
    """

    @property
    def unbiased(self) -> bool:
        """Whether the mean of what packets hold, over all draws, is the input."""

    @property
    def sums(self) -> bool:
        """Whether packets of ranks can be added value by value, so that the sum holds the sum."""

    @property
    def reply_codec(self) -> Compressor[Any] | None:
        """What the owner of a range compresses the average with; None: it replies exactly."""

    def start(self, spec: Spec) -> Any:
        """The state before the first turn."""

    def error_bound(self, spec: Spec) -> float:
        """The mean of `|C(v) - v|² / |v|²` over all draws, for the worst `v`; some exceed 1."""
        ...

    def packet_bytes(self, spec: Spec) -> float:
        """Bytes of one rank's packet with its header; where it varies, the mean for Gaussian values."""
        ...


@runtime_checkable
class Compressor(Codec, Protocol[State]):
    """A form with packets. `State` is a dataclass of tensors and plain numbers, or None."""

    def start(self, spec: Spec) -> State:
        """The state before the first turn."""
        ...

    def encode(
        self, value: Tensor, state: State, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, State]:
        """Compresses `value`, or `value + error`; then `error` becomes what the packet leaves out.

        Args:
          value: `[numel]` float32, contiguous, finite. It may be used as scratch memory.
          state: from `start` or the turn before; consumed.
          turn: see `Turn`.
          error: as `value`, or None if nobody wants to know.
        """
        ...


@runtime_checkable
class Rounds(Codec, Protocol[State]):
    """A form whose average takes several sums, each of which rests on the one before. `sums` is true."""

    def start(self, spec: Spec) -> State:
        """The state before the first turn."""
        ...

    def rounds(
        self, value: Tensor, state: State, turn: Turn, out: Tensor, error: Tensor | None = None
    ) -> Generator[Tensor, Tensor, State]:
        """Averages `value`, or `value + error`, over ranks; `error` becomes what is left of this rank's.

        Yields what is to be averaged, `[count]`, equal `count` on all ranks; is sent the average. Returns the
        new state.

        Args:
          value, state, turn, error: as for `Compressor.encode`.
          out: `[numel]`, becomes the average of what ranks send.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReduceRequest:
    """Compress `value` (plus `error`, which becomes what is left) and average it over all ranks.

    Args:
      codec: how.
      value: `[numel]` float32. The driver may use it as scratch memory; the average comes in another buffer.
      error: see `Compressor.encode`.
      part: names the codec's state in this memory.
      silent: this rank has nothing to send: it contributes zeros, and `value` and `error` stay as they are.
        Whether there is an `error` is the same on all ranks, silent or not: it decides which way is taken.
    """

    codec: Codec
    value: Tensor
    error: Tensor | None = None
    part: str = "main"
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """What is to be done to the model after an exchange.

    Args:
      delta: `[numel]`, by how much this rank's reference point moves on; in an exchange of gradients
        the gradient to be used.
      offset: how far from that point the next gradient is to be taken; None: there.
    """

    delta: Tensor
    offset: Tensor | None = None


#: Yields requests, is sent the mean over ranks (`[numel]`, valid until the next yield), returns an `Update`.
ReduceRequests = Generator[ReduceRequest, "Tensor", Update]


@runtime_checkable
class Memory(Protocol[State]):
    """What becomes of what a packet leaves out. `State` is a dataclass of tensors, changed in place.

    A memory inherits from this class and says what is otherwise with it: what goes with it follows from that
    (`tweed.composition`).

    Attributes:
      exchanges: what may be exchanged with it, of "gradient", "step", "difference" and "model".
      reason: why nothing else; for the error text.
      replicas_diverge: ranks' models differ between exchanges, and only their average is the model (see
        `Run.averaged`).
      one_model: all ranks take their gradients at the same model.
      one_by_one: a packet can be taken alone, whatever other ranks send in the same exchange.
      memoryless: what a packet leaves out is forgotten at once.
      sends_differences: what is sent is the difference from what was sent before.
      skips_unsent: a value that is not sent counts for nothing, where that can be told from zero.
      autotuned: it takes the form that was quickest, by measured times.
      measures_norm: it can measure what there is to send, see `MeasuresNorm`.
      overlaps: ranks may take further steps between an exchange and its update.
    """

    __slots__ = ()
    exchanges: ClassVar[frozenset[str]]
    reason: ClassVar[str]
    replicas_diverge: ClassVar[bool] = False
    one_model: ClassVar[bool] = True
    one_by_one: ClassVar[bool] = False
    memoryless: ClassVar[bool] = False
    sends_differences: ClassVar[bool] = False
    skips_unsent: ClassVar[bool] = False
    autotuned: ClassVar[bool] = False
    measures_norm: ClassVar[bool] = False
    overlaps: ClassVar[bool] = False

    @property
    def weight(self) -> float:
        """What is sent is multiplied with it."""
        return 1.0

    @property
    def parts(self) -> Mapping[str, Codec]:
        """The codecs it asks for, by `ReduceRequest.part`."""
        ...

    @property
    def in_rounds(self) -> Sequence[Rounds[Any]]:
        """Its codecs that rest on means over all ranks."""
        return [codec for codec in self.parts.values() if isinstance(codec, Rounds)]

    def start(self, like: Tensor) -> State:
        """The state before the first exchange; `like`, `[numel]` float32, gives size and device."""
        ...

    def residual(self, state: State) -> Tensor | None:
        """What of earlier values is still to be sent, `[numel]`; None: nothing is kept. For a memory that
        `overlaps`."""
        return None

    def exchange(self, value: Tensor, state: State, turn: Turn, silent: bool = False) -> ReduceRequests:
        """One exchange of `value`: `[numel]` float32, this rank's gradient, or how far it moved from its
        reference point. `silent`: this rank has nothing to send this time."""
        ...


@runtime_checkable
class MeasuresNorm(Protocol):
    """A memory that can measure what there is to send, for cadences that decide by it."""

    def pending(self, value: Tensor, state: Any) -> float:
        """The squared norm of what an exchange of `value` would have to send; changes nothing."""
        ...
