"""Networks whose output is a fixed point, and rules by which their weights learn.

solvers    a fixed point of a map: Euler's steps, or Anderson's mixing
implicit   `fixed_point`: of any map of torch, as in deep-equilibrium models; its gradient is implicit
network    `RateNetwork`, a recurrent network at rest
rules      how its weights learn: the plain gradient, and gradients under other metrics

A rule fills `.grad` in an ordinary backward pass, so optimizers, `tweed.attach` and DDP see nothing of it.

Source: Zhu and Rosenbaum, "Learning fixed points of recurrent neural networks by reparameterizing the network
  model", Neural Computation 36(8), 2024, arXiv 2307.06732.
"""

from __future__ import annotations

from tweed.workloads.fixed_points.implicit import fixed_point
from tweed.workloads.fixed_points.network import RateNetwork
from tweed.workloads.fixed_points.rules import Linearised, Plain, Reparameterised, Rule, Variant
from tweed.workloads.fixed_points.solvers import Anderson, Euler, Solver

__all__ = [
    "Anderson",
    "Euler",
    "Linearised",
    "Plain",
    "RateNetwork",
    "Reparameterised",
    "Rule",
    "Solver",
    "Variant",
    "fixed_point",
]
