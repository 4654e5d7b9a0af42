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
    ├── TaskFailed                  a task raised an error or ended its processes: names it, and why
    ├── DeadlineExceeded            nothing arrived in time: names who is waited for
    ├── Superseded                  the standby of a hub has taken over: says how to come back as its standby
    ├── Aborted                     the group was shut down while the operation ran
    ├── NonFinite                       NaN or infinity in an exchange, or a prediction: names where
    └── DataError                   data is missing, damaged or cannot be read: says where, or who sent it

All are `RuntimeError`s, so that code written for torch's own backends catches them.
The extension module raises these very classes (`crates/py/src/errors.rs`). `python -m tools.errors_page`
makes docs/errors.md of what stands here.
"""

from __future__ import annotations


class TweedError(RuntimeError):
    """Base of all errors of tweed.

    Remedy: its text says what happened, where, and what to do next.
    """


class UsageError(TweedError, ValueError):
    """The call, or a setting, cannot be carried out as it stands. Nothing was sent.

    Remedy: mend what the text names; docs/settings.md has the settings and what is said of each.
    """


class ScheduleError(UsageError):
    """A schedule does not do what it declares. The text names step, link, rank and chunk.

    Remedy: mend the builder at that step; a schedule is proven when it is made, so nothing has run by it.
    """


class StrategyError(UsageError):
    """Two parts of a strategy do not fit together, or a strategy and the place where it is to run.

    Remedy: the text names both parts; take another one. docs/composition.md has what goes together.
    """


class ForkedProcess(UsageError):
    """The engine was started in a parent of this process, and a fork does not copy its threads.

    Remedy: start processes before the first process group, or by the start method "spawn" or "forkserver".
    """


class NoTestbed(UsageError):
    """A network of namespaces cannot be built on this machine.

    Remedy: the text says what to install or to allow; training on real networks does not need it.
    """


class ShapeMismatch(TweedError):
    """Ranks called different operations, shapes or dtypes. The text gives each rank's value.

    The group cannot be used further: its ranks no longer agree on what comes next.

    Remedy: let all ranks make the same calls in the same order; look for a branch that only some take.
    """


class PeerLost(TweedError):
    """A rank died, left or cannot be reached while others needed it. The text names rank and operation.

    Remedy: see that rank's own output, which says why. The group must be made anew without it, or the job
    restarted: torchrun --max-restarts, `tweed train --resume`, or docs/elastic.md to go on without it.
    """


class Evicted(PeerLost):
    """The other members have gone on without this one, which was not heard for a second.

    Remedy: start it again, and it joins them (docs/elastic.md). If it comes again and again, see why its host
    stands still for so long.
    """


class Left(TweedError):
    """This member has left in good order, as it was asked to; the others go on without it.

    Remedy: end its loop. `with run.leaving_on(signal.SIGTERM)` does, see docs/elastic.md.
    """


class TaskFailed(TweedError):
    """A task of `map_tasks` raised an error, returned what cannot be sent, or ended each process that ran it.

    `task` is its number. No process of the map is left, and results of other tasks are dropped.

    Remedy: the text holds the traceback; call the function with that payload in a process of your own.
    """

    def __init__(self, text: str, task: int | None = None) -> None:
        super().__init__(text)
        self.task = task


class DeadlineExceeded(TweedError, TimeoutError):
    """An operation did not end in time. The text names who held it up, since when, and by which limit.

    Remedy: what stands after "next" in the text, for the host that it names; see docs/deadlines.md.
    """


class Superseded(TweedError):
    """This hub's standby has taken over, and two must not train beside each other.

    Remedy: start this one as the standby of the other, by the line in the text.
    """


class Aborted(TweedError):
    """The group was shut down while the operation ran.

    Remedy: none is needed where the program itself has ended the group; else see why it did.
    """


class NonFinite(TweedError):
    """NaN or infinity in what was to be compressed and exchanged. The text names parameters and ranks.

    Every rank raises it. Nothing was exchanged; memories of compression are as they were. In
    `workloads.double_ml`: a learner predicts them; the text names nuisance function, fold and repetition.

    Remedy: a smaller learning rate, clipped gradients, or a gradient scaler that skips such steps; another
    learner, or scaled controls.
    """


class DataError(TweedError):
    """Data is missing or damaged, or cannot be read. The text says where, or who sent it.

    Remedy: `tweed data` fetches the data sets that can be had; `--fallback digits` trains without a download.
    Of what another process sent: let it run the same version of tweed, and see who else has the secret.
    """


def remade(name: str, text: str) -> TweedError:
    """The error of this tree with that name, as another process raised it; a `TweedError` for other names."""
    kind = globals().get(name)
    return kind(text) if isinstance(kind, type) and issubclass(kind, TweedError) else TweedError(text)
