"""Models as data: the shapes of their layers, and how long an accelerator takes for them.

A layer is a product of matrices: `rows` of activations per sample, each of `depth` numbers, with weights of
`depth * width`. A convolution has a row per place of its output and a depth of channels times kernel. Biases,
normalisations and products without weights (attention scores) are left out: under 1 % of bytes, a few per
cent of arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


def with_vectors(shapes: Iterable[Shape], norms: bool) -> Iterator[Shape]:
    """Each product with the vectors beside it: few bytes, but each is a gradient of its own.

    Args:
      norms: convolutions have scale and shift of a normalisation; otherwise all layers have a bias.

    Example:
      >>> [shape.name for shape in with_vectors([Shape("conv", 49, 27, 64), Shape("fc", 1, 64, 10)], True)]
      ['conv', 'conv.0', 'conv.1', 'fc', 'fc.0']
    """
    for shape in shapes:
        yield shape
        for place in range(2 if norms and shape.rows > 1 else 1):
            yield Shape(f"{shape.name}.{place}", 0, 1, shape.width)


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


def resnet18(batch: int = 16, on: Accelerator | None = None, vectors: bool = False) -> Workload:
    """ResNet-18: 11.7 M weights in 21 layers; with `vectors`, 62 gradients, as torch has them."""
    return _resnet("ResNet-18", _basic_blocks(), 512, batch, on, vectors)


def resnet50(batch: int = 16, on: Accelerator | None = None, vectors: bool = False) -> Workload:
    """ResNet-50: 25.5 M weights in 54 layers; with `vectors`, 161 gradients, as torch has them."""
    return _resnet("ResNet-50", _bottlenecks(3, 4, 6, 3), 2048, batch, on, vectors)


def resnet152(batch: int = 16, on: Accelerator | None = None, vectors: bool = False) -> Workload:
    """ResNet-152: 60.0 M weights in 156 layers; with `vectors`, 467 gradients, as torch has them."""
    return _resnet("ResNet-152", _bottlenecks(3, 8, 36, 3), 2048, batch, on, vectors)


def _resnet(
    name: str, blocks: Iterator[Shape], width: int, batch: int, on: Accelerator | None, vectors: bool
) -> Workload:
    shapes = (Shape("conv1", 112 * 112, 3 * 7 * 7, 64), *blocks, Shape("fc", 1, width, 1000))
    told = tuple(with_vectors(shapes, norms=True)) if vectors else shapes
    return workload(name, told, "He et al., CVPR 2016, table 1", batch=batch, on=on)


def _basic_blocks() -> Iterator[Shape]:
    taken = 64
    for stage, (inner, side) in enumerate(((64, 56), (128, 28), (256, 14), (512, 7)), 2):
        for block in range(2):
            name, places = f"conv{stage}.{block + 1}", side * side
            yield Shape(f"{name}.1", places, taken * 3 * 3, inner)
            yield Shape(f"{name}.2", places, inner * 3 * 3, inner)
            if taken != inner:
                yield Shape(f"{name}.skip", places, taken, inner)
            taken = inner


def _bottlenecks(*counts: int) -> Iterator[Shape]:
    taken = 64
    stages = zip(counts, ((64, 56), (128, 28), (256, 14), (512, 7)), strict=True)
    for stage, (blocks, (inner, side)) in enumerate(stages, 2):
        for block in range(blocks):
            name, places = f"conv{stage}.{block + 1}", side * side
            # The first 1 x 1 of a later stage works on the smaller map already, as in the paper.
            yield Shape(f"{name}.1", places, taken, inner)
            yield Shape(f"{name}.2", places, inner * 3 * 3, inner)
            yield Shape(f"{name}.3", places, inner, 4 * inner)
            if block == 0:
                yield Shape(f"{name}.skip", places, taken, 4 * inner)
            taken = 4 * inner


def inception_v3(batch: int = 16, on: Accelerator | None = None, vectors: bool = False) -> Workload:
    """Inception-v3 without its second classifier: 23.8 M weights in 95 layers.

    With `vectors`, 284 gradients, as torch has them.
    """
    shapes = (*_inception(), Shape("fc", 1, 2048, 1000))
    told = tuple(with_vectors(shapes, norms=True)) if vectors else shapes
    source = "Szegedy et al., CVPR 2016, section 6; sizes of torchvision's"
    return workload("Inception-v3", told, source, batch=batch, on=on)


def _inception() -> Iterator[Shape]:
    yield from _branch("stem", 3, (149, 9, 32), (147, 9, 32), (147, 9, 64), (73, 1, 80), (71, 9, 192))
    for name, taken, pooled in (("a1", 192, 32), ("a2", 256, 64), ("a3", 288, 64)):
        yield from _branch(f"{name}.1", taken, (35, 1, 64))
        yield from _branch(f"{name}.5", taken, (35, 1, 48), (35, 25, 64))
        yield from _branch(f"{name}.3", taken, (35, 1, 64), (35, 9, 96), (35, 9, 96))
        yield from _branch(f"{name}.pool", taken, (35, 1, pooled))
    yield from _branch("b.3", 288, (17, 9, 384))
    yield from _branch("b.33", 288, (35, 1, 64), (35, 9, 96), (17, 9, 96))
    for place, inner in enumerate((128, 160, 160, 192), 1):
        yield from _branch(f"c{place}.1", 768, (17, 1, 192))
        yield from _branch(f"c{place}.7", 768, (17, 1, inner), (17, 7, inner), (17, 7, 192))
        yield from _branch(f"c{place}.77", 768, (17, 1, inner), *[(17, 7, inner)] * 3, (17, 7, 192))
        yield from _branch(f"c{place}.pool", 768, (17, 1, 192))
    yield from _branch("d.3", 768, (17, 1, 192), (8, 9, 320))
    yield from _branch("d.7", 768, (17, 1, 192), (17, 7, 192), (17, 7, 192), (8, 9, 192))
    for name, taken in (("e1", 1280), ("e2", 2048)):
        yield from _branch(f"{name}.1", taken, (8, 1, 320))
        yield from _forked(f"{name}.3", taken, (8, 1, 384))
        yield from _forked(f"{name}.33", taken, (8, 1, 448), (8, 9, 384))
        yield from _branch(f"{name}.pool", taken, (8, 1, 192))


def _branch(name: str, taken: int, *layers: tuple[int, int, int]) -> Iterator[Shape]:
    """Convolutions in a row: the side of the output, values of the kernel, channels of the output."""
    for place, (side, kernel, channels) in enumerate(layers, 1):
        yield Shape(f"{name}.{place}", side * side, taken * kernel, channels)
        taken = channels


def _forked(name: str, taken: int, *layers: tuple[int, int, int]) -> Iterator[Shape]:
    """A branch that ends in a row and a column of three, side by side."""
    yield from _branch(name, taken, *layers)
    for end in ("row", "column"):
        yield from _branch(f"{name}.{end}", 384, (8, 3, 384))


def vgg19(batch: int = 16, on: Accelerator | None = None, vectors: bool = False) -> Workload:
    """VGG-19: 143.6 M weights, 103 M of them in one layer; with `vectors`, 38 gradients."""
    shapes = (
        *_threes(),
        Shape("fc6", 1, 512 * 7 * 7, 4096),
        Shape("fc7", 1, 4096, 4096),
        Shape("fc8", 1, 4096, 1000),
    )
    told = tuple(with_vectors(shapes, norms=False)) if vectors else shapes
    source = "Simonyan and Zisserman, ICLR 2015, table 1, column E"
    return workload("VGG-19", told, source, batch=batch, on=on)


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
