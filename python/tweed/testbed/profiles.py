"""Networks with names. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """A network as text, and why it is so."""

    text: str
    reason: str


#: By name. What stands behind a name in a network's text goes before the profile's own values.
PROFILES = {
    "lan": Profile(
        "rate=1gbit,down.queue=512kb",
        "Gigabit Ethernet through one switch, with some 512 KB of buffer per port. A round trip within this "
        "machine takes 0.05 to 0.1 ms, as over a LAN, so no delay is added.",
    ),
    "incast": Profile(
        "rate=1gbit,down.queue=64kb",
        "The same with the 64 KB per port of the cheap switches on which incast was first described "
        "(Phanishayee et al., FAST 2008: 32 to 256 KB).",
    ),
    "lossy-lan": Profile(
        "rate=1gbit,rtt=1ms,loss=0.1%",
        "A bad cable or an overloaded switch on the way: the middle ones of the losses and round trips that "
        "`tweed reproduce ltp` goes through.",
    ),
    "wan": Profile(
        "rate=100mbit,rtt=40ms,jitter=1ms,loss=0.01%,queue=50ms",
        "Two sites some 3000 km apart: light in fibre takes 5 ms per 1000 km, one way.",
    ),
    "home": Profile(
        "up.rate=20mbit,down.rate=100mbit,rtt=20ms,jitter=3ms,loss=0.1%,burst=3,up.queue=200ms",
        "A cable or VDSL line: slow upwards, with the deep queue of a home router "
        "(bufferbloat: Gettys and Nichols, 2012).",
    ),
    "edge": Profile(
        "up.rate=10mbit,down.rate=40mbit,rtt=60ms,jitter=15ms,loss=1%,burst=5,reorder=0.5%,queue=200ms",
        "A device on a mobile network: uneven, late, with losses that come together.",
    ),
}
