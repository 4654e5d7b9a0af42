"""Stage: how do bytes cross a link? Here are the settings, a value per transport; Rust does the work.

    Strategy(transport="ltp")                             # what a name stands for is in TRANSPORTS
    Strategy(transport=Ltp(fraction=0.9, slack_s=0.1))

No transport at all means shared memory within a host, TCP between hosts.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from tweed.errors import UsageError
from tweed.transport.ltp import Ltp

__all__ = ["TRANSPORTS", "Ltp", "Transport", "named"]


@runtime_checkable
class Transport(Protocol):
    """How the values of a group cross the links between hosts: settings, which the engine carries out.

    Attributes:
      name: what the engine calls it.
    """

    name: ClassVar[str]

    @property
    def may_lose(self) -> bool:
        """Whether parts of a contribution may be missing from a sum. If not, numbers are those of TCP."""
        ...


#: Each with its settings left as they are. A new one is a file with a frozen class, and a row here.
TRANSPORTS: dict[str, Transport] = {"ltp": Ltp()}


def named(name: str) -> Transport:
    """The transport called `name`. Raises: UsageError if there is none; lists those that there are."""
    if name not in TRANSPORTS:
        raise UsageError(f"there is no transport {name!r}; there are {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]
