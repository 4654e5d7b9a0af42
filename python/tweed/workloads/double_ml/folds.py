"""Who is in which fold, training sets as bitmaps, and the seed of each fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError
from tweed.rng import splitmix64

#: By repetition and unit, the fold in which the unit is predicted: `[repetitions, n]`.
Folds = NDArray[np.int64]
Bitmap = NDArray[np.uint8]

_FOLDS, _FIT = range(2)  # what is drawn, each apart from the other


def draw_folds(strata: NDArray[np.int64], folds: int, repetitions: int, seed: int) -> Folds:
    """Folds of equal size, each with its share of every stratum, both to one unit.

    Args:
      strata: `[n]`, the stratum of each unit.
      folds: at least 2, and at most n.
      repetitions: at least 1; each has other folds.
      seed: the same seed gives the same folds.

    Raises: UsageError for numbers of folds or repetitions that cannot be.
    """
    units = len(strata)
    if not 2 <= folds <= units:
        raise UsageError(f"{folds} folds of {units} units cannot be: give 2 to {units}, 5 are usual")
    if repetitions < 1:
        raise UsageError(f"{repetitions} repetitions cannot be: give 1 or more")
    rows = np.empty((repetitions, units), dtype=np.int64)
    for repetition, row in enumerate(rows):
        shuffled = np.random.default_rng(_key(seed, _FOLDS, repetition)).permutation(units)
        dealt = shuffled[np.argsort(strata[shuffled], kind="stable")]
        row[dealt] = np.arange(units) % folds
    return rows


def training_bitmap(row: NDArray[np.int64], fold: int) -> Bitmap:
    """The units outside a fold, a bit each: `[ceil(n / 8)]`.

    Args:
      row: `[n]`, the folds of one repetition.
    """
    return np.packbits(row != fold)


def members(bitmap: Bitmap, units: int) -> NDArray[np.bool_]:
    """A bitmap as `[units]` bool."""
    return np.unpackbits(bitmap, count=units).astype(np.bool_)


def fit_seed(seed: int, nuisance: int, repetition: int, fold: int) -> int:
    """The seed of a fit, of 32 bits: another one for each key, wherever and whenever it runs."""
    return _key(seed, _FIT, nuisance, repetition, fold) >> 32


def _key(seed: int, *numbers: int) -> int:
    key = splitmix64(seed)
    for number in numbers:
        key = splitmix64(key ^ number)
    return key
