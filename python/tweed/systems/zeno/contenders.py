"""Rules and attacks, by the keys that notes have. Pure."""

from __future__ import annotations

from tweed.aggregate import Krum
from tweed.simulate.attacks import Alie, Attack, Ipm, LabelFlip, Noise, SignFlip

#: No attack.
CLEAN = "none"

#: In step: workers, how many of them are hostile, and what these send.
WORKERS, HOSTILE = 20, 12
ATTACKS: dict[str, Attack | None] = {
    CLEAN: None,
    "sign": SignFlip(),
    "label": LabelFlip(),
    "noise": Noise(),
    "ALIE": Alie(1.5),
    "IPM": Ipm(),
}
SHOWN = ("ALIE", "IPM")  # by no goal: with three seeds
#: Asynchronous: the same, and one attack.
MEMBERS, LIARS, FLIP = 10, 6, SignFlip(10.0)
KRUM = Krum(9)  # it cannot hold against a majority: it is told of as many as it can be
