"""Parts of the work with replication, so that a sum is known before all workers have answered. Pure.

    messages = nested(workers=20, load=3)        # what each worker computes, and sends, in which order
    weights = decode(rows, wanted)               # what came -> the sum over all shards

A *message* is a row of coefficients over shards: the worker computes the gradients of those that are not
zero, and sends their sum, weighted so. Whatever came, in whatever order: the sum over all shards is known as
soon as the row of ones is a combination of the rows that came. Codes for products of matrices, whose sums are
not of shards, are in `lagrange`.
"""

from __future__ import annotations

from tweed.data.coding.gradient_codes import decode, gradient_code, hybrid, nested, uncoded
from tweed.data.coding.lagrange import Lagrange

__all__ = ["Lagrange", "decode", "gradient_code", "hybrid", "nested", "uncoded"]
