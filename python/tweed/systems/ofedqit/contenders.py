"""Learners and points, by the keys that notes have. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tweed.data.streams import Learner, convolutions, perceptron
from tweed.systems.ofedqit.online_learning import Split

#: A budget, as a share of OFedAvg's traffic: that of the paper's successor.
HUNDREDTH = 0.01
#: By name: the model and slots.
LEARNERS: dict[str, tuple[Callable[[], Learner], int]] = {
    "perceptron": (perceptron, 600),
    "convolutions": (convolutions, 300),
}
FULL, LEAST = "OFedAvg", "chosen, 1 %"
#: The paper's points; the last two are the budgets of ours, beside `HUNDREDTH`.
THEIRS = {
    FULL: Split(),
    "OFedAvg, p=0.1": Split(0.1),
    "OFedQIT, 4.6 %": Split(1.0, 2, 1, 1000),
    "OFedQIT, 0.46 %": Split(0.1, 2, 1, 1000),
}
#: Ours, and the point whose budget each has; None: `HUNDREDTH`.
OURS = {"chosen, 4.6 %": "OFedQIT, 4.6 %", "chosen, 0.46 %": "OFedQIT, 0.46 %", LEAST: None}
