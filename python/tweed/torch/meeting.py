"""What ranks that make a group leave for each other in torch's Store, and how they wait for it.

Waits go in slices, so that Ctrl-C works; between slices a rank looks whether another one has failed, which is
left in the store too: who cannot join says why, and all others end with that instead of waiting for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tweed.errors import DeadlineExceeded, PeerLost, TweedError, UsageError
from tweed.exchange.store import limited, reading, text, value, whole

_MOST_PID = (1 << 31) - 1
#: No reason of another rank's is longer.
_REASON_BYTES = 1 << 16
#: Nor is what names a process.
_HOLDER_BYTES = 1 << 13


@dataclass(frozen=True)
class Process:
    """A process of some machine. Two are the same one exactly when they are equal."""

    pid: int
    # When it started, in the kernel's ticks since the boot: numbers of processes are used again.
    started: int
    # The namespace in which its number counts.
    pids: str
    boot: str
    host: str

    @classmethod
    def here(cls) -> Process:
        """The process that calls this."""
        pid, (_, started) = os.getpid(), _stat(os.getpid()) or ("", 0)
        return cls(pid, started, *_machine(), socket.gethostname())

    @classmethod
    def of_descriptor(cls, descriptor: bytes) -> Process:
        """The one that gave this descriptor (`Node.descriptor`). Raises as `decode`."""
        return cls._sound(json.loads(descriptor))

    def encode(self) -> str:
        """As text for a store."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, encoded: str) -> Process:
        """The inverse of `encode`. Raises: ValueError, TypeError, KeyError for anything else."""
        return cls._sound(json.loads(encoded))

    @classmethod
    def _sound(cls, known: Any) -> Process:
        names = (text(known[name]) for name in ("pids", "boot", "host"))
        return cls(whole(known["pid"], most=_MOST_PID), whole(known["started"]), *names)

    def is_visible(self) -> bool:
        """It would be seen from here, if it ran."""
        return (self.pids, self.boot) == _machine()

    def has_ended(self) -> bool:
        """It is known to run no more. Of processes of other machines nothing is known."""
        if not self.is_visible():
            return False
        if (found := _stat(self.pid)) is not None:
            return found[0] in "ZX" or found[1] != self.started
        try:
            os.kill(self.pid, 0)  # it may be there and hidden from us
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> tuple[str, str]:
    """The namespace of process numbers, and the boot."""
    pids = boot = ""
    with contextlib.suppress(OSError):
        pids = os.readlink("/proc/self/ns/pid")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return pids, boot


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start of a process, if it is there and not hidden from us."""
    with contextlib.suppress(OSError, IndexError):
        # The name before it stands in brackets, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return fields[0], int(fields[19])
    return None


_SLICES_S = (0.001, 0.1)  # between two looks for what is waited for: the first, and the longest
_LONG_S = 10.0  # a wait that takes longer says once whom it waits for
_LOOK_S = 0.25  # between two looks whether another rank has failed, which ask the store


@dataclass(frozen=True)
class Place:
    """Where this process stands in the group that is being made.

    Args:
      ranks: its members in the default group; empty: it is that group, or one beside it with its own store.
      missing: pairs of ranks between which nothing crosses, as all know.
      epoch: of members that come and go, whose group it is; None: of none.
    """

    store: Any
    name: str
    rank: int
    size: int
    timeout: timedelta
    ranks: Sequence[int] = ()
    missing: Sequence[tuple[int, int]] = ()
    epoch: int | None = None


class Renewed(Exception):
    """Rank 0 is another process than the one with which the meeting was begun: all have been restarted."""


def prefix() -> str:
    """What all keys begin with. Jobs may share a store; torchrun gives each a name."""
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    return "tweed" if run is None else f"tweed/{run}"


@dataclass
class Meeting:
    """One try to make a group.

    Args:
      place: this process's.
      key: what its keys begin with: the same at all ranks, and of no other try.
      first: the process that has rank 0, as it has claimed it; `None`: nobody claims ranks of this group.
      members: the processes that are known to belong to it, by rank. One that has ended ends the meeting.
    """

    place: Place
    key: str
    first: str | None = None
    members: Mapping[int, Process] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    _printed: bool = False
    _looked: float = 0.0
    _turn_looked: float = 0.0
    _turned: set[int] = field(default_factory=set)

    def leave(self, what: str, data: bytes | str) -> None:
        """Leaves something for the others."""
        self.place.store.set(f"{self.key}/{what}", data)

    def take(self, what: str, missing: Callable[[], list[int]]) -> bytes:
        """Waits for what another rank leaves.

        Args:
          what: its name.
          missing: the ranks that are waited for, to be named.

        Raises:
          DeadlineExceeded: it did not come in time; names who is missing.
          PeerLost, UsageError: another rank has failed, and said why; or the store is gone.
        """
        key = f"{self.key}/{what}"
        return self.wait(
            lambda: limited(self.place.store.get(key)) if self.place.store.check([key]) else None, missing
        )

    def wait(self, find: Callable[[], bytes | None], missing: Callable[[], list[int]]) -> bytes:
        """As `take`, for what `find` returns."""
        pause, longest = _SLICES_S
        while (found := self._ask(find)) is None:
            try:
                self.look()
            except (PeerLost, UsageError):  # who fails may have left it first, and it may say more
                if (found := self._ask(find)) is None:
                    raise
                break
            self._count_time(missing)
            time.sleep(pause)  # hears signals
            pause = min(1.25 * pause, longest)  # overshoots by a fifth of what was waited
        return found

    def _count_time(self, missing: Callable[[], list[int]]) -> None:
        waited = time.monotonic() - self.began
        left = self.place.timeout.total_seconds() - waited
        if left < 0:
            raise DeadlineExceeded(f"{self._absent(missing(), waited)}. {_ADVICE}")
        if waited > _LONG_S and not self._printed:
            self._printed = True
            text = f"tweed: {self._absent(missing(), waited)}; it gives up in {left:.0f} s"
            print(text, file=sys.stderr, flush=True)

    def has(self, what: str) -> bool:
        """Somebody has left it."""
        return bool(self.place.store.check([f"{self.key}/{what}"]))

    def look(self, *, at_once: bool = False) -> None:
        """Raises what has made another rank fail. The engine calls it often; it asks the store at times."""
        if time.monotonic() - self._looked < _LOOK_S and not at_once:
            return
        self._looked = time.monotonic()
        # Who fails says why and ends: what it says is read after its end has been seen.
        gone = next((rank for rank, process in self.members.items() if process.has_ended()), None)
        with contextlib.suppress(dist.DistError):
            if self.has("failed"):
                with reading(self.place.store, "why a rank has failed"):
                    said = value(self.place.store, f"{self.key}/failed", _REASON_BYTES)
                    rank, usage, reason = json.loads(said)
                error = UsageError if usage else PeerLost
                raise error(f"group {self.place.name!r} cannot be made: rank {rank} has failed: {reason}")
            if self.first is not None and self.holder(0) != self.first:
                raise Renewed
        if gone is not None:
            raise PeerLost(
                f"group {self.place.name!r}: rank {gone} is gone: {self.members[gone]} ended before the "
                "group was made. See its own output, and start it anew"
            )

    def turn(self, unreached: Sequence[int]) -> list[int]:
        """Asks the ranks that this one cannot call to call it, and returns those that ask this one.

        The engine calls it often; it asks the store at times.
        """
        for rank in set(unreached) - self._turned:
            self.leave(f"call/{rank}/{self.place.rank}", b"")
            self.leave(f"called/{rank}", b"")
            self._turned.add(rank)
        if time.monotonic() - self._turn_looked < _LOOK_S:
            return []
        self._turn_looked = time.monotonic()
        if not self.has(f"called/{self.place.rank}"):
            return []
        return [rank for rank in range(self.place.size) if self.has(f"call/{self.place.rank}/{rank}")]

    def holder(self, rank: int) -> str | None:
        """The process that has claimed that rank."""
        key = f"{prefix()}/holder/{rank}"
        if not self.place.store.check([key]):
            return None
        with reading(self.place.store, "which process has a rank"):
            return value(self.place.store, key, _HOLDER_BYTES).decode()

    @contextlib.contextmanager
    def reported(self) -> Iterator[None]:
        """Leaves for the others why this rank fails, if it does."""
        try:
            yield
        except BaseException as error:
            kind = type(error).__name__
            reason = str(error) if isinstance(error, TweedError) else f"{kind} {error}".strip()
            words = f"{Process.here()}: {reason}"[: _REASON_BYTES // 8]  # JSON may have six letters for one
            failure = json.dumps([self.place.rank, isinstance(error, UsageError), words])
            # The first reason counts, and this rank's own error is worth more than one of the store.
            with contextlib.suppress(Exception):
                self.place.store.compare_set(f"{self.key}/failed", "", failure)
            raise

    def _ask(self, find: Callable[[], bytes | None]) -> bytes | None:
        try:
            with reading(self.place.store, "what ranks say to each other"):
                return find()
        except PeerLost as error:
            raise PeerLost(f"group {self.place.name!r}: {error}") from error

    def _absent(self, ranks: list[int], waited: float) -> str:
        some = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
        who = f"rank {some} has" if len(ranks) == 1 else f"ranks {some} have"
        group, size = self.place.name, self.place.size
        return f"group {group!r}: after {waited:.0f} s, {who} not come to rank {self.place.rank}, of {size}"


_ADVICE = (
    "Was it started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE as the others, and does it make "
    "the same groups in the same order? Its own output may say why not"
)
