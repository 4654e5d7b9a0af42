"""A sample of outcomes, treatments, controls and instruments, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Values = NDArray[np.float64]

#: A column is collinear whose part that no earlier column explains is less than this share of its norm.
_UNEXPLAINED = 1e-9
_CONSTANT = 1e-12  # of the norm: a column that varies by less is constant
_NAMES = {"y": "the outcome y", "d": "the treatment d", "z": "the instrument z"}


@dataclass(frozen=True, slots=True)
class Sample:
    """What was observed of n units. Arrays become float64.

    Attributes:
      y: outcome, `[n]`.
      d: treatment, `[n]`.
      x: controls, `[n, p]`.
      z: instrument, `[n]`; None: there is none.
      allow_collinear: controls may be linear combinations of others, as forests and Lasso can bear. They are
        not looked for where p is n - 1 or more.

    Raises: UsageError for other shapes, values that are not finite, a constant treatment or instrument,
      collinear controls, and a treatment that is a linear combination of the controls.
    Cost: `O(n p^2)` for a QR factorisation.
    """

    y: Values
    d: Values
    x: Values
    z: Values | None = None
    allow_collinear: bool = False

    def __post_init__(self) -> None:
        for name in ("y", "d", "x", "z"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _numbers(value, name))
        self._check_shapes()
        for name, values in self.variables().items():
            if name != "y" and np.ptp(values) == 0:
                raise UsageError(f"{_NAMES[name]} is {values[0]:g} for each unit: its effect cannot be known")
        if self.x.shape[1] + 1 < self.units:
            self._check_collinear()

    @property
    def units(self) -> int:
        """How many units were observed."""
        return len(self.y)

    def variables(self) -> dict[str, Values]:
        """All but the controls, by name."""
        found = {"y": self.y, "d": self.d}
        return found if self.z is None else {**found, "z": self.z}

    def _check_shapes(self) -> None:
        columns = self.variables()
        if (
            self.x.ndim != 2
            or not self.x.shape[1]
            or any(v.shape != self.x.shape[:1] for v in columns.values())
        ):
            shapes = ", ".join(f"{name} {list(v.shape)}" for name, v in {**columns, "x": self.x}.items())
            raise UsageError(f"a sample is of other shapes than [n], and [n, p] of x: {shapes}")
        for name, values in {**columns, "x": self.x}.items():
            if bad := int(np.count_nonzero(~np.isfinite(values))):
                raise UsageError(f"{bad} values of {name} are not finite: impute them, or drop their units")

    def _check_collinear(self) -> None:
        """Names columns that the columns before them explain: the controls in order, then the treatment."""
        columns = np.column_stack([self.x, self.d])
        centred = columns - columns.mean(axis=0)
        norms = np.linalg.norm(centred, axis=0)
        constant = norms <= _CONSTANT * np.linalg.norm(columns, axis=0)
        scaled = centred / np.where(constant, 1.0, norms)
        explained = np.abs(np.diag(np.linalg.qr(scaled, mode="r"))) <= _UNEXPLAINED
        collinear = np.flatnonzero(explained[:-1])
        if collinear.size and not self.allow_collinear:
            raise UsageError(
                f"controls are collinear: columns {collinear.tolist()} of x are constant, or linear "
                "combinations of columns before them. Drop them, or give allow_collinear=True where the "
                "learners can bear it"
            )
        if explained[-1]:
            raise UsageError(
                "the treatment d is a linear combination of the controls: nothing of it is left when they "
                "are held fixed. Drop the controls that hold it"
            )


def _numbers(value: Any, name: str) -> Values:
    try:
        return np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is no array of numbers: {error}. Give categories a column each") from None
