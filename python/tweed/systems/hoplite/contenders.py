"""What is simulated and run, by the keys that notes have. Pure."""

from __future__ import annotations

MODES, SHARES = ("ranges", "whole"), (0.1, 0.5, 0.9)
#: What the arrays of applications take over a link.
S_B_S = 0.5
#: Applications by nodes: a server and workers.
APPLIED = {
    9: ("serving",),
    16: ("AlexNet", "VGG-16", "ResNet-50", "actor-critic", "policy sync"),
    17: ("serving",),
    24: ("AlexNet",),
}
#: Raylets of one host, and bytes of their arrays.
ONE_HOST_NODES, ONE_HOST = 4, (16_800_000, 1_000_000, 4_096)
#: Sides that train: whether a step takes the first gradients, not all; and momentum.
SYNCHRONOUS, ASYNCHRONOUS = "synchronous SGD", "asynchronous SGD"
TRAINED = {SYNCHRONOUS: (False, 0.0), ASYNCHRONOUS: (True, 0.0), f"{ASYNCHRONOUS}, momentum 0.9": (True, 0.9)}
