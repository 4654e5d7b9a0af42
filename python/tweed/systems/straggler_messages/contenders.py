"""Live sides by the keys that notes have, and models of stragglers. Pure."""

from __future__ import annotations

from tweed.cadence import ByShards

WORKERS, LOAD = 20, 3
MODELS = ((0.1, 10.0), (0.01, 10.0), (0.1, 2.0))
STRAGGLING, EVEN = "alpha 0.005, mu 20", "nobody straggles"

#: Live: by side the cadence, and the scheme of `SCHEMES` that it is.
SIDES: dict[str, tuple[ByShards, str | None]] = {
    "uncoded, one shard": (ByShards("uncoded", 1), "uncoded, one shard"),
    "uncoded, messages": (ByShards("uncoded", LOAD), "uncoded, messages"),
    "GC": (ByShards("gradient_code", LOAD), "GC"),
    "GC, messages": (ByShards("nested", LOAD), "GC, messages"),
    "LCC": (ByShards("lagrange, one message", LOAD), "LCC"),
    "LCC, messages": (ByShards("lagrange", LOAD), "LCC, messages"),
    "hybrid": (ByShards("hybrid", LOAD), "hybrid"),
    "uncoded, messages, 7 of 8": (ByShards("uncoded", LOAD, share=7 / 8), None),
    "chosen": (ByShards("auto", LOAD), None),
}
