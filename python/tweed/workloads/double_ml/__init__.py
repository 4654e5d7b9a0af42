"""Double machine learning: an effect and its confidence interval, with any learners for what else matters.

models          `PLR`, `PLIV`, `IRM`, `IIVM`: their nuisance functions and scores
cross_fitting   repeated cross-fitting as tasks, fine or coarse, and what comes of their predictions
data            a sample, checked
folds           who is in which fold, training sets as bitmaps, seeds by the key of a fit
learners        learners as their class by name and their parameters
fits            what a worker does: fits of one nuisance function
inference       theta, standard errors, confidence intervals
simulated       samples with a known effect
bill            what such tasks cost as serverless functions, simulated

All but the fits themselves is pure.
"""

from __future__ import annotations

from tweed.workloads.double_ml.data import Sample
from tweed.workloads.double_ml.inference import Estimate
from tweed.workloads.double_ml.learners import Learner
from tweed.workloads.double_ml.models import IIVM, IRM, PLIV, PLR

__all__ = ["IIVM", "IRM", "PLIV", "PLR", "Estimate", "Learner", "Sample"]
