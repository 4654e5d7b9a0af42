"""All-reduces where ranks only dial out at both ends, beside the same network without NAT, and beside what
the links that are left can carry.

    python -m bench.behind_nat [ROUNDS]

Two of 4 behind NAT: the ring goes round the pair, so the time is that of the network without. Two of 3: all
goes through the third one, whose port takes in two buffers and gives out two, at the same time; less is
impossible, as neither of the two can sum what the other contributes. Rounds alternate between the networks.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import torch
import torch.distributed as dist

from tweed.testbed import Network, run_ranks

BYTES, CALLS, ROUNDS = 25_000_000, 3, 3
RATE_BITS = 1e8
#: Of what a link carries, the rest are Ethernet's, IP's and TCP's headers.
PAYLOAD = 1448 / 1514


def timed(rank: int, size: int) -> list[float]:
    """Seconds of each call, after one that is not counted."""
    buffer, seconds = torch.ones(BYTES // 4), list[float]()
    for _ in range(1 + CALLS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(buffer)
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def slowest(size: int, nat: tuple[int, ...]) -> list[float]:
    """Of each call, the time of the rank that took longest."""
    network = Network(rate_bits=RATE_BITS, nat=nat)
    return list(
        map(max, zip(*run_ranks(timed, size, backend="tweed", network=network, timeout=300), strict=True))
    )


def main(rounds: int = ROUNDS) -> None:
    """Measures, and prints two ratios."""
    open_s, shut_s, middle_s = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        open_s += slowest(4, ())
        shut_s += slowest(4, (2, 3))
        middle_s += slowest(3, (1, 2))
    bound_s = 2 * BYTES * 8 / (RATE_BITS * PAYLOAD)
    print(
        f"all-reduce of {BYTES / 1e6:g} MB, {RATE_BITS / 1e6:g} Mbit/s per rank, {len(open_s)} calls each\n"
        f"two of 4 behind NAT: {median(shut_s):.3f} s, without NAT {median(open_s):.3f} s, "
        f"ratio {median(shut_s) / median(open_s):.3f}\n"
        f"two of 3 behind NAT: {median(middle_s):.3f} s, bound of the links left {bound_s:.3f} s, "
        f"ratio {median(middle_s) / bound_s:.3f}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
