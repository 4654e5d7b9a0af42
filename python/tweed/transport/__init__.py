"""Stage: how do bytes cross a link? Here are the settings, a value per transport; Rust does the work.

    Strategy(transport="ltp")                             # what a name stands for is in TRANSPORTS
    Strategy(transport=Ltp(fraction=0.9, slack_s=0.1))

No transport at all means shared memory within a host, TCP between hosts.
"""

from __future__ import annotations

from tweed.transport.base import Transport
from tweed.transport.ltp import Ltp
from tweed.transport.table import TRANSPORTS, named

__all__ = ["TRANSPORTS", "Ltp", "Transport", "named"]
