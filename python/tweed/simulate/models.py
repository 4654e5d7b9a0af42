"""Models as data: the shapes of their layers, and how long an accelerator takes for them.

A layer is a product of matrices: `rows` of activations per sample, each of `depth` numbers, with weights of
`depth * width`. A convolution has a row per place of its output and a depth of channels times kernel. Biases,
normalisations and products without weights (attention scores) are left out: under 1 % of bytes, a few per
cent of arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from tweed.simulate.workload import Layer, Workload


class Shape(NamedTuple):
    """One layer.

    `rows` is 0 where weights are looked up and nothing is multiplied; `tied`: the weights are another
    layer's, and so is their gradient.
    """

    name: str
    rows: int
    depth: int
    width: int
    tied: bool = False

    @property
    def numbytes(self) -> int:
        """The bytes of the layer's gradient, in float32."""
        return 0 if self.tied else 4 * self.depth * self.width


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Systolic arrays, each of `side` times `side` elements; outputs stay in place while operands pass.

    The default is that of the MultiTree paper (ISCA 2021, section V): 16 arrays of 32 x 32 at 1 GHz, float32.
    """

    arrays: int = 16
    side: int = 32
    hertz: float = 1e9

    def seconds(self, rows: int, depth: int, width: int) -> float:
        """The seconds of one product `[rows, depth] @ [depth, width]`.

        Source: Samajdar et al., "A systematic methodology for characterizing scalability of DNN accelerators
        using SCALE-Sim", ISPASS 2020, equation 1: a tile of outputs takes depth + 3 * side - 2 cycles. Memory
        keeps up.
        """
        tiles = ceil(rows / self.side) * ceil(width / self.side)
        return ceil(tiles / self.arrays) * (depth + 3 * self.side - 2) / self.hertz


def workload(
    name: str, shapes: tuple[Shape, ...], source: str, *, batch: int, on: Accelerator | None = None
) -> Workload:
    """A step over `batch` samples; backward, a layer takes a product for its input and one for weights."""
    chip = on or Accelerator()
    forward_s = sum(chip.seconds(batch * s.rows, s.depth, s.width) for s in shapes)
    layers = tuple(Layer(s.name, s.numbytes, _backward(chip, s, batch * s.rows)) for s in shapes)
    return Workload(name, layers, forward_s, source)


def _backward(chip: Accelerator, shape: Shape, rows: int) -> float:
    if not rows:
        return 0.0
    return chip.seconds(rows, shape.width, shape.depth) + chip.seconds(shape.depth, rows, shape.width)


def alexnet(batch: int = 16) -> Workload:
    """The one-column AlexNet: 61 M weights, most of them in two layers."""
    shapes = (
        Shape("conv1", 55 * 55, 3 * 11 * 11, 64),
        Shape("conv2", 27 * 27, 64 * 5 * 5, 192),
        Shape("conv3", 13 * 13, 192 * 3 * 3, 384),
        Shape("conv4", 13 * 13, 384 * 3 * 3, 256),
        Shape("conv5", 13 * 13, 256 * 3 * 3, 256),
        Shape("fc6", 1, 256 * 6 * 6, 4096),
        Shape("fc7", 1, 4096, 4096),
        Shape("fc8", 1, 4096, 1000),
    )
    return workload("AlexNet", shapes, "Krizhevsky, arXiv 1404.5997, section 5", batch=batch)


def resnet50(batch: int = 16) -> Workload:
    """ResNet-50: 25.5 M weights in 54 layers."""
    shapes = (Shape("conv1", 112 * 112, 3 * 7 * 7, 64), *_bottlenecks(), Shape("fc", 1, 2048, 1000))
    return workload("ResNet-50", shapes, "He et al., CVPR 2016, table 1", batch=batch)


def _bottlenecks() -> Iterator[Shape]:
    taken = 64
    for stage, (blocks, inner, side) in enumerate(((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)), 2):
        for block in range(blocks):
            name, places = f"conv{stage}.{block + 1}", side * side
            # The first 1 x 1 of a later stage works on the smaller map already, as in the paper.
            yield Shape(f"{name}.1", places, taken, inner)
            yield Shape(f"{name}.2", places, inner * 3 * 3, inner)
            yield Shape(f"{name}.3", places, inner, 4 * inner)
            if block == 0:
                yield Shape(f"{name}.skip", places, taken, 4 * inner)
            taken = 4 * inner


def vgg19(batch: int = 16) -> Workload:
    """VGG-19: 143.6 M weights, 103 M of them in one layer."""
    shapes = (
        *_threes(),
        Shape("fc6", 1, 512 * 7 * 7, 4096),
        Shape("fc7", 1, 4096, 4096),
        Shape("fc8", 1, 4096, 1000),
    )
    return workload("VGG-19", shapes, "Simonyan and Zisserman, ICLR 2015, table 1, column E", batch=batch)


def _threes() -> Iterator[Shape]:
    taken = 3
    for stage, (layers, channels, side) in enumerate(
        ((2, 64, 224), (2, 128, 112), (4, 256, 56), (4, 512, 28), (4, 512, 14)), 1
    ):
        for layer in range(layers):
            yield Shape(f"conv{stage}.{layer + 1}", side * side, taken * 3 * 3, channels)
            taken = channels


def transformer(batch: int = 16, tokens: int = 32) -> Workload:
    """The base Transformer: 61 M weights; `tokens` of source and of target per sample.

    The vocabulary is that of the MultiTree paper's simulator, 33,708 words; the output shares its weights.
    """
    encoder = (part for layer in range(6) for part in _block(f"encoder.{layer}", ("self",), tokens))
    decoder = (part for layer in range(6) for part in _block(f"decoder.{layer}", ("self", "cross"), tokens))
    embedding = Shape("embedding", 0, 33708, 512)
    shapes = (embedding, *encoder, *decoder, Shape("output", tokens, 512, 33708, tied=True))
    return workload("Transformer", shapes, "Vaswani et al., NeurIPS 2017, table 3, base", batch=batch)


def _block(name: str, attentions: tuple[str, ...], tokens: int) -> Iterator[Shape]:
    for attention in attentions:
        for part in ("query", "key", "value", "out"):
            yield Shape(f"{name}.{attention}.{part}", tokens, 512, 512)
    yield Shape(f"{name}.ffn.1", tokens, 512, 2048)
    yield Shape(f"{name}.ffn.2", tokens, 2048, 512)


def ncf(batch: int = 16) -> Workload:
    """Neural collaborative filtering with 8 factors over MovieLens-20M: nearly all of it is embeddings."""
    users, items = 138_493, 26_744
    shapes = (
        Shape("factors.user", 0, users, 8),
        Shape("factors.item", 0, items, 8),
        Shape("embedding.user", 0, users, 32),
        Shape("embedding.item", 0, items, 32),
        Shape("fc1", 1, 64, 32),
        Shape("fc2", 1, 32, 16),
        Shape("fc3", 1, 16, 8),
        Shape("predict", 1, 16, 1),
    )
    return workload("NCF", shapes, "He et al., WWW 2017, section 4; sizes of MovieLens-20M", batch=batch)


MODELS: dict[str, Callable[[], Workload]] = {
    "AlexNet": alexnet,
    "ResNet-50": resnet50,
    "Transformer": transformer,
    "NCF": ncf,
}
"""By name, each with 16 samples per rank, as in the MultiTree paper."""
