"""Target propagation: layers learn from targets of their own, which feedback weights bring down.

layers     a layer, its target, and the head that makes the first target
feedback   weights that go down: fixed, from a seed; or trained, as in DTP
network    a network of such layers

An ordinary backward pass carries targets instead of gradients and fills `.grad`. So optimizers, DDP,
`tweed.attach`, and stages on several ranks (`tweed.torch.stage_link`) go on as they are.

Source: Shibuya, Inoue, Kawakami, Sato, "Fixed-weight difference target propagation", AAAI 2023, arXiv
  2212.10352; DTP: Lee, Zhang, Fischer, Bengio, "Difference target propagation", 2015.
"""

from __future__ import annotations

from tweed.workloads.target_propagation.feedback import Feedback, FixedFeedback, TrainedFeedback
from tweed.workloads.target_propagation.layers import FirstTarget, TargetLayer
from tweed.workloads.target_propagation.network import reconstruction, target_network

__all__ = [
    "Feedback",
    "FirstTarget",
    "FixedFeedback",
    "TargetLayer",
    "TrainedFeedback",
    "reconstruction",
    "target_network",
]
