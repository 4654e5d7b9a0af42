"""Rates, sizes and rules, by the keys that notes have. Pure."""

from __future__ import annotations

#: Learning rates of the linear task, and sizes of networks with batches whose steps are timed.
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
#: The linearised rule at the rate that was best in the paper: its key, and that rate.
AS_PUBLISHED, PUBLISHED = "linearised, rate 0.25", 0.25
SIZES = ((300, 512), (1000, 32))
