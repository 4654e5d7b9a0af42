"""Theta, its standard error and confidence intervals, from scores that are linear in theta.

    psi(theta) = psi_a theta + psi_b        per unit; theta is where their mean is zero (DML2)

Source: Chernozhukov, Chetverikov, Demirer, Duflo, Hansen, Newey, Robins, "Double/debiased machine learning
for treatment and structural parameters", The Econometrics Journal, 2018: Definition 3.2, Theorem 3.2 and, for
repetitions, Definition 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tweed.errors import UsageError
from tweed.workloads.double_ml.data import Values
from tweed.workloads.double_ml.folds import Folds


class Solution(NamedTuple):
    """What one repetition comes to; `psi` is `[n]`, the score of each unit at theta."""

    theta: float
    standard_error: float
    psi: Values


def solved(psi_a: Values, psi_b: Values) -> Solution:
    """Theta at which the mean score is zero, with its standard error.

    Args:
      psi_a, psi_b: `[n]` each.

    Raises: UsageError if the data say nothing of theta, as the mean of psi_a is zero.
    """
    slope = float(psi_a.mean())
    theta = -float(psi_b.mean()) / slope if slope else math.nan
    psi = psi_a * theta + psi_b
    error = math.sqrt(float(np.mean(psi * psi)) / slope**2 / len(psi)) if math.isfinite(theta) else math.nan
    if not math.isfinite(error):
        raise UsageError(
            f"theta is not identified: the score has slope {slope:g} in it. Nothing of the treatment, or of "
            "the instrument's effect on it, is left when the controls are held fixed"
        )
    return Solution(theta, error, psi)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What repeated cross-fitting has found.

    Attributes:
      thetas, standard_errors: `[repetitions]`, of each repetition.
      psi: `[repetitions, n]`, the scores at theta.
      predictions: by nuisance function, `[repetitions, n]`, each of a learner that has not seen the unit.
      folds: `[repetitions, n]`, the fold of each unit.
    """

    thetas: Values
    standard_errors: Values
    psi: Values
    predictions: Mapping[str, Values]
    folds: Folds

    @property
    def theta(self) -> float:
        """The effect: the median over repetitions."""
        return float(np.median(self.thetas))

    @property
    def standard_error(self) -> float:
        """Square root of the median over repetitions of `se_r^2 + (theta_r - theta)^2`."""
        return math.sqrt(np.median(self.standard_errors**2 + (self.thetas - self.theta) ** 2))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval: theta and so many standard errors on each side.

        Args:
          level: above 0 and below 1.

        Raises: UsageError for other levels.
        """
        if not 0 < level < 1:
            raise UsageError(
                f"a confidence level of {level} cannot be: give one between 0 and 1, such as 0.95"
            )
        margin = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        return self.theta - margin, self.theta + margin
