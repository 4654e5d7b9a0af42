"""Ways to train, by the keys that notes have. Pure."""

from __future__ import annotations

from tweed.systems.target_propagation.measured import Contender
from tweed.workloads.target_propagation import FixedFeedback

#: Epochs of a training that is judged, and of one that searches a learning rate.
EPOCHS, SEARCHED = 5, 2
#: Learning rates of DTP's feedback weights.
DTP_RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
FIXED_KEY = "fixed"
#: Those that are judged, by key.
CONTENDERS = (
    FIXED_KEY,
    "dtp",
    "fixed, plain",
    "fixed, scale 0.01",
    "fixed, scale 0.1",
    "fixed, half are zero",
)

#: By key, the ways to train; DTP has the best of its feedback's rates when it is judged.
WAYS: dict[str, Contender] = {
    FIXED_KEY: Contender(),
    **{f"dtp, feedback {rate:g}": Contender(None, rate) for rate in DTP_RATES},
    "fixed, plain": Contender(normalise=False),
    "fixed, scale 0.01": Contender(FixedFeedback(scale=1e-2)),
    "fixed, scale 0.1": Contender(FixedFeedback(scale=1e-1)),
    "fixed, half are zero": Contender(FixedFeedback(density=0.5)),
}
