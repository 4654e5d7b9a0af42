"""The codecs of the stage, and one way to drive each of them: a new one joins by adding a row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tweed.compress import (
    Chain,
    Codec,
    Compressor,
    Direct,
    ErrorFeedback,
    Half,
    Identity,
    Levels,
    LowRank,
    Nonzero,
    Nothing,
    Packet,
    Quantise,
    RandomBlocks,
    RandomK,
    RandomTensors,
    Relaxing,
    Rounds,
    Sign,
    Spec,
    Threshold,
    TopK,
    Turn,
    Values,
)
from tweed.errors import StrategyError

SPEC = Spec(((40, 50), (30,), (16, 4, 3, 3), (700,)))

#: What is sent is sent exactly, and so is what is left.
EXACT: list[Codec] = [
    Identity(), Identity(by_ranges=True), Nothing(), Nonzero(), Nonzero("shortest"),
    TopK(0.05), TopK(0.05, per_tensor=True, bidirectional=True), TopK(1.0),
    Threshold(0.05), Threshold(0.05, lifespan=3), Threshold(0.02, dense_below=0), Threshold(0.9),
    Threshold(0.02, per_tensor=False), RandomK(0.1),
    RandomBlocks(4), RandomBlocks(8, tensors=2, columns=2), RandomBlocks(4, block=64),
    RandomTensors(0.3), RandomTensors(0.2, skip_all=0.4), RandomTensors(0.0),
    Chain(TopK(0.05)), Chain(TopK(0.3), indices="bitmap"),
    Chain(Threshold(0.05), indices="delta", bidirectional=True),
]  # fmt: skip
#: To rounding only.
ROUNDED: list[Codec] = [
    Half(), Half("float16"), LowRank(1), LowRank(4, warm=False), RandomK(0.1, scaled=True),
    RandomBlocks(4, scaled=True), RandomBlocks(2, block=100, scaled=True),
    Sign(), Sign(None), Sign(100, bidirectional=False), Levels(1, 64), Levels(5, 100), Levels(127, None),
    Quantise(8), Quantise(4, 64), Quantise(3, 100, nearest=True), Quantise(2, 64),
    Quantise(2, None, nearest=True), Chain(TopK(0.05), Quantise(8, 64, nearest=True)),
    Chain(TopK(0.1), Quantise(4, nearest=True), "raw"),
    Chain(Threshold(0.05), Quantise(2, 48, nearest=True), "bitmap"),
    Chain(TopK(0.01), Sign(50), "delta", bidirectional=True),
    Relaxing((Chain(TopK(0.02), Quantise(4, nearest=True)), TopK(0.1), Quantise(8, nearest=True)), every=2),
]  # fmt: skip
TABLE = EXACT + ROUNDED


def memory_for(codec: Codec) -> Direct | ErrorFeedback:
    """Error feedback, unless the codec's draws leave more than they were given."""
    try:
        return ErrorFeedback(codec)
    except StrategyError:
        return Direct(codec)


def gaussian(spec: Spec = SPEC, seed: int = 0) -> Tensor:
    """A buffer of normal numbers."""
    return torch.randn(spec.numel, generator=torch.Generator().manual_seed(seed))


class Encoder:
    """A rank alone that sends one buffer after another.

    Attributes:
      packet: the last one, if there are packets.
      packet_bytes: of the last turn.
    """

    def __init__(self, method: Codec, spec: Spec = SPEC, rank: int = 0, size: int = 1) -> None:
        self.method, self.spec = method, spec
        self.rank, self.size, self.step = rank, size, 0
        self.state: Any = method.start(spec)
        self.packet: Packet | None = None
        self.packet_bytes = 0.0

    def encode(self, value: Tensor, error: Tensor | None = None) -> Tensor:
        """What all others decode. `value` stays as it is."""
        turn = Turn(self.spec, self.step, rank=self.rank, size=self.size)
        self.step += 1
        out = torch.zeros_like(value)
        if isinstance(self.method, Rounds):
            self._in_rounds(value.clone(), turn, out, error)
            return out
        assert isinstance(self.method, Compressor)
        self.packet, self.state = self.method.encode(value.clone(), self.state, turn, error)
        self.packet.add_to(out)
        self.packet_bytes = float((_values(self.packet) if self.method.sums else self.packet.pack()).nbytes)
        return out

    def _in_rounds(self, value: Tensor, turn: Turn, out: Tensor, error: Tensor | None) -> None:
        assert isinstance(self.method, Rounds)
        rounds = self.method.rounds(value, self.state, turn, out, error)
        self.packet_bytes, answer = 0.0, None
        while True:
            try:
                values = next(rounds) if answer is None else rounds.send(answer)
            except StopIteration as end:
                self.state = end.value
                return
            self.packet_bytes += values.nbytes
            answer = values.clone()


def _values(packet: Packet) -> Tensor:
    assert isinstance(packet, Values)
    return packet.values
