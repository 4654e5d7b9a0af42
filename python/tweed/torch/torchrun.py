"""`torchrun --rdzv-backend tweed`: agents whose workers are members that come and go.

Each agent is alone in what it gives its workers: a store of its own, and ranks of this host. So no agent
restarts its workers because of another one. What agents share is a directory, a `TCPStore` at the endpoint,
in which they list their workers' addresses; it is asked when workers start, and may be lost at other times.

    an agent    moved by                                         to
    ARRIVING    the directory lists members of the run           PLACED: its workers join those
                it is among the first, who have closed           PLACED: its workers are founders
                it comes after they have closed                  WAITING
                `max_nodes` have arrived; or at least            the first of all closes
                `min_nodes`, and `last_call_timeout` has passed
    WAITING     the directory lists members                      PLACED, as above
    PLACED      a worker has died: torchrun asks again           ARRIVING, and its workers are listed no more

The directory is held by an agent on the endpoint's host, the first that finds none. If that agent dies, the
next one there holds a new one, in which all list their workers again; who arrives meanwhile waits at least
`last_call_timeout`, unless all have arrived, and so does not found a second run.

What is in the directory only says whom to call: members are let in by their secret (docs/security.md).
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Event, RLock, Thread
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname, parse_rendezvous_endpoint

#: What workers are told, see `tweed.elastic.meet`: whom to join; and a list with "host:port" of their agent's
#: store, behind which founders have the directory, a prefix in it, which agent theirs is, and how many found.
JOIN, AGENT = "TWEED_JOIN", "TWEED_AGENT"
_PORT = 29400
_LOOK_S = 0.1
_CALL_S = 5.0


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What torch's entry point group `torchrun.handlers` wants."""
    return TweedRendezvous


class Directory:
    """The members of one run, and the agents that found it: in a store at the endpoint.

    Args:
      endpoint: "host:port".
      run_id: keeps runs apart that have one endpoint.
    """

    def __init__(self, endpoint: str, run_id: str) -> None:
        self._host, self._port = parse_rendezvous_endpoint(endpoint, default_port=_PORT)
        self._prefix = f"tweed/{run_id}"
        store = self._reached()
        self._held = store  # the server ends with the last that refers to it
        self._store = PrefixStore(self._prefix, store)
        self._slot = self._store.add("slots", 1)

    def _reached(self) -> Any:
        try:
            socket.create_connection((self._host, self._port), timeout=_CALL_S).close()
        except OSError as error:  # torch itself would try for long, and print much
            if not _matches_machine_hostname(self._host):
                raise dist.DistError(f"no directory at {self.place}: {error}") from None
            return TCPStore(self._host, self._port, is_master=True, wait_for_workers=False)
        return TCPStore(self._host, self._port, is_master=False, timeout=timedelta(seconds=_CALL_S))

    @property
    def place(self) -> str:
        """ "host:port" for workers."""
        return f"{self._host}:{self._port}"

    @property
    def prefix(self) -> str:
        """Of the run's names in the store."""
        return self._prefix

    def tell(self, addresses: list[str]) -> None:
        """These are this agent's workers now."""
        self._store.set(f"members {self._slot}", json.dumps(addresses))

    def members(self) -> list[str]:
        """Addresses of all agents' workers."""
        slots = [f"members {slot}" for slot in range(1, self._store.add("slots", 0) + 1)]
        return [
            one for slot in slots if self._store.check([slot]) for one in json.loads(self._store.get(slot))
        ]

    def arrive(self) -> tuple[int, int]:
        """The number of the meeting of founders, and which of those that arrive there this agent is."""
        meeting = self._store.add("meeting", 0)
        return meeting, self._store.add(f"{meeting} arrived", 1) - 1

    def arrived(self, meeting: int) -> int:
        """How many."""
        return self._store.add(f"{meeting} arrived", 0)

    def close(self, meeting: int, agents: int) -> None:
        """The first so many are the founders."""
        self._store.set(f"{meeting} founders", str(agents))
        self._store.add("meeting", 1)

    def founders(self, meeting: int) -> int | None:
        """How many they are; None: it is not closed."""
        name = f"{meeting} founders"
        return int(self._store.get(name)) if self._store.check([name]) else None


