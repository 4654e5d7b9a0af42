"""Models of double machine learning, by the names of their literature.

    PLR     y = theta d + g(x) + error                       partially linear regression
    PLIV    the same, where z moves d and nothing else       with an instrument
    IRM     y = g(d, x) + error, d binary                    theta is the average treatment effect
    IIVM    the same, where a binary z moves d               the effect on those that z moves (LATE)

Learners have the names of the DoubleML package: any with scikit-learn's interface, or a `Learner`.
Source: Chernozhukov et al. 2018, sections 4 and 5, see `inference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tweed.errors import UsageError
from tweed.workloads.double_ml.cross_fitting import Model, Nuisance
from tweed.workloads.double_ml.data import Sample, Values


@dataclass(frozen=True, slots=True)
class PLR(Model):
    """Partially linear regression, with the score that partials out.

    Attributes:
      ml_l: learner of E[y | x].
      ml_m: learner of E[d | x].
    """

    ml_l: Any
    ml_m: Any

    def nuisances(self) -> tuple[Nuisance, ...]:
        return Nuisance("l", "ml_l", "y"), Nuisance("m", "ml_m", "d")

    def score(self, sample: Sample, hat: Mapping[str, Values]) -> tuple[Values, Values]:
        v = sample.d - hat["m"]
        return -v * v, v * (sample.y - hat["l"])


@dataclass(frozen=True, slots=True)
class PLIV(Model):
    """Partially linear regression with an instrument, with the score that partials out.

    Attributes:
      ml_l: learner of E[y | x].
      ml_m: learner of E[z | x].
      ml_r: learner of E[d | x].
    """

    variables: ClassVar[tuple[str, ...]] = ("y", "d", "z")

    ml_l: Any
    ml_m: Any
    ml_r: Any

    def nuisances(self) -> tuple[Nuisance, ...]:
        return Nuisance("l", "ml_l", "y"), Nuisance("m", "ml_m", "z"), Nuisance("r", "ml_r", "d")

    def score(self, sample: Sample, hat: Mapping[str, Values]) -> tuple[Values, Values]:
        v = sample.variables()["z"] - hat["m"]
        return -(sample.d - hat["r"]) * v, v * (sample.y - hat["l"])


@dataclass(frozen=True, slots=True)
class IRM(Model):
    """Interactive regression of a binary treatment: its average effect (ATE).

    Attributes:
      ml_g: learner of E[y | x, d], fitted for each d apart.
      ml_m: classifier of E[d | x].
      clip: probabilities are held between this and one minus this.

    Raises: UsageError for a `clip` that cannot be.
    """

    binary: ClassVar[tuple[str, ...]] = ("d",)
    classifiers: ClassVar[tuple[str, ...]] = ("ml_m",)

    ml_g: Any
    ml_m: Any
    clip: float = 0.01

    def __post_init__(self) -> None:
        _check_clip(self.clip)

    def nuisances(self) -> tuple[Nuisance, ...]:
        g0, g1 = (Nuisance(f"g{d}", "ml_g", "y", ("d", d)) for d in (0, 1))
        return g0, g1, Nuisance("m", "ml_m", "d")

    def score(self, sample: Sample, hat: Mapping[str, Values]) -> tuple[Values, Values]:
        m = np.clip(hat["m"], self.clip, 1 - self.clip)
        return -np.ones(sample.units), _doubly_robust(sample.y, sample.d, hat["g0"], hat["g1"], m)


@dataclass(frozen=True, slots=True)
class IIVM(Model):
    """Interactive regression with a binary instrument: the local average treatment effect (LATE).

    Attributes:
      ml_g: learner of E[y | x, z], fitted for each z apart.
      ml_m: classifier of E[z | x].
      ml_r: classifier of E[d | x, z], fitted for each z apart.
      always_takers: units may be treated at z = 0; where none can, False, and nothing is fitted there.
      never_takers: units may be untreated at z = 1, in the same way.
      clip: probabilities of z are held between this and one minus this.

    Raises: UsageError for a `clip` that cannot be.
    """

    variables: ClassVar[tuple[str, ...]] = ("y", "d", "z")
    binary: ClassVar[tuple[str, ...]] = ("d", "z")
    classifiers: ClassVar[tuple[str, ...]] = ("ml_m", "ml_r")

    ml_g: Any
    ml_m: Any
    ml_r: Any
    always_takers: bool = True
    never_takers: bool = True
    clip: float = 0.01

    def __post_init__(self) -> None:
        _check_clip(self.clip)

    def nuisances(self) -> tuple[Nuisance, ...]:
        g0, g1 = (Nuisance(f"g{z}", "ml_g", "y", ("z", z)) for z in (0, 1))
        takers = {0: self.always_takers, 1: self.never_takers}
        r = (Nuisance(f"r{z}", "ml_r", "d", ("z", z)) for z, may in takers.items() if may)
        return g0, g1, Nuisance("m", "ml_m", "z"), *r

    def score(self, sample: Sample, hat: Mapping[str, Values]) -> tuple[Values, Values]:
        z, m = sample.variables()["z"], np.clip(hat["m"], self.clip, 1 - self.clip)
        r0, r1 = hat.get("r0", np.zeros(sample.units)), hat.get("r1", np.ones(sample.units))
        effect = _doubly_robust(sample.y, z, hat["g0"], hat["g1"], m)
        return -_doubly_robust(sample.d, z, r0, r1, m), effect


def _doubly_robust(y: Values, d: Values, g0: Values, g1: Values, m: Values) -> Values:
    """What d changes in y, per unit: regressions, corrected by residuals over the probability of d."""
    return g1 - g0 + d * (y - g1) / m - (1 - d) * (y - g0) / (1 - m)


def _check_clip(clip: float) -> None:
    if not 0 < clip < 0.5:
        raise UsageError(f"probabilities cannot be clipped at {clip}: give a number between 0 and 0.5")
