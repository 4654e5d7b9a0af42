"""Stage: which transfer goes first? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.order.base import Committed, Drop, Ended, Offered, Order, Reserved, Send, Transfer, Withdrawn
from tweed.order.bounded_delay import BoundedDelay
from tweed.order.priority import FirstIn, NewestFirst, ShortestFirst

__all__ = [
    "BoundedDelay",
    "Committed",
    "Drop",
    "Ended",
    "FirstIn",
    "NewestFirst",
    "Offered",
    "Order",
    "Reserved",
    "Send",
    "ShortestFirst",
    "Transfer",
    "Withdrawn",
]
