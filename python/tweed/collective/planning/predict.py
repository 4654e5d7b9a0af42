"""What the engine is expected to take for a schedule: the simulator, given the engine's own habits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tweed._core import Schedule, Topology
from tweed.collective.chooser import slicing
from tweed.collective.runs import run

_MESSAGES, _LEAST_SLICES = 100_000, 4
"""Longer runs than of so many messages are not simulated whole. On a torus of 8x8, at 128 MiB, what is
carried on differs from the whole simulation by 0.3% at most."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the engine on one host takes its time for.

    Attributes:
      message_s: seconds of a rank's processor for each message that it sends or takes in.
      compute: bytes per second that a rank reads to add and to copy; None: that takes no time.
      header: bytes beside the payload of each packet: Ethernet, IP and TCP. 0 where bandwidths are those of
        payload, as in what was measured between ranks.
      packet: bytes of payload in a packet.

    Example:
      >>> Host(header=0).packet
      1448
    """

    message_s: float = 20e-6
    compute: int | None = None
    header: int = 66
    packet: int = 1448


USUAL = Host()
"""A host that nobody has measured."""


def predicted(schedule: Schedule, numbytes: int, topology: Topology, host: Host = USUAL) -> float:
    """Seconds that the engine is expected to take over wires.

    A buffer that makes more than `_MESSAGES` messages is not simulated whole: two shorter ones are, and the
    time is carried on from them in a straight line, as each further slice takes as long as the one before.

    Args:
      schedule: what is run.
      numbytes: the whole buffer, all ranks' shares together.
      topology: the links.
      host: what the ranks' own time goes into.

    Cost: less than a second up to 64 ranks.

    Example:
      >>> network = topology.ring(4)
      >>> 0 < predicted(collective.build("all_reduce", "ring", network), 1 << 20, network) < 1
      True
    """
    slice_bytes = slicing(schedule.chunks)[0] * schedule.chunks
    most = max(_LEAST_SLICES, _MESSAGES // max(len(schedule), 1)) * slice_bytes
    if numbytes <= most:
        return _simulated(schedule, numbytes, topology, host)
    half, whole = (_simulated(schedule, size, topology, host) for size in (most // 2, most))
    return whole + (numbytes - most) * (whole - half) / (most - most // 2)


@lru_cache(maxsize=128)  # one pair of runs serves all long buffers
def _simulated(schedule: Schedule, numbytes: int, topology: Topology, host: Host) -> float:
    piece, window = slicing(schedule.chunks)
    found = run(
        schedule,
        numbytes,
        topology,
        piece=piece,
        window=window,
        message_s=host.message_s,
        compute=host.compute,
        header=host.header,
        packet=host.packet,
    )
    assert found.seconds is not None  # nobody dies
    return found.seconds
