"""All strategies that have a name."""

from __future__ import annotations

from collections.abc import Callable

from tweed.recipes.by_rounds import (
    diloco,
    local_sign,
    local_steps,
    local_top_k,
    ofedqit,
    qsparse_local,
)
from tweed.recipes.hub import (
    mlfabric,
    teasq,
    zeno_ps,
)
from tweed.recipes.in_step import (
    auto,
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
    powersgd,
    quantised,
    saef,
    sign,
    sparse,
    top_k,
)
from tweed.strategy import Strategy

#: All of them, in the order in which they are listed.
RECIPES: tuple[Callable[..., Strategy], ...] = (
    every_step,
    local_steps,
    ltp,
    auto,
    local_sign,
    local_top_k,
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
