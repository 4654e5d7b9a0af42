"""Strategies that have a name: each is one visible expression over parts.

in_step    ranks of a group exchange something in each step
by_rounds  they take steps alone, and then exchange
hub        workers reach a hub when they like
named      strategies by their names, for command lines and configuration files

A new one is a function in one of the first three, and a row of `RECIPES`.
"""

from __future__ import annotations

from collections.abc import Callable

from tweed.recipes.by_rounds import (
    diloco,
    local_sign,
    local_steps,
    local_top_k,
    ofedqit,
    overlapped_top_k,
    qsparse_local,
)
from tweed.recipes.hub import (
    mlfabric,
    teasq,
    zeno_ps,
)
from tweed.recipes.in_step import (
    auto,
    bytescheduler,
    csea,
    cser,
    cser_pl,
    dct,
    ef_sgd,
    every_step,
    factors,
    half,
    lag,
    ltp,
    ordered_gradient,
    p3,
    powersgd,
    prophet,
    quantised,
    saef,
    sign,
    sparse,
    top_k,
    urgent,
)
from tweed.strategy import Strategy

__all__ = [
    "RECIPES",
    "auto",
    "bytescheduler",
    "csea",
    "cser",
    "cser_pl",
    "dct",
    "diloco",
    "ef_sgd",
    "every_step",
    "factors",
    "half",
    "lag",
    "local_sign",
    "local_steps",
    "local_top_k",
    "ltp",
    "mlfabric",
    "ofedqit",
    "ordered_gradient",
    "overlapped_top_k",
    "p3",
    "powersgd",
    "prophet",
    "qsparse_local",
    "quantised",
    "saef",
    "sign",
    "sparse",
    "teasq",
    "top_k",
    "urgent",
    "zeno_ps",
]

#: All of them, in the order in which they are listed.
RECIPES: tuple[Callable[..., Strategy], ...] = (
    every_step,
    local_steps,
    ltp,
    auto,
    urgent,
    p3,
    bytescheduler,
    prophet,
    local_sign,
    local_top_k,
    overlapped_top_k,
    cser,
    csea,
    cser_pl,
    ef_sgd,
    half,
    quantised,
    sign,
    top_k,
    sparse,
    factors,
    powersgd,
    qsparse_local,
    saef,
    dct,
    diloco,
    lag,
    ofedqit,
    ordered_gradient,
    teasq,
    mlfabric,
    zeno_ps,
)
