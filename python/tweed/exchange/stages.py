"""Activations and their gradients between two stages of one model: what crosses the cut. Pure.

    message, sent, state = cut.encode(activations, state)          first stage
    values, sent = cut.decode(message)                             second stage
    message, state = cut.encode_gradient(gradient, sent, state)    second stage
    gradient = cut.decode_gradient(message, sent)                  first stage

Only the activations that were sent count, so that only they have a gradient: where they belong is known on
both sides, and a gradient's message has values alone. What is not sent is zero for this batch and lost:
a residual of an activation belongs to its sample, and could be of no use to another.

A message of activations begins with 64 bytes, eight int64: place of the dtype in `DTYPES`, whether a gradient
is wanted, number of dimensions, and up to five of these. A packet follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tweed.compress import (
    Chain,
    Compressor,
    Entries,
    Half,
    Identity,
    Packet,
    Quantise,
    Spec,
    TopK,
    Turn,
    Values,
    unpack,
)
from tweed.compress.native.sparse import all_finite, gather, scatter_add
from tweed.errors import DataError, StrategyError, UsageError

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_HEAD_BYTES = 64
_WARM = Quantise(8, nearest=True)
_MOST_DIMENSIONS = 5


@dataclass(frozen=True, slots=True)
class Sent:
    """What both stages know of one crossing.

    Args:
      shape, dtype: of the activations.
      places: `[count]` int32, which of them were sent; None: all.
      wants_gradient: the first stage waits for one.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    places: Tensor | None
    wants_gradient: bool

    @property
    def count(self) -> int:
        """Values that were sent, and that have a gradient."""
        return math.prod(self.shape) if self.places is None else len(self.places)


