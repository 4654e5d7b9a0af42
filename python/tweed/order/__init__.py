"""Stage: which transfer goes first? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.order.base import (
    AllOffered,
    Committed,
    Drop,
    Ended,
    GradientOrder,
    Offered,
    Order,
    Reserved,
    Send,
    Setting,
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
    "GradientOrder",
    "Listed",
    "NewestFirst",
    "Offered",
    "Order",
    "Piece",
    "Prophet",
    "Reserved",
    "Send",
    "Setting",
    "ShortestFirst",
    "Transfer",
    "Withdrawn",
    "bursts",
    "pieces",
]
