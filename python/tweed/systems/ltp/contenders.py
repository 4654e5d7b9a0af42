"""Sides, places and variants, by the keys that notes have. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tweed.collective import Server
from tweed.recipes import ltp
from tweed.strategy import Strategy
from tweed.systems.ltp.exchange_benchmark import Side
from tweed.testbed import Network

WORKERS = 8
#: What the links lose or reorder, as `Network.parse` reads it.
LOSSES = {
    "0 %": "",
    "0.1 %": ",loss=0.1%",
    "1 %": ",loss=1%",
    "3 %": ",loss=3%",
    "10 %": ",loss=10%",
    "20 %": ",loss=20%",
    "3 % in bursts of 5": ",loss=3%,burst=5",
    "3 % in bursts of 20": ",loss=3%,burst=20",
    "10 % reordered": ",reorder=10%",
}
NONE, REORDERED = "0 %", "10 % reordered"
ROUND_TRIPS_MS = ("40", "1", "0.1", "150")  # in the order in which they are measured
#: Mbit/s of the server's link; that of a worker has 100.
SERVERS = ("500", "100")


@dataclass(frozen=True, slots=True)
class Place:
    """A network to exchange over: a name in `LOSSES`, and figures as text."""

    loss: str
    round_trip_ms: str = "40"
    server: str = SERVERS[0]

    @property
    def name(self) -> str:
        """For people and notes."""
        return f"{self.loss}, {self.round_trip_ms} ms, {self.server} Mbit/s"


#: Where nothing is delayed, nothing is overtaken.
GRID = [
    Place(loss, round_trip, server)
    for server in SERVERS
    for round_trip in ROUND_TRIPS_MS
    for loss in LOSSES
    if (loss, round_trip) != (REORDERED, "0.1")
]
SHALLOW = "incast"

#: Eight links as fast as the server's, and a queue of 64 KB before it: a burst of all does not fit in.
INCAST = "rate=500mbit,queue=64kb"


def over(place: Place) -> Network:
    """A network of the grid. A round trip of 0.1 ms is about what the machine takes by itself."""
    delayed = "" if place.round_trip_ms == "0.1" else f",rtt={place.round_trip_ms}ms"
    server = "" if place.server == "100" else f",0.rate={place.server}mbit"
    return Network.parse(f"rate=100mbit{server}{LOSSES[place.loss]}{delayed}")


#: Seconds: a side of which a step takes longer is noted as failed there.
LIMIT_S = 60
#: No metrics for `tweed top` among those that are measured.
_SETTINGS = {"TWEED_METRICS": "0", "TWEED_DEADLINE": str(LIMIT_S)}
OURS, LOSSLESS = "ltp", "ltp lossless"
#: One connection per pair of ranks.
PEERS = ("reno", "cubic", "bbr")


def _tcp(key: str, congestion: str, streams: int = 1) -> Side:
    settings = {"TWEED_CONGESTION": congestion, "TWEED_STREAMS": str(streams)}
    return Side(key, Strategy(collective=Server(0)), _SETTINGS | settings)


#: By key; over all networks of the grid.
SIDES = {
    OURS: Side(OURS, ltp(server=0, lossless=False), _SETTINGS),
    LOSSLESS: Side(LOSSLESS, ltp(server=0, lossless=True), _SETTINGS),
    **{peer: _tcp(peer, peer) for peer in PEERS},
}
#: Beside these at incast: four connections per pair of ranks, as tweed has by itself.
SEVERAL = {key: _tcp(key, congestion, 4) for key, congestion in (("cubic ×4", "cubic"), ("bbr ×4", "bbr"))}
#: Of trainings by key: settings of `ltp`; the paper's fraction, so that much is lost.
VARIANTS = {
    "reliable": ", lossless=True",
    "ltp": "",
    "lost is returned": ", fraction=0.8",
    "lost is dropped": ", fraction=0.8, return_lost=False",
    "dropped, ÷ delivered": ", fraction=0.8, return_lost=False, divide_by='delivered'",
    "returned, ÷ delivered": ", fraction=0.8, divide_by='delivered'",
}
