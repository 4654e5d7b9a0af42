"""Computing that takes as long as elsewhere: slept as profiled, or held to a share of a core.

A machine of few cores has live workers in any number, if their computing is mostly slept:

    with speed.lasting(0.3):         as long as a profile or a model of delays says: what is left is slept
        compute()
    with speed.share(0.25):          four times as long as the processor's time that it takes
        compute()

A block cannot be made shorter. What blocks took beyond their time is added up in `over_s`: a report that does
not look at it may tell of this machine where it means another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tweed.errors import UsageError


@dataclass(slots=True)
class Speed:
    """How fast a worker computes; blocks of it last as told.

    Attributes:
      slept_s: seconds that were slept.
      over_s: seconds by which blocks took longer than told, in sum.

    Example:
      >>> speed = Speed()
      >>> with speed.lasting(0.001):
      ...     total = sum(range(10))
      >>> speed.slept_s > 0
      True
    """

    slept_s: float = 0.0
    over_s: float = 0.0

    @contextmanager
    def lasting(self, seconds: float) -> Iterator[None]:
        """The block takes so many seconds: what its computing leaves is slept. An error ends it at once."""
        end = time.monotonic() + seconds
        yield
        self._sleep(end - time.monotonic())

    @contextmanager
    def share(self, of_core: float) -> Iterator[None]:
        """The block takes the processor's time of this thread, over a share from above 0 to 1.

        Raises: UsageError for another share.
        """
        if not 0 < of_core <= 1:
            raise UsageError(f"a share of {of_core} of a core cannot be: give one above 0 and at most 1")
        began, computed = time.monotonic(), time.thread_time()
        yield
        wanted = (time.thread_time() - computed) / of_core
        self._sleep(began + wanted - time.monotonic())

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept_s += seconds
            time.sleep(seconds)
        else:
            self.over_s -= seconds
