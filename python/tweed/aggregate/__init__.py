"""Stage: what is the sum, and who is believed? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.aggregate.base import Aggregate, Arrival, Reason, Verdict
from tweed.aggregate.mean import Mean
from tweed.aggregate.mean_around_median import MeanAroundMedian
from tweed.aggregate.median import Median
from tweed.aggregate.phocas import Phocas
from tweed.aggregate.trimmed_mean import TrimmedMean

__all__ = [
    "Aggregate",
    "Arrival",
    "Mean",
    "MeanAroundMedian",
    "Median",
    "Phocas",
    "Reason",
    "TrimmedMean",
    "Verdict",
]
