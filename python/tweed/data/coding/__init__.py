"""Parts of the work with replication, so that a sum is known before all workers have answered. Pure.

    messages = nested(workers=20, load=3)        # what each worker computes, and sends, in which order
    weights = decode(rows, wanted)               # what came -> the sum over all shards

A *message* is a row of coefficients over shards: the worker computes the gradients of those that are not
zero, and sends their sum, weighted so. Whatever came, in whatever order: the sum over all shards is known as
soon as the row of ones is a combination of the rows that came. Codes for products of matrices, whose sums are
not of shards, are in `lagrange` and `mds`.

`work` has of each code what workers compute and send, `times` how long that takes, and which is quickest;
`product_times` has the same for products, and the best k.
"""

from __future__ import annotations

from tweed.data.coding.gradient_codes import decode, gradient_code, hybrid, nested, uncoded
from tweed.data.coding.lagrange import Lagrange
from tweed.data.coding.mds import MdsCode, mds_code
from tweed.data.coding.work import CODES, Work, halves, lagrange_of, work_of

__all__ = [
    "CODES",
    "Lagrange",
    "MdsCode",
    "Work",
    "decode",
    "gradient_code",
    "halves",
    "hybrid",
    "lagrange_of",
    "mds_code",
    "nested",
    "uncoded",
    "work_of",
]
