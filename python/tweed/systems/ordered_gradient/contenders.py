"""Methods and live sides, by the keys that notes have. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tweed.cadence import Moves, Ordered, ServerPolicy
from tweed.collective import Server
from tweed.recipes import every_step, lag
from tweed.strategy import Strategy
from tweed.systems.ordered_gradient.descent import POLICIES, Live, Options

#: The one setting that is judged, and its name. Picked on problems with other seeds.
SHARE, OURS = 2.0, "share 2"

LIVE = Live()
#: By name, a method of `descent.methods`, and options.
Variants = Mapping[str, tuple[str, Options]]
EXACT: Variants = {name: (name, Options()) for name in ("GD", "LAG-WK", *POLICIES)}
NOISY: Variants = {
    **EXACT,
    "GD, momentum": ("GD", Options(momentum=0.7)),
    f"{OURS}, momentum": (OURS, Options(momentum=0.7)),
    f"{OURS}, 8 bits": (OURS, Options(bits=8)),
}
_SHARE, _HISTORY = ServerPolicy(share=SHARE), ServerPolicy(history=Moves(LIVE.lr))
#: Ranks and strategy by name; a server is a rank of its own.
SIDES: dict[str, tuple[int, Strategy]] = {
    "server, all": (5, Strategy(collective=Server(0))),
    f"server, {OURS}": (5, Strategy(cadence=Ordered(_SHARE, 0.02), collective=Server(0))),
    "server, history": (5, Strategy(cadence=Ordered(_HISTORY, 0.02), collective=Server(0))),
    "no server, LAG-WK": (4, lag(LIVE.lr, 4)),
    "no server, all": (4, every_step()),
}
