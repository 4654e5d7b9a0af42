"""Stage: which values, in which form? One file per family of methods; the contract is in `base`."""

from __future__ import annotations

from tweed.compress.autotuner import Auto
from tweed.compress.base import (
    Codec,
    Compressor,
    MeasuresNorm,
    Memory,
    ReduceRequest,
    Rounds,
    Spec,
    Turn,
    Update,
)
from tweed.compress.chain import Chain
from tweed.compress.codes import Codes
from tweed.compress.entries import Entries
from tweed.compress.error_feedback import Direct, ErrorFeedback, LazyAggregation
from tweed.compress.error_reset import ErrorReset, StepAhead
from tweed.compress.half import Half
from tweed.compress.identity import Identity, Nonzero, Nothing
from tweed.compress.low_rank import LowRank
from tweed.compress.packet import Packet, Values, unpack
from tweed.compress.quantise import Levels, Quantise, Sign
from tweed.compress.random_blocks import RandomBlocks, RandomK
from tweed.compress.top_k import Threshold, TopK

__all__ = [
    "Auto", "Chain", "Codec", "Codes", "Compressor", "Direct", "Entries", "ErrorFeedback", "ErrorReset",
    "Half", "Identity", "LazyAggregation", "Levels", "LowRank", "MeasuresNorm", "Memory", "Nonzero",
    "Nothing", "Packet", "Quantise", "RandomBlocks", "RandomK", "ReduceRequest", "Rounds", "Sign", "Spec",
    "StepAhead", "Threshold", "TopK", "Turn", "Update", "Values", "unpack",
]  # fmt: skip
