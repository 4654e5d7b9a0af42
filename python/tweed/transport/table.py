"""The transports by name. A new one is a file with a frozen class, and a row here."""

from __future__ import annotations

from tweed.errors import UsageError
from tweed.transport.base import Transport
from tweed.transport.ltp import Ltp

#: Each with its settings left as they are.
TRANSPORTS: dict[str, Transport] = {"ltp": Ltp()}


def named(name: str) -> Transport:
    """The transport called `name`. Raises: UsageError if there is none; lists those that there are."""
    if name not in TRANSPORTS:
        raise UsageError(f"there is no transport {name!r}; there are {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]
