"""One message after the other between two namespaces: LTP, in the clear and sealed, and a stream of TCP."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.iperf import listening
from bench.run import Row, quantile
from tweed.errors import NoTestbed
from tweed.testbed import LiveNetwork, Network, opened

MB = 1 << 20
PART = "one message between namespaces"
SEALED = "LTP, AES-128-GCM"
#: What the measuring program is told, by side.
SIDES = {
    "TCP": {"transport": "tcp"},
    "LTP in the clear": {"transport": "ltp", "cipher": "clear"},
    SEALED: {"transport": "ltp", "cipher": "aes"},
    "LTP, ChaCha20-Poly1305": {"transport": "ltp", "cipher": "chacha"},
}
_ROOT = Path(__file__).parents[1]
_BUILD = "cargo build --release --quiet --locked --package tweed-net --example ltp"
_PROGRAM = str(_ROOT / "target/release/examples/ltp")
_PORT = 7000
PATIENCE_S = 240


@dataclass(frozen=True, slots=True)
class Scope:
    """One network, and how to measure in it.

    Attributes:
      network: as `Network.parse` reads it.
      size_bytes: of a message.
      rounds: how often each side has its turn.
      calls: messages in a turn, after `warm` that are not counted.
      sides: who takes turns.
    """

    network: str
    size_bytes: int
    rounds: int = 5
    calls: int = 20
    warm: int = 3
    sides: tuple[str, ...] = tuple(SIDES)


#: One side each: a TCP that slows down for every loss needs half a minute for a message.
LONG = tuple(
    Scope(f"rate=100mbit,rtt=40ms,loss={loss},congestion={congestion}", 12 * MB, 1, 3, 0, ("TCP", SEALED))
    for loss in ("0.1%", "1%")
    for congestion in ("cubic", "bbr")
)
FULL = (
    Scope("congestion=cubic", 64 * MB),
    Scope("rate=100mbit", 6 * MB, calls=5),
    Scope("rate=1gbit", 32 * MB, calls=8),
    Scope("rate=2.5gbit", 64 * MB, calls=8),
    *LONG,
)
QUICK = (
    Scope("congestion=cubic", 64 * MB, rounds=2, calls=5),
    Scope("rate=1gbit", 32 * MB, rounds=1, calls=3),
)


def built() -> bool:
    """The measuring program is there; it is built if it can be."""
    if shutil.which("cargo") is None:
        print("  no cargo here: LTP alone is not measured", file=sys.stderr)
        return False
    subprocess.run(_BUILD.split(), cwd=_ROOT, check=True)
    return True


def messages(scopes: tuple[Scope, ...]) -> Iterator[Row]:
    """Rows of every network and side; where none can be built, one row that says why."""
    if not built():
        return
    for scope in scopes:
        network = Network.parse(scope.network)
        try:
            with opened(network, 2) as bed:
                yield from (measured | {"network": str(network)} for measured in _measured(bed, scope))
        except NoTestbed as error:
            yield {"part": "no testbed", "network": str(network), "why": str(error)}


def _measured(bed: LiveNetwork, scope: Scope) -> Iterator[Row]:
    """The sides take turns, so that a drift of the machine meets all of them."""
    print(f"  {PART}, {scope.network}", file=sys.stderr, flush=True)
    turns: dict[str, list[dict[str, Any]]] = {side: [] for side in scope.sides}
    job = {"bytes": scope.size_bytes, "repeats": scope.calls, "warm": scope.warm}
    for _ in range(scope.rounds):
        for side in scope.sides:
            with sender(bed, (0, 1), SIDES[side] | job) as sending:
                turns[side].append(json.loads(sending.communicate(timeout=PATIENCE_S)[0]))
    yield from (row(scope, side, found) for side, found in turns.items())


def row(scope: Scope, side: str, turns: list[dict[str, Any]]) -> Row:
    """All turns of one side together."""
    every = sorted(call for turn in turns for call in turn["calls_s"])
    return {
        "part": PART,
        "side": side,
        "ranks": 2,
        "bytes": scope.size_bytes,
        "calls": len(every),
        "median_s": statistics.median(every),
        "p99_s": quantile(every, 0.99),
        "block_medians_s": [turn["median_s"] for turn in turns],
        "cpu_s_per_gb": {
            end: statistics.mean(turn["cpu_s_per_gb"][end] for turn in turns)
            for end in ("sender", "receiver")
        },
        **{count: sum(turn[count] for turn in turns) for count in ("sent_packets", "lost_packets")},
        "packet_bytes": turns[0]["packet_bytes"],
    }


@contextmanager
def sender(bed: LiveNetwork, way: tuple[int, int], job: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """The measuring program under way from one rank to another; it prints one line of JSON."""
    target = f"{bed.hosts[way[1]].address}:{_PORT}"
    with listening(bed, way[1], PATIENCE_S, _PROGRAM, "receive", target):
        words = bed.command(way[0], _PROGRAM, "send", target, json.dumps(job))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sending:
            try:
                yield sending
            finally:
                sending.terminate()
