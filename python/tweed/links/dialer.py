"""Calls another process on a thread of its own, again and again, while its caller goes on."""

from __future__ import annotations

import logging
from threading import Thread
from typing import Protocol

from tweed.errors import TweedError, UsageError
from tweed.links.address import HubAddress

log = logging.getLogger("tweed")
#: Seconds between two calls, at first and at most.
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0
#: While a call is under way, whoever waits for what comes over links is to look for its end so often.
_LOOK_S = 0.02


class Caller(Protocol):
    """What is needed of `_core.HubLinks`."""

    def call(self, address: str, key: str | None = None) -> int:
        """Opens a link to `address`, and returns its number."""
        ...

    def key_of(self, link: int) -> str | None:
        """Who is at the other end of a link that stands."""
        ...


class Dialer:
    """See above. Whoever drives the links calls `poll`.

    Args:
      links: in which the new one is to be.
      address: of the other process.

    Attributes:
      failed: why the last call came to nothing; empty: it has not.
    """

    def __init__(self, links: Caller, address: HubAddress) -> None:
        self._links, self.address, self.failed = links, address, ""
        self._thread: Thread | None = None
        self._found: int | TweedError | None = None
        self._pause_s, self._again_s = _FIRST_PAUSE_S, 0.0

    def poll(self, now: float) -> int | None:
        """The number of a link that has come about; None: there is none yet.

        Do not call it while that link stands. Raises UsageError if the other process refuses this one, once
        for each call.
        """
        if self._thread is None and now >= self._again_s:
            self._thread = Thread(target=self._call, name="tweed-call", daemon=True)
            self._thread.start()
        if self._thread is None or self._thread.is_alive():
            return None
        found, self._thread, self._found = self._found, None, None
        if isinstance(found, int) and self._links.key_of(found) is not None:  # else it has ended meanwhile
            self._pause_s, self.failed = _FIRST_PAUSE_S, ""
            return found
        self.failed = str(found) if isinstance(found, TweedError) else "the link has ended"
        self._again_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)
        if isinstance(found, UsageError):
            raise found
        return None

    def wait_s(self, now: float) -> float:
        """How long there is nothing to be done."""
        return _LOOK_S if self._thread is not None else max(0.0, self._again_s - now)

    def close(self) -> None:
        """Waits for a call that is under way, which ends as the links are closed."""
        if self._thread is not None:
            self._thread.join()

    def _call(self) -> None:
        try:
            self._found = self._links.call(self.address.place, self.address.key)
        except TweedError as error:
            log.debug("%s", error)
            self._found = error
