"""Stage: what is the sum, and who is believed? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.aggregate.base import (
    Aggregate,
    Answer,
    Arrival,
    InnerProducts,
    Losses,
    Question,
    Reason,
    TrustedGradient,
    TrustedSteps,
    Verdict,
    conclude,
    concluded,
    of_range,
)
from tweed.aggregate.bucketing import Bucketing
from tweed.aggregate.bulyan import Bulyan
from tweed.aggregate.by_layers import ByLayers
from tweed.aggregate.caf import CAF
from tweed.aggregate.centred_clipping import CentredClipping
from tweed.aggregate.commit_rule import All, Cache, CommitRule, Each, Quorum, Round
from tweed.aggregate.delay_adaptive import DelayAdaptive
from tweed.aggregate.fl_trust import FLTrust
from tweed.aggregate.fools_gold import FoolsGold
from tweed.aggregate.geometric_median import GeometricMedian
from tweed.aggregate.krum import Krum, MultiKrum
from tweed.aggregate.mda import MDA
from tweed.aggregate.mean import Mean
from tweed.aggregate.mean_around_median import MeanAroundMedian
from tweed.aggregate.median import Median
from tweed.aggregate.monna import MoNNA
from tweed.aggregate.nearest_neighbour_mixing import NearestNeighbourMixing
from tweed.aggregate.norm_clipping import ARC, NormClipping
from tweed.aggregate.phocas import Phocas
from tweed.aggregate.q_fair import QFair
from tweed.aggregate.smea import SMEA
from tweed.aggregate.three_sigma import ThreeSigma
from tweed.aggregate.trimmed_mean import TrimmedMean
from tweed.aggregate.trusted import TrustedSamples
from tweed.aggregate.weighted import Weighted
from tweed.aggregate.zeno import Zeno
from tweed.aggregate.zeno_plus_plus import ZenoPlusPlus
from tweed.aggregate.zeno_ps import ZenoPS
from tweed.aggregate.zeno_ps_async import ZenoPSAsync

__all__ = [
    "ARC",
    "CAF",
    "MDA",
    "SMEA",
    "Aggregate",
    "All",
    "Answer",
    "Arrival",
    "Bucketing",
    "Bulyan",
    "ByLayers",
    "Cache",
    "CentredClipping",
    "CommitRule",
    "DelayAdaptive",
    "Each",
    "FLTrust",
    "FoolsGold",
    "GeometricMedian",
    "InnerProducts",
    "Krum",
    "Losses",
    "Mean",
    "MeanAroundMedian",
    "Median",
    "MoNNA",
    "MultiKrum",
    "NearestNeighbourMixing",
    "NormClipping",
    "Phocas",
    "QFair",
    "Question",
    "Quorum",
    "Reason",
    "Round",
    "ThreeSigma",
    "TrimmedMean",
    "TrustedGradient",
    "TrustedSamples",
    "TrustedSteps",
    "Verdict",
    "Weighted",
    "Zeno",
    "ZenoPS",
    "ZenoPSAsync",
    "ZenoPlusPlus",
    "conclude",
    "concluded",
    "of_range",
]
