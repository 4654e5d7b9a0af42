"""Stage: what is the sum, and who is believed? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.aggregate.base import Aggregate, Arrival, Reason, Verdict
from tweed.aggregate.mean import Mean
from tweed.aggregate.trimmed_mean import TrimmedMean

__all__ = ["Aggregate", "Arrival", "Mean", "Reason", "TrimmedMean", "Verdict"]
