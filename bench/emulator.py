"""Whether the testbed's networks are what they say: by ping, iperf3 and the links' own counters.

And up to which rate, delay and number of busy hosts the link emulator keeps up on this machine.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import iperf
from bench.run import Row, quantile
from tweed.errors import NoTestbed
from tweed.testbed import Link, LiveNetwork, Network, opened

#: Parts of the rows.
PING, RATE, LOSS, LOAD = "emulated delay", "emulated rate", "emulated loss", "emulator under load"
_PORT = 5300
_PATIENCE_S = 60
_PAYLOAD_BYTES, _HEADER_BYTES = 1400, 42  # a datagram in one packet; Ethernet, IP and UDP around it
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """Hosts that all send to host 0 at once: each at the full rate of its link.

    Attributes:
      hosts: senders.
      offload: packets as large as segmentation offloads make them, by TCP; else datagrams in packets.
    """

    hosts: int
    rate: str
    rtt: str
    offload: bool = False

    @property
    def network(self) -> Network:
        """Host 0's link carries them all."""
        alone = Network.parse(f"rate={self.rate},rtt={self.rtt},offload={'yes' if self.offload else 'no'}")
        together = Link(rate_bits=self.hosts * (alone.rate_bits or 0))
        return replace(alone, hosts={0: together})


@dataclass(frozen=True, slots=True)
class Scope:
    """What to measure: networks as `Network.parse` reads them, and for how long."""

    delays: tuple[str, ...]
    rates: tuple[str, ...]
    losses: tuple[str, ...]
    loads: tuple[Load, ...]
    seconds: int


FULL = Scope(
    delays=("rtt=1ms", "rtt=10ms", "rtt=40ms", "rtt=200ms", "rate=100mbit,rtt=40ms,loss=1%"),
    rates=("rate=10mbit,rtt=40ms", "rate=100mbit,rtt=40ms", "rate=500mbit,rtt=10ms"),
    losses=("rate=50mbit,loss=1%", "rate=50mbit,rtt=10ms,loss=1%", "rate=50mbit,rtt=10ms,loss=3%,burst=4"),
    loads=(
        *(Load(8, rate, "40ms") for rate in ("10mbit", "20mbit", "50mbit", "100mbit", "200mbit")),
        *(Load(8, rate, "1ms") for rate in ("20mbit", "50mbit", "100mbit")),
        *(Load(1, rate, "40ms") for rate in ("100mbit", "250mbit", "500mbit", "1gbit")),
        *(Load(8, rate, "40ms", offload=True) for rate in ("100mbit", "250mbit", "500mbit")),
    ),
    seconds=4,
)
QUICK = Scope(
    ("rtt=10ms",),
    ("rate=50mbit,rtt=10ms",),
    ("rate=50mbit,rtt=10ms,loss=3%",),
    (Load(2, "50mbit", "10ms"),),
    2,
)


def checks(scope: Scope) -> Iterator[Row]:
    """Rows of all of `scope`; where a program is missing or no network can be built, one that says why."""
    if missing := [name for name in ("ping", "iperf3") if shutil.which(name) is None]:
        yield {"part": "no testbed", "network": "emulated", "why": f"not installed: {', '.join(missing)}"}
        return
    try:
        for text in scope.delays:
            yield from _delay(Network.parse(text))
        for text in scope.rates:
            yield from _rate(Network.parse(text), scope.seconds)
        for text in scope.losses:
            yield from _loss(Network.parse(text), scope.seconds)
        for load in scope.loads:
            yield from _under(load, scope.seconds)
    except NoTestbed as error:
        yield {"part": "no testbed", "network": "emulated", "why": str(error)}


def _delay(network: Network) -> Iterator[Row]:
    with opened(network, 2) as bed:
        times_ms = _ended(_ping(bed, 0, 1, count=200))
    yield {"part": PING, "network": str(network), "asked_ms": _rtt_ms(network), **_spread(times_ms)}


def _rtt_ms(network: Network) -> float:
    return sum(network.direction(rank, up=True).delay_us for rank in (0, 1)) / 1000


def _ping(bed: LiveNetwork, src: int, dst: int, count: int) -> subprocess.Popen[str]:
    words = ["ping", "-i", "0.01", "-c", str(count), bed.hosts[dst].address]
    return subprocess.Popen(bed.command(src, *words), stdout=subprocess.PIPE, text=True)


def _ended(ping: subprocess.Popen[str]) -> list[float]:
    said, _ = ping.communicate()
    return sorted(float(time) for time in re.findall(r"time=([\d.]+) ms", said))


