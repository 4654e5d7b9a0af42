"""Stage: which values, in which form? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.compress.annealed import Relaxing
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
from tweed.compress.clipped_noise import ClippedNoise
from tweed.compress.codes import Codes
from tweed.compress.drop_all import Nothing
from tweed.compress.entries import Entries
from tweed.compress.error_feedback import ErrorFeedback
from tweed.compress.error_reset import ErrorReset
from tweed.compress.half import Half
from tweed.compress.identity import Identity
from tweed.compress.lazy_aggregation import LazyAggregation
from tweed.compress.levels import Levels
from tweed.compress.local_residual import LocalResidual
from tweed.compress.low_rank import LowRank
from tweed.compress.nonzero import Nonzero
from tweed.compress.packet import Packet, Values, unpack
from tweed.compress.quantise import Quantise
from tweed.compress.random_blocks import RandomBlocks
from tweed.compress.random_k import RandomK
from tweed.compress.random_tensors import RandomTensors
from tweed.compress.sign import Sign
from tweed.compress.step_ahead import StepAhead
from tweed.compress.threshold import Threshold
from tweed.compress.top_k import TopK
from tweed.compress.without_memory import Direct

__all__ = [
    "Auto",
    "Chain",
    "ClippedNoise",
    "Codec",
    "Codes",
    "Compressor",
    "Direct",
    "Entries",
    "ErrorFeedback",
    "ErrorReset",
    "Half",
    "Identity",
    "LazyAggregation",
    "Levels",
    "LocalResidual",
    "LowRank",
    "MeasuresNorm",
    "Memory",
    "Nonzero",
    "Nothing",
    "Packet",
    "Quantise",
    "RandomBlocks",
    "RandomK",
    "RandomTensors",
    "ReduceRequest",
    "Relaxing",
    "Rounds",
    "Sign",
    "Spec",
    "StepAhead",
    "Threshold",
    "TopK",
    "Turn",
    "Update",
    "Values",
    "unpack",
]
