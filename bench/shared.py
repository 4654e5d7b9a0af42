"""LTP and a flow of TCP that share one link: what each of them gets of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from bench import ltp
from bench.iperf import rates, server
from bench.run import Row
from tweed.errors import NoTestbed
from tweed.testbed import LiveNetwork, Network, opened

PART = "LTP and TCP on one link"
#: Queues of half to four times what the path holds.
_NETWORKS = tuple(f"rate=100mbit,rtt=20ms,queue={ms}ms,congestion=cubic" for ms in (10, 20, 40, 80))
FULL = (*_NETWORKS, "rate=100mbit,rtt=20ms,congestion=bbr")
QUICK = _NETWORKS[1:2]
_SECONDS = 10
_START_S = 2  # in which neither counts
_MESSAGE = 4 << 20


def flows(networks: tuple[str, ...]) -> Iterator[Row]:
    """A row per network: LTP from rank 0 and TCP from rank 1 send to rank 2 at once."""
    if not ltp.built():
        return
    if shutil.which("iperf3") is None:
        print("  no iperf3 here: LTP beside TCP is not measured", file=sys.stderr)
        return
    for text in networks:
        network = Network.parse(text)
        try:
            with opened(network, 3) as bed:
                print(f"  {PART}, {text}", file=sys.stderr, flush=True)
                yield {"part": PART, "network": str(network), "rate_bits": network.rate_bits, **_shared(bed)}
        except NoTestbed as error:
            yield {"part": "no testbed", "network": str(network), "why": str(error)}


def moved(calls_s: Sequence[float], begin: float, end: float) -> float:
    """How many messages moved between two moments; one after the other, each at an even pace."""
    ends = list(accumulate(calls_s))
    parts = zip(ends, calls_s, strict=True)
    return sum(max(0.0, min(end, at) - max(begin, at - took)) / took for at, took in parts)


def _shared(bed: LiveNetwork) -> Row:
    """Messages count that ended in the seconds in which TCP is counted; both send for longer."""
    rate = bed.network.rate_bits or 1e9
    repeats = int(rate / 8 * (_SECONDS + _START_S) / _MESSAGE)
    job = {"transport": "ltp", "cipher": "aes", "bytes": _MESSAGE, "repeats": repeats, "warm": 0}
    words = ["iperf3", "--client", bed.hosts[2].address, "--time", str(_SECONDS), "--json"]
    words += ["--omit", str(_START_S)]
    patience = ltp.PATIENCE_S
    with server(bed, 2, patience), ltp.sender(bed, (0, 2), job) as sending:
        said = subprocess.run(
            bed.command(1, *words), check=True, capture_output=True, text=True, timeout=patience
        )
        found: dict[str, Any] = json.loads(sending.communicate(timeout=patience)[0])
    return {
        "ltp_bits_per_s": moved(found["calls_s"], _START_S, _START_S + _SECONDS) * _MESSAGE * 8 / _SECONDS,
        "tcp_bits_per_s": rates(json.loads(said.stdout))[0],
        "ltp_lost_packets": found["lost_packets"],
        "ltp_sent_packets": found["sent_packets"],
    }
