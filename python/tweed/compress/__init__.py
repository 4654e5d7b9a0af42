"""Stage: which numbers, in which form? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.compress.base import Ask, Compressor, Memory, Placed, Spec, Turn
from tweed.compress.direct import Direct
from tweed.compress.entries import Entries
from tweed.compress.error_feedback import ErrorFeedback
from tweed.compress.identity import Identity
from tweed.compress.packet import Numbers, Packet, unpack
from tweed.compress.top_k import TopK

__all__ = [
    "Ask",
    "Compressor",
    "Direct",
    "Entries",
    "ErrorFeedback",
    "Identity",
    "Memory",
    "Numbers",
    "Packet",
    "Placed",
    "Spec",
    "TopK",
    "Turn",
    "unpack",
]