class TweedRendezvous(RendezvousHandler):
    """See the module.

    Args:
      params: as torchrun has them; `--rdzv-conf` takes join_timeout (600 s) and last_call_timeout (30 s).
    """

    def __init__(self, params: RendezvousParameters) -> None:
        self._params = params
        self._join_s = float(params.get("join_timeout", 600))
        self._last_call_s = float(params.get("last_call_timeout", 30))
        self._joins = os.environ.get(JOIN, "")  # the user has said whom
        self._directory: Directory | None = None
        self._own: Any = None  # of this agent and its workers
        self._lock, self._over = RLock(), Event()
        self._keeper = Thread(target=self._keep, name="tweed-directory", daemon=True)
        if params.local_addr:
            os.environ.setdefault("TWEED_HOST", params.local_addr)

    def get_backend(self) -> str:
        """See `RendezvousHandler`."""
        return "tweed"

    def next_rendezvous(self) -> RendezvousInfo:
        """Places this agent's workers, see the module; it is alone in what torch sees."""
        with self._lock:
            self._own = None
        place = self._joins or self._place()
        own = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        founds = [] if isinstance(place, str) else place
        os.environ[JOIN] = place if isinstance(place, str) else ""
        os.environ[AGENT] = json.dumps([f"127.0.0.1:{own.port}", *founds])
        with self._lock:
            self._own = own
        if not self._keeper.is_alive():
            self._keeper.start()
        return RendezvousInfo(own, 0, 1, RendezvousStoreInfo("127.0.0.1", own.port))

    def _place(self) -> str | tuple[str, str, int, int]:
        """Whom workers join; or how they found. Raises RendezvousTimeoutError."""
        until, enough_at = time.monotonic() + self._join_s, None
        arrival: tuple[int, int] | None = None
        while time.monotonic() < until:
            try:
                directory = self._reached()
                directory.tell([])  # those before are gone
                if members := directory.members():
                    return ",".join(members)
                meeting, number = arrival = arrival or directory.arrive()
                founders = directory.founders(meeting)
                if founders is not None and number < founders:
                    return directory.place, f"{directory.prefix}/{meeting}", number, founders
                if founders is None and number == 0:
                    arrived, now = directory.arrived(meeting), time.monotonic()
                    if arrived >= self._params.min_nodes and enough_at is None:
                        enough_at = now
                    called = enough_at is not None and now > enough_at + self._last_call_s
                    if arrived >= self._params.max_nodes or called:
                        directory.close(meeting, min(arrived, self._params.max_nodes))
                        continue
            except dist.DistError:
                self._directory, arrival, enough_at = None, None, None  # another one is found, or held
            self._over.wait(_LOOK_S)
        raise RendezvousTimeoutError(
            f"tweed: no members of run {self._params.run_id!r} are listed at {self._params.endpoint}, and "
            f"fewer than {self._params.min_nodes} agents have come there within {self._join_s:g} s"
        )

    def _reached(self) -> Directory:
        with self._lock:
            if self._directory is None:
                self._directory = Directory(self._params.endpoint, self._params.run_id)
            return self._directory

    def _keep(self) -> None:
        """Lists this agent's workers, again where the directory is another one."""
        listed: tuple[Any, list[str]] = (None, [])
        while not self._over.wait(_LOOK_S * 5):
            with self._lock:
                if self._own is None:
                    listed = (None, [])
                    continue
                try:
                    directory = self._reached()
                    now = (directory, _listed(self._own))
                    if now != listed:
                        directory.tell(now[1])
                        listed = now
                    directory.members()  # fails if it is gone
                except dist.DistError:
                    self._directory = None

    def is_closed(self) -> bool:
        """See `RendezvousHandler`."""
        return self._over.is_set()

    def set_closed(self) -> None:
        """See `RendezvousHandler`: here alone; others go on."""
        self._over.set()

    def num_nodes_waiting(self) -> int:
        """None: workers that go on take others in by themselves, and must not be restarted for it."""
        return 0

    def get_run_id(self) -> str:
        """See `RendezvousHandler`."""
        return self._params.run_id

    def shutdown(self) -> bool:
        """Its workers are listed no more."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        with suppress(dist.DistError):
            if self._directory is not None:
                self._directory.tell([])
        return True


def _listed(own: Any) -> list[str]:
    """Addresses that workers of this agent have said, see `tweed.elastic.meet`."""
    return [own.get(f"member {slot}").decode() for slot in range(1, own.add("members", 0) + 1)]