@dataclass(frozen=True, slots=True)
class CutState:
    """What a stage keeps from crossing to crossing: the codec's state, and how many there were."""

    codec: Any
    crossings: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """How activations and their gradients cross from one stage of a model to the next.

    Values that are not finite, and the others beside them, cross as they are: a loss becomes what it would
    have become on one machine.

    Args:
      activations: the codec of activations.
      gradients: the codec of the gradients of those that were sent.
      each_sample: to the codec of activations, each row of the first dimension is a tensor, so that one with
        `per_tensor` chooses from each sample alone; otherwise the whole batch is one tensor.
      warm_up: batches at first of which all values cross, in 8 bits.

    Raises: StrategyError for a codec whose packets are sums only, and with `each_sample` for one that keeps
      something from batch to batch; UsageError for a warm-up below 0.
    Cost: 64 bytes and a packet of each codec per batch; memory for the places of what was sent, until the
      backward pass.
    Source: DCT, arXiv 2010.08899, 2021 (DCT-MP), whose thresholds live for a fixed number of batches, and
      whose values go as they are: `Cut(Threshold(0.05, 1000), Identity())`.

    Example:
      >>> import torch
      >>> from tweed.compress import Identity, TopK
      >>> cut = Cut(TopK(0.25), Identity(), each_sample=False)
      >>> message, sent, _ = cut.encode(torch.tensor([[1.0, -5.0], [2.0, 0.5]]), cut.start_activations())
      >>> values, _ = cut.decode(message)
      >>> values.tolist(), sent.places.tolist()
      ([[0.0, -5.0], [0.0, 0.0]], [1])
    """

    activations: Compressor[Any] = field(
        default_factory=lambda: Chain(TopK(0.14, per_tensor=True), Quantise(4, nearest=True))
    )
    gradients: Compressor[Any] = field(default_factory=lambda: Quantise(4))
    each_sample: bool = True
    warm_up: int = 0

    def __post_init__(self) -> None:
        if self.warm_up < 0:
            raise UsageError(f"Cut: warm_up={self.warm_up!r} is to be a number of batches, or 0")
        if self.each_sample and self.start_activations().codec is not None:
            raise StrategyError(
                f"Cut with each_sample does not go with activations={self.activations!r}, which keeps "
                "something of each tensor, and samples change: take TopK, or each_sample=False"
            )
        for name, codec in (("activations", self.activations), ("gradients", self.gradients)):
            if codec.sums and not isinstance(codec, Half | Identity):
                raise StrategyError(
                    f"Cut does not go with {name}={codec!r}, whose packets are parts of sums: take "
                    "Threshold, TopK, Chain, Quantise, Sign, Half or Identity"
                )

    def start_activations(self) -> CutState:
        """Before the first batch, for `encode`."""
        return CutState(self.activations.start(Spec(((1,),))))

    def start_gradients(self) -> CutState:
        """Before the first batch, for `encode_gradient`."""
        return CutState(self.gradients.start(Spec(((1,),))))

    def encode(
        self, x: Tensor, state: CutState, wants_gradient: bool = True
    ) -> tuple[Tensor, Sent, CutState]:
        """Activations as a message.

        Args:
          x: of any shape of up to five dimensions, of a dtype of `DTYPES`.
          state: from `start_activations`, or the batch before.
          wants_gradient: whether one is to come back.

        Returns: `[bytes]` uint8, what was sent, and the new state.
        Raises: DataError for another dtype or shape.
        """
        if x.dtype not in DTYPES or x.dim() > _MOST_DIMENSIONS:
            raise DataError(f"activations of {x.dtype} {list(x.shape)} cannot cross: give floats")
        packet, state = self._encoded(self.activations, x, state)
        places = packet.indices if isinstance(packet, Entries) else None
        sent = Sent(tuple(x.shape), x.dtype, places, wants_gradient)
        return torch.cat([_head(sent, x.device), packet.pack()]), sent, state

    def decode(self, message: Tensor) -> tuple[Tensor, Sent]:
        """Activations of a message, in their shape and dtype; those that were not sent are zero.

        Raises: DataError for a message that is none.
        """
        sent = _read(message)
        packet = unpack(message[_HEAD_BYTES:], math.prod(sent.shape))
        if packet is None:
            raise DataError("activations came in without a packet")
        places = packet.indices if isinstance(packet, Entries) else None
        values = torch.zeros(math.prod(sent.shape), device=message.device)
        packet.add_to(values)
        return values.view(sent.shape).to(sent.dtype), replace(sent, places=places)

    def encode_gradient(self, gradient: Tensor, sent: Sent, state: CutState) -> tuple[Tensor, CutState]:
        """The gradient of what was sent, as a message, `[bytes]` uint8; `gradient` is of all activations."""
        values = gradient.detach().reshape(-1).float().contiguous()
        if sent.places is not None:
            values = gather(values, sent.places)
        packet, state = self._encoded(self.gradients, values, state)
        return packet.pack(), state

    def decode_gradient(self, message: Tensor, sent: Sent) -> Tensor:
        """The gradient of all activations, zero for those that were not sent.

        Raises: DataError for a message about something else.
        """
        values = torch.zeros(sent.count, device=message.device)
        packet = unpack(message, sent.count)
        if packet is not None:
            packet.add_to(values)
        if sent.places is not None:
            values, some = values.new_zeros(math.prod(sent.shape)), values
            scatter_add(values, sent.places, some)
        return values.view(sent.shape).to(sent.dtype)

    def _encoded(self, codec: Compressor[Any], x: Tensor, state: CutState) -> tuple[Packet, CutState]:
        values = x.detach().reshape(-1).to(torch.float32, copy=True)
        if not all_finite(values):
            return Values(values, len(values)), state
        by_sample = self.each_sample and x.dim() > 1 and x.numel()
        spec = Spec(((x[0].numel(),),) * len(x) if by_sample else ((x.numel(),),))
        turn = Turn(spec, state.crossings)
        if state.crossings < self.warm_up:
            return _WARM.encode(values, None, turn)[0], CutState(state.codec, state.crossings + 1)
        packet, kept = codec.encode(values, state.codec, turn)
        return packet, CutState(kept, state.crossings + 1)


def _head(sent: Sent, device: torch.device) -> Tensor:
    lengths = [*sent.shape, *[0] * (_MOST_DIMENSIONS - len(sent.shape))]
    fields = [DTYPES.index(sent.dtype), int(sent.wants_gradient), len(sent.shape), *lengths]
    return torch.tensor(fields, dtype=torch.int64).view(torch.uint8).to(device)


def _read(message: Tensor) -> Sent:
    if len(message) < _HEAD_BYTES:
        raise DataError(f"a message of {len(message)} bytes came in, which is too short for activations")
    dtype, wants, dimensions, *lengths = message[:_HEAD_BYTES].cpu().clone().view(torch.int64).tolist()
    if not (0 <= dtype < len(DTYPES) and 0 <= dimensions <= _MOST_DIMENSIONS and min(lengths) >= 0):
        raise DataError("a message came in that does not begin as activations do")
    shape = tuple(lengths[:dimensions])
    if math.prod(shape) >= 2**31:
        raise DataError(f"activations of the shape {list(shape)} came in: more values than an index counts")
    return Sent(shape, DTYPES[dtype], None, bool(wants))
