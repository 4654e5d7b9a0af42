"""The gradients of a workload, for a step under an order.

profile = released(models.vgg19(32), burst_bytes=2**22)
step = tweed.order.step.iterate(Credit(), profile, Wire(rate=125e6, message_s=50e-6, turn_s=1e-3))
"""

from __future__ import annotations

from tweed.errors import UsageError
from tweed.order.step import Gradient
from tweed.simulate.workload import Workload


def released(workload: Workload, burst_bytes: int = 0) -> tuple[Gradient, ...]:
    """The gradients of a workload, by layer. The backward pass begins at 0.

    Args:
      burst_bytes: gradients are put together from the last layer on, and are there together, as soon as they
        have so many bytes: frameworks copy or add up several at once. 0: each at its time.

    A layer's share of the forward pass is its share of the backward pass.

    Raises: UsageError if the backward pass takes no time.
    """
    backward_s = sum(layer.backward_s for layer in workload.layers)
    if backward_s <= 0:
        raise UsageError(f"the backward pass of {workload.name} takes no time: give times to its layers")
    now = 0.0
    found: list[Gradient] = []
    waiting: list[tuple[int, float]] = []
    for layer in reversed(workload.layers):
        now += layer.backward_s
        waiting.append((layer.numbytes, workload.forward_s * layer.backward_s / backward_s))
        last = len(found) + len(waiting) == len(workload.layers)
        if last or sum(numbytes for numbytes, _ in waiting) >= burst_bytes:
            found += [Gradient(numbytes, now, forward_s) for numbytes, forward_s in waiting]
            waiting.clear()
    return tuple(reversed(found))
