"""What a worker does: it fits a nuisance function on bitmaps of units, and predicts the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tweed.errors import UsageError
from tweed.workloads.double_ml.data import Values
from tweed.workloads.double_ml.folds import Bitmap, fit_seed, members
from tweed.workloads.double_ml.learners import made, seeded


def fit_folds(payload: dict[str, Any], shared: dict[str, Any]) -> Values:
    """Predictions for the units that a fold's training set leaves out, one fold after the other.

    Args:
      payload: "nuisance", "repetition" and "folds" are the key of the fits; "train" is their bitmaps,
        `[folds, ceil(n / 8)]`, "seed" that of the estimation.
      shared: "x" and the variables by name; "nuisances", a dict each: see `cross_fitting.shared_of`.

    Raises: UsageError for predictions of another shape; what the learner raises, with a note which fit it is.
    Cost: a fit per fold, with one BLAS thread: so that equal payloads give equal bits.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        found = [
            _predictions(payload, shared, fold, bitmap)
            for fold, bitmap in zip(payload["folds"], payload["train"], strict=True)
        ]
    return np.concatenate(found)


def _predictions(payload: dict[str, Any], shared: dict[str, Any], fold: int, bitmap: Bitmap) -> Values:
    nuisance, x = shared["nuisances"][payload["nuisance"]], shared["x"]
    outside = members(bitmap, len(x))
    train = outside.copy()
    if nuisance["given"] is not None:
        variable, value = nuisance["given"]
        train &= shared[variable] == value
    seed = fit_seed(payload["seed"], payload["nuisance"], payload["repetition"], fold)
    target = shared[nuisance["target"]][train]
    try:
        return _fitted(nuisance, seed, (x[train], target), x[~outside])
    except Exception as error:
        error.add_note(f"in the fit of {nuisance['name']}, fold {fold} of repetition {payload['repetition']}")
        raise


def _fitted(nuisance: dict[str, Any], seed: int, train: tuple[Values, Values], x: Values) -> Values:
    """What a learner that was fitted on `train` predicts for `x`; of a classifier, the probability of 1."""
    learner = seeded(made(nuisance["learner"]), seed)
    if nuisance["is_classifier"]:
        predicted = learner.fit(train[0], train[1].astype(np.int64)).predict_proba(x)[:, 1]
    else:
        predicted = learner.fit(*train).predict(x)
    predicted = np.asarray(predicted, dtype=np.float64)
    if predicted.shape != (len(x),):
        raise UsageError(f"{type(learner).__name__} predicts {list(predicted.shape)} for {len(x)} units")
    return predicted
