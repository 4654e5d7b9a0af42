"""Rules and attacks, by the keys that notes have. Pure."""

from __future__ import annotations

from tweed.aggregate import All
from tweed.collective import Hub
from tweed.compress import LocalResidual, RandomTensors
from tweed.simulate.attacks import Attack, Noise, NoiseAsLong, SignFlip

#: No attack, and what is shown by no goal.
CLEAN, SHOWN = "none", ("Phocas", "ZenoPS, nothing skipped")

#: Workers, steps between exchanges, validators, samples that these share, and rates of links.
WORKERS, STEPS, VALIDATORS, POOL, FAST = 16, 8, 2, 1_000, (1e9, 1e9)
#: With which probability a layer is hostile, and what it is then.
HOSTILE = 0.2
ATTACKS: dict[str, Attack | None] = {
    CLEAN: None,
    "sign, sixfold": SignFlip(6.0),
    "noise, eightfold": NoiseAsLong(8.0),
    "noise": Noise(1.0),
}
SKIPS = LocalResidual(RandomTensors(0.2, skip_all=0.5))  # a fifth of layers, half of workers
HUB = Hub(0, All())
