"""Networks with names. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """A network as text, and why it is so."""

    text: str
    reason: str


#: By name. What stands behind a name in a network's text goes before the profile's own values.
PROFILES = {
    "lan": Profile("rate=1gbit,rtt=0.2ms,queue=512kb", "Gigabit Ethernet through one switch"),
}
