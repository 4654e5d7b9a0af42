"""Stage: which transfer goes first? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.order.base import (
    AllOffered,
    Committed,
    Drop,
    Ended,
    Offered,
    Order,
    Reserved,
    Send,
    Transfer,
    Withdrawn,
)
from tweed.order.bounded_delay import BoundedDelay
from tweed.order.listed import Listed
from tweed.order.pieces import Piece, pieces
from tweed.order.priority import ByLayer, Credit, FirstIn, NewestFirst, ShortestFirst
from tweed.order.prophet import Burst, Prophet, bursts
from tweed.order.tuning import CreditTuner

__all__ = [
    "AllOffered",
    "BoundedDelay",
    "Burst",
    "ByLayer",
    "Committed",
    "Credit",
    "CreditTuner",
    "Drop",
    "Ended",
    "FirstIn",
    "Listed",
    "NewestFirst",
    "Offered",
    "Order",
    "Piece",
    "Prophet",
    "Reserved",
    "Send",
    "ShortestFirst",
    "Transfer",
    "Withdrawn",
    "bursts",
    "pieces",
]