def _spread(times_ms: list[float]) -> Row:
    return {"median_ms": statistics.median(times_ms), "p99_ms": quantile(times_ms, 0.99)}


def _rate(network: Network, seconds: int) -> Iterator[Row]:
    """Datagrams at more than the link's rate: what arrives is the rate, with headers."""
    rate = network.rate_bits or 0.0
    with opened(network, 2) as bed:
        bits = _flows(bed, [1], ["--udp", "--bitrate", f"{1.1 * rate:.0f}"], seconds)[0]
    wire = bits * (1 + _HEADER_BYTES / _PAYLOAD_BYTES)
    yield {"part": RATE, "network": str(network), "asked_bits_per_s": rate, "bits_per_s": round(wire)}


def _loss(network: Network, seconds: int) -> Iterator[Row]:
    """Packets that the hub dropped of those that were sent; how far that is off, in standard deviations."""
    with opened(network, 2) as bed:
        _flows(bed, [1], ["--udp", "--bitrate", "40M"], 2 * seconds)
        link = bed.counters()[1]
    up = network.direction(1, up=True)
    asked, sent = up.loss_ppm / 1e6, link.sent_packets
    # Losses in a row vary more: by the length of a burst, there and back (a chain of two states).
    deviation = math.sqrt(sent * asked * (1 - asked) * (2 * up.burst - 1))
    off = (link.lost_packets - sent * asked) / deviation
    yield {
        "part": LOSS,
        "network": str(network),
        "sent_packets": sent,
        "lost_packets": link.lost_packets,
        "asked": asked,
        "off": round(off, 2),
    }


def _under(load: Load, seconds: int) -> Iterator[Row]:
    """All send to host 0. Two more hosts, which are idle, ping each other meanwhile."""
    print(f"  {load}", file=sys.stderr, flush=True)
    senders = list(range(1, load.hosts + 1))
    rate = load.network.rate_bits or 0.0
    payload = rate * 0.98 / (1 + _HEADER_BYTES / _PAYLOAD_BYTES)
    how = [] if load.offload else ["--udp", "--bitrate", f"{payload:.0f}"]
    with opened(load.network, load.hosts + 3) as bed:
        before, ping = _spent(bed), _ping(bed, load.hosts + 1, load.hosts + 2, count=90 * seconds)
        rates = _flows(bed, senders, how, seconds)
        after, times_ms = _spent(bed), _ended(ping)
        links, emulated = bed.counters(), bed.emulated()
    busy = [(now - then) / (after[0] - before[0]) for then, now in zip(before, after, strict=True)]
    yield {
        "part": LOAD,
        "network": str(load.network),
        "hosts": load.hosts,
        "rate_bits": rate,
        "asked_ms": _rtt_ms(load.network),
        "offered": round(sum(rates) / (load.hosts * payload), 4),
        "arrived": round(links[0].received_bytes / sum(links[rank].sent_bytes for rank in senders), 4),
        "overflowed_packets": sum(link.overflowed_packets for link in links),
        **_spread(times_ms),
        "missed_packets": emulated.missed_packets,
        "late": round(emulated.late_packets / max(1, emulated.packets), 4),
        "machine_cores": round(busy[1], 2),
        "emulator_cores": round(busy[2], 2),
    }


def _spent(bed: LiveNetwork) -> list[float]:
    """Seconds on the clock, of all processors' work, of the emulator's."""
    machine = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    idle = machine[3] + machine[4]
    emulator = Path(f"/proc/{bed.emulator_pid}/stat").read_text().rpartition(")")[2].split()
    ticks = (sum(machine) / (os.cpu_count() or 1), sum(machine) - idle, int(emulator[11]) + int(emulator[12]))
    return [tick / _TICKS_PER_S for tick in ticks]


def _flows(bed: LiveNetwork, senders: list[int], how: list[str], seconds: int) -> list[float]:
    """Payload per second that host 0 got from each of `senders` at once."""
    words = ["iperf3", "--client", bed.hosts[0].address, "--time", str(seconds), "--json"]
    words += ["--length", str(_PAYLOAD_BYTES), *how] if how else []
    with ExitStack() as servers:
        for rank in senders:
            servers.enter_context(iperf.server(bed, 0, _PATIENCE_S, "--port", str(_PORT + rank)))
        clients = [
            subprocess.Popen(
                bed.command(rank, *words, "--port", str(_PORT + rank)), stdout=subprocess.PIPE, text=True
            )
            for rank in senders
        ]
        reports = [json.loads(client.communicate()[0]) for client in clients]
    return [float(report["end"]["sum_received"]["bits_per_second"]) for report in reports]
