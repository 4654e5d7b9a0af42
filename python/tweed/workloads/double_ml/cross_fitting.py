"""Repeated cross-fitting as tasks: each unit is predicted by learners that have not seen it.

    data, learners ── shared ──────────────> workers        once each
    key and bitmaps of a task ─────────────> fit_folds ──> predictions of the folds ──> scores ──> theta

A fine task is one fit: of a nuisance function, for a fold of a repetition. A coarse one does all folds of a
repetition. Both draw the same seeds, so theta has the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tweed.errors import NonFinite, UsageError
from tweed.workloads.double_ml.data import Sample, Values
from tweed.workloads.double_ml.fits import fit_folds
from tweed.workloads.double_ml.folds import Folds, draw_folds, training_bitmap
from tweed.workloads.double_ml.inference import Estimate, solved
from tweed.workloads.double_ml.learners import gives_classes, plain
from tweed.workloads.tasks import map_tasks

Grain = Literal["fine", "coarse"]


class Nuisance(NamedTuple):
    """The conditional mean of `target`, given the controls, that a learner fits.

    Attributes:
      learner: the field of the model that holds it.
      target: a variable, "y", "d" or "z".
      given: a variable and its value: only such units are fitted on; None: all.
    """

    name: str
    learner: str
    target: str
    given: tuple[str, int] | None = None


class MapTasks(Protocol):
    """What runs tasks: `map_tasks`, or another function that gives results by task."""

    def __call__(self, function: Any, payloads: Iterable[Any], *, shared: Any) -> Mapping[int, Any]:
        """Runs `function(payload, shared)` for each payload."""


class Model(ABC):
    """A model with an effect theta, nuisance functions, and a score that is linear in theta.

    Attributes:
      variables: what a sample must have; `binary` of them are 0 or 1, and folds are stratified by them.
      classifiers: fields with learners that must give probabilities.
    """

    variables: ClassVar[tuple[str, ...]] = ("y", "d")
    binary: ClassVar[tuple[str, ...]] = ()
    classifiers: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def nuisances(self) -> tuple[Nuisance, ...]:
        """The functions that learners fit."""

    @abstractmethod
    def score(self, sample: Sample, hat: Mapping[str, Values]) -> tuple[Values, Values]:
        """psi_a and psi_b, `[n]` each.

        Args:
          hat: by nuisance function, its predictions, `[n]`.
        """

    def fit(
        self,
        sample: Sample,
        *,
        folds: int = 5,
        repetitions: int = 1,
        seed: int = 0,
        grain: Grain = "fine",
        tasks: MapTasks = map_tasks,
    ) -> Estimate:
        """Estimates theta by repeated cross-fitting.

        Args:
          folds: in how many the sample is split.
          repetitions: of all of it, each with other folds.
          seed: draws folds, and each `random_state` that a learner leaves open. The same seed gives the same
            bits, whatever the grain, and wherever and in whatever order tasks run: with the same versions, on
            processors of one kind.
          grain: "fine", a task per fit; "coarse", one per nuisance function and repetition.
          tasks: runs them, such as `functools.partial(map_tasks, workers=4)`.

        Raises:
          UsageError: the sample, learners or folds do not go with the model; or theta is not identified.
          TaskFailed: a learner raised an error; its text names the fit.
          NonFinite: a learner's predictions are not finite.
          What `tasks` raises besides.

        Cost: `folds * repetitions` fits per nuisance function. A payload has a bit per unit and fold, a
          result 8 bytes per unit.
        Source: Chernozhukov et al. 2018, see `inference`; tasks: Kurz, "Distributed double machine learning
          with a serverless architecture", 2021.
        """
        self._check(sample)
        shared = shared_of(self, sample)
        drawn = draw_folds(self._strata(sample), folds, repetitions, seed)
        _check_training(shared, drawn, folds)
        payloads = payloads_of(len(shared["nuisances"]), drawn, seed, grain)
        results = tasks(fit_folds, payloads, shared=shared)
        predictions = _gathered(shared["nuisances"], payloads, results, drawn)
        solutions = [
            solved(*self.score(sample, {name: rows[repetition] for name, rows in predictions.items()}))
            for repetition in range(repetitions)
        ]
        thetas, errors, psi = (np.array(column) for column in zip(*solutions, strict=True))
        return Estimate(thetas, errors, psi, predictions, drawn)

    def _check(self, sample: Sample) -> None:
        name, has = type(self).__name__, tuple(sample.variables())
        if has != self.variables:
            more = "an instrument z is missing" if "z" in self.variables else "it uses no instrument z"
            raise UsageError(
                f"the sample does not go with {name}: {more}. PLIV and IIVM use one, PLR and IRM not"
            )
        for variable in self.binary:
            if not np.isin(sample.variables()[variable], (0, 1)).all():
                raise UsageError(
                    f"{name} needs {variable} to be 0 or 1 for each unit; PLR and PLIV take any values"
                )

    def _strata(self, sample: Sample) -> NDArray[np.int64]:
        strata = np.zeros(sample.units, dtype=np.int64)
        for variable in self.binary:
            strata = 2 * strata + sample.variables()[variable].astype(np.int64)
        return strata


def shared_of(model: Model, sample: Sample) -> dict[str, Any]:
    """What all tasks share: the sample, and under "nuisances" a dict for each function to fit.

    Raises: UsageError for learners that cannot be sent or made, and those of another kind than is needed.
    """
    described = []
    for nuisance in model.nuisances():
        learner = plain(getattr(model, nuisance.learner), nuisance.learner)
        is_classifier = gives_classes(learner, nuisance.learner)
        _check_kind(model, nuisance, is_classifier, sample)
        described.append({**nuisance._asdict(), "learner": learner, "is_classifier": is_classifier})
    return {"x": sample.x, **sample.variables(), "nuisances": described}


def _check_kind(model: Model, nuisance: Nuisance, is_classifier: bool, sample: Sample) -> None:
    field, target = nuisance.learner, nuisance.target
    if field in model.classifiers and not is_classifier:
        raise UsageError(
            f"{field} of {type(model).__name__} must be a classifier: it fits probabilities of {target}"
        )
    if is_classifier and not np.isin(sample.variables()[target], (0, 1)).all():
        raise UsageError(
            f"{field} is a classifier, and {target} is not 0 or 1 for each unit: give a regressor"
        )


def _check_training(shared: Mapping[str, Any], drawn: Folds, folds: int) -> None:
    """Each training set must have units, and for a classifier both classes."""
    for nuisance in shared["nuisances"]:
        target, given = shared[nuisance["target"]], nuisance["given"]
        among = np.ones(len(target), dtype=bool) if given is None else shared[given[0]] == given[1]
        for repetition, row in enumerate(drawn):
            for fold in range(folds):
                seen = target[among & (row != fold)]
                if not len(seen) or (nuisance["is_classifier"] and np.ptp(seen) == 0):
                    where = f"outside fold {fold} of repetition {repetition}"
                    units = f"{len(seen)} units" + ("" if given is None else f" with {given[0]} = {given[1]}")
                    one = f", all with {nuisance['target']} = {seen[0]:g}" if len(seen) else ""
                    raise UsageError(f"{nuisance['name']} cannot be fitted {where}: there are {units}{one}")


def payloads_of(nuisances: int, drawn: Folds, seed: int, grain: Grain) -> list[dict[str, Any]]:
    """The payloads of all tasks, by nuisance function, repetition and, where the grain is fine, fold.

    Raises: UsageError for another grain.
    """
    if grain not in ("fine", "coarse"):
        raise UsageError(f"tasks of grain {grain!r} cannot be: give 'fine' or 'coarse'")
    folds = range(int(drawn.max()) + 1)
    parts = [[fold] for fold in folds] if grain == "fine" else [[*folds]]
    return [
        {
            "nuisance": nuisance,
            "repetition": repetition,
            "folds": part,
            "train": np.stack([training_bitmap(row, fold) for fold in part]),
            "seed": seed,
        }
        for nuisance in range(nuisances)
        for repetition, row in enumerate(drawn)
        for part in parts
    ]


def _gathered(
    nuisances: Sequence[Mapping[str, Any]],
    payloads: Sequence[Mapping[str, Any]],
    results: Mapping[int, Any],
    drawn: Folds,
) -> dict[str, Values]:
    """Predictions by nuisance function, `[repetitions, n]`. Raises NonFinite."""
    found = {nuisance["name"]: np.full(drawn.shape, np.nan) for nuisance in nuisances}
    for task, payload in enumerate(payloads):
        name, repetition = nuisances[payload["nuisance"]]["name"], payload["repetition"]
        rest = results[task]
        for fold in payload["folds"]:
            units = drawn[repetition] == fold
            predicted, rest = np.split(rest, [np.count_nonzero(units)])
            if bad := int(np.count_nonzero(~np.isfinite(predicted))):
                raise NonFinite(
                    f"{bad} of {len(predicted)} predictions of {name} are not finite, in fold {fold} of "
                    f"repetition {repetition}: see what its learner does there, or scale the controls"
                )
            found[name][repetition, units] = predicted
    return found
