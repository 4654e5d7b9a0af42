"""Rules by the keys that notes have. Pure."""

from __future__ import annotations

from typing import Any

from tweed.aggregate import (
    ARC,
    CAF,
    MDA,
    SMEA,
    Aggregate,
    Bucketing,
    Bulyan,
    CentredClipping,
    FoolsGold,
    GeometricMedian,
    Krum,
    Mean,
    MeanAroundMedian,
    Median,
    MoNNA,
    MultiKrum,
    NearestNeighbourMixing,
    NormClipping,
    Phocas,
    ThreeSigma,
    TrimmedMean,
)

#: No attack.
CLEAN = "none"

WORKERS, HOSTILE = 12, 2
Rule = Aggregate[Any]
RULES: dict[str, Rule] = {
    "mean": Mean(),
    "median": Median(),
    "trimmed mean": TrimmedMean(HOSTILE),
    "mean around median": MeanAroundMedian(HOSTILE),
    "Phocas": Phocas(HOSTILE),
    "Krum": Krum(HOSTILE),
    "Multi-Krum": MultiKrum(HOSTILE),
    "Bulyan": Bulyan(HOSTILE),
    "geometric median": GeometricMedian(),
    "centred clipping": CentredClipping(),
    "MDA": MDA(HOSTILE),
    "SMEA": SMEA(HOSTILE),
    "CAF": CAF(HOSTILE),
    "MoNNA": MoNNA(HOSTILE),
    "three sigma": ThreeSigma(),
    "FoolsGold": FoolsGold(),
    "clipping, mean": NormClipping(Mean()),
    "ARC, median": ARC(Median(), HOSTILE),
    "bucketing, Krum": Bucketing(Krum(HOSTILE)),
    "bucketing, median": Bucketing(Median()),
    "mixing, Krum": NearestNeighbourMixing(Krum(HOSTILE), HOSTILE),
    "mixing, median": NearestNeighbourMixing(Median(), HOSTILE),
}
