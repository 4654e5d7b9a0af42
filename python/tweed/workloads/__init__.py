"""Computations of other shapes than one model trained on one batch, over the same parts.

tasks          many small pure computations, over workers that straggle and die
coded          products of a large matrix, coded: any k of n parts are enough
double_ml      effects with confidence intervals: many fits of any learners, as tasks
fixed_points   networks at rest, and rules by which they learn
split          models that are split between clients and a server, or between parties with different columns
"""

from __future__ import annotations
