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
#: Images of a query, and classes of which each has a score.
IMAGES, CLASSES = 64, 256
#: A pixel is a whole number below this.
LEVELS = 7
#: Of an image, and of a model's hidden layer: no value of that is above `_MOST`, no weight above `_WEIGHT`.
_FEATURES, _HIDDEN, _MOST, _WEIGHT = 32, 32, 255, 8


def query(numel: int, seed: int = 0) -> Array:
    """Images of `numel` pixels in all, drawn from the seed."""
    pixels = np.random.default_rng(seed).integers(0, LEVELS, numel, dtype=np.uint8)
    return pixels.astype(np.float32)


def scores(number: int, images: Array) -> Array:
    """What one model of the ensemble answers: two layers over the pooled pixels of each image.

    Args:
      number: which model; its weights are drawn from it.
      images: pixels of `IMAGES` images in a row, whole numbers below `LEVELS`.

    Returns: `[IMAGES * CLASSES]`, whole numbers below 2^16; `classes` reads them.
    """
    hidden, last = _weights(number)
    activation = np.clip(_pooled(images) @ hidden, 0, _MOST)
    return (activation @ last).astype(np.float32).ravel()


def classes(total: Array) -> npt.NDArray[np.intp]:
    """The class of each image that has the highest score, or sum of scores."""
    highest: npt.NDArray[np.intp] = total.reshape(IMAGES, CLASSES).argmax(axis=1)
    return highest


@cache
def _weights(number: int) -> tuple[_Matrix, _Matrix]:
    rng = np.random.default_rng(number)
    hidden = rng.integers(-1, 2, (_FEATURES, _HIDDEN))
    last = rng.integers(-_WEIGHT, _WEIGHT + 1, (_HIDDEN, CLASSES))
    return hidden.astype(np.float64), last.astype(np.float64)


def _pooled(images: Array) -> _Matrix:
    """`[IMAGES, _FEATURES]`: sums over so many groups of an image's pixels, less what they are on average."""
    width = images.size // (IMAGES * _FEATURES)
    groups = images[: IMAGES * _FEATURES * width].reshape(IMAGES, _FEATURES, width)
    pooled: _Matrix = groups.sum(axis=2, dtype=np.float64)
    return pooled - width * (LEVELS // 2)
