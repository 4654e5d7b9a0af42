"""An ensemble that serves: small models, the same in each process that knows their numbers.

Features, weights and scores are whole numbers, and so small that a 32-bit float holds the sum of 256 models'
scores. So this sum does not depend on its order, and one that formed on a network is compared bit for bit
with that of an ensemble in one process.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
_Matrix = npt.NDArray[np.float64]
#: Classes, of which each has a score for each image of a query.
CLASSES = 256
#: A pixel is a whole number below this.
LEVELS = 7
#: Of an image, and of a model's hidden layer: no value of that is above `_MOST`, no weight above `_WEIGHT`.
_FEATURES, _HIDDEN, _MOST, _WEIGHT = 32, 32, 255, 8
#: Of an image; each feature is of `_WIDTH` of them.
_WIDTH = 116
PIXELS = _FEATURES * _WIDTH


def query(numel: int, seed: int = 0) -> Array:
    """Images of `numel` pixels in all, drawn from the seed."""
    pixels = np.random.default_rng(seed).integers(0, LEVELS, numel, dtype=np.uint8)
    return pixels.astype(np.float32)


def scores(number: int, images: Array) -> Array:
    """What one model of the ensemble answers: two layers over the pooled pixels of each image.

    Args:
      number: which model; its weights are drawn from it.
      images: `PIXELS` of each image, one image after the other, whole numbers below `LEVELS`; what is left
        behind the last one makes none.

    Returns: `[images * CLASSES]`, whole numbers below 2^16; `classes` reads them.
    """
    hidden, last = _weights(number)
    activation = np.clip(_pooled(images) @ hidden, 0, _MOST)
    return (activation @ last).astype(np.float32).ravel()


def classes(total: Array) -> npt.NDArray[np.intp]:
    """The class of each image that has the highest score, or sum of scores."""
    highest: npt.NDArray[np.intp] = total.reshape(-1, CLASSES).argmax(axis=1)
    return highest


@cache
def _weights(number: int) -> tuple[_Matrix, _Matrix]:
    rng = np.random.default_rng(number)
    hidden = rng.integers(-1, 2, (_FEATURES, _HIDDEN))
    last = rng.integers(-_WEIGHT, _WEIGHT + 1, (_HIDDEN, CLASSES))
    return hidden.astype(np.float64), last.astype(np.float64)


def _pooled(images: Array) -> _Matrix:
    """`[images, _FEATURES]`: sums over so many groups of an image's pixels, less what they are on average."""
    whole = images[: images.size // PIXELS * PIXELS]
    pooled: _Matrix = whole.reshape(-1, _FEATURES, _WIDTH).sum(axis=2, dtype=np.float64)
    return pooled - _WIDTH * (LEVELS // 2)
