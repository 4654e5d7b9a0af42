"""Every error tweed raises, in one tree.

    TweedError                      anything below
    ├── UsageError                  you asked for something that cannot be done; nothing was sent
    │   ├── ScheduleError           a schedule does not do what it declares: names step, link, rank, chunk
    │   ├── StrategyError           parts that do not fit together: names both
    │   ├── ForkedProcess           the engine was started before a fork; start it in the child instead
    │   └── NoTestbed               no network of namespaces can be built on this machine: says what to do
    ├── ShapeMismatch               ranks disagree on operation, shape or dtype: names each rank's value
    ├── PeerLost                    a rank died or left: names rank and operation
    │   └── Evicted                 the other members have gone on without this one: start it again, to join
    ├── Left                        this member has left in good order, as it was to: end its loop
    ├── DeadlineExceeded            nothing arrived in time: names who is waited for
    ├── Superseded                  the replica of a hub has taken over: says how to come back as its replica
    ├── Aborted                     the group was shut down while the operation ran
    ├── NonFinite                       NaN or infinity where ranks exchange: names parameter and rank
    └── DataError                   a data set is missing or damaged: says where it was looked for

All are `RuntimeError`s, so that code written for torch's own backends catches them.
The extension module raises these very classes (`crates/py/src/errors.rs`).
"""

from __future__ import annotations


class TweedError(RuntimeError):
    """Base of all errors of tweed."""


class UsageError(TweedError, ValueError):
    """The call cannot be carried out as it stands. Nothing was sent; mend the call."""


class ScheduleError(UsageError):
    """A schedule does not do what it declares. The text names step, link, rank and chunk."""


class StrategyError(UsageError):
    """Two parts of a strategy do not fit together. The text names both."""


class ForkedProcess(UsageError):
    """The engine was started in a parent of this process. Start ranks first, then the engine."""


class NoTestbed(UsageError):
    """A network of namespaces cannot be built on this machine. The text says what to install or to allow."""


class ShapeMismatch(TweedError):
    """Ranks called different operations, shapes or dtypes. The text gives each rank's value.

    The group cannot be used further: its ranks no longer agree on what comes next.
    """


class PeerLost(TweedError):
    """A rank died or left while others needed it. The text names rank and operation.

    The group must be made anew without that rank before the next collective.
    """


class Evicted(PeerLost):
    """The other members have gone on without this one, not having heard it. Started again, it may join."""


class Left(TweedError):
    """This member has left in good order, as it was asked to. Its loop ends; the others go on without it."""


class DeadlineExceeded(TweedError, TimeoutError):
    """An operation did not end in time. The text names the ranks that were waited for."""


class Superseded(TweedError):
    """This hub's replica has taken over, and two must not train beside each other. The text says how this one
    comes back: as the replica of the other.
    """


class Aborted(TweedError):
    """The group was shut down while the operation ran."""


class NonFinite(TweedError):
    """NaN or infinity in what was to be compressed and exchanged. The text names parameters and ranks.

    Every rank raises it. Nothing was exchanged; memories of compression are as they were.
    """


class DataError(TweedError):
    """A data set is missing or damaged. The text says where it was looked for."""
