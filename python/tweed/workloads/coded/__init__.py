"""Products of a large matrix over workers that straggle: any k of n coded parts give them.

matrix     `CodedMatrix`: encodes once, decodes the product from those of any k parts; pure
products   `coded_matmul`, and `CodedProducts` for many of one matrix, over `map_tasks`
descent    gradient descent of least squares by its two products; pure
simulated  coded, uncoded, replicated and speculative products by a model of delays; pure

The codes are in `data.coding.mds`, expected times and the best k in `data.coding.product_times`.
"""

from __future__ import annotations

from tweed.workloads.coded.descent import least_squares
from tweed.workloads.coded.matrix import CodedMatrix
from tweed.workloads.coded.products import CodedProducts, coded_matmul
from tweed.workloads.coded.simulated import simulate_products

__all__ = ["CodedMatrix", "CodedProducts", "coded_matmul", "least_squares", "simulate_products"]
