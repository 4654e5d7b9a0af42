"""`torchrun --rdzv-backend tweed`: agents whose workers are members that come and go.

Each agent is alone in what it gives its workers: a store of its own, and ranks of this host. So no agent
restarts its workers because of another one. What agents share is a directory, a `TCPStore` at the endpoint,
in which they list their workers' addresses; it is asked when workers start, and may be lost at other times.

    an agent    moved by                                         to
    WAITING     the directory lists members of the run           PLACED: its workers join those
                no agent beats that is PLACED                    ARRIVED
    ARRIVED     it is among those that the first has counted     PLACED: its workers are founders
                it is not                                        WAITING
                `max_nodes` have arrived; or at least            the first to arrive counts them
                `min_nodes`, and `last_call_timeout` has passed
    PLACED      a worker has died: torchrun asks again           WAITING, and its workers are listed no more

What cannot happen: a second run is founded while an agent is alive whose workers are in the first, or about
to be. The directory is held by an agent on the endpoint's host, the first that finds none. If that agent
dies, the next one there holds a new one, and agents that are PLACED beat and list their workers there within
a second; who arrives before they do waits for `last_call_timeout`.

What is in the directory only says whom to call: members are let in by their secret (docs/security.md).
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, RLock, Thread
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname, parse_rendezvous_endpoint

from tweed.errors import PeerLost
from tweed.exchange.store import MOST_TEXT, open_store, reach_store, reading, split_place, text, value, whole

#: What workers are told, see `tweed.elastic.meet`: whom to join; and a list with "host:port" of their agent's
#: store, behind which founders have the directory, a prefix in it, which agent theirs is, and how many found.
JOIN, AGENT = "TWEED_JOIN", "TWEED_AGENT"
_PORT = 29400
_LOOK_S = 0.1
_CALL_S = 5.0
#: An agent that has not beaten for so long, ten times as long as from one beat to the next, is dead.
_SILENCE_S, _BEAT_S = 5.0, 0.5
#: No directory has more agents, and none of them more addresses, or a longer number.
_MOST_SLOTS, _LIST_BYTES, _NUMBER_BYTES = 100_000, 1 << 20, 20


class Directory:
    """The members of one run, and the agents that found it: in a store at the endpoint.

    Args:
      endpoint: "host:port".
      run_id: keeps runs apart that have one endpoint.
    """

    def __init__(self, endpoint: str, run_id: str) -> None:
        self._host, self._port = parse_rendezvous_endpoint(endpoint, default_port=_PORT)
        self._prefix = f"tweed/{run_id}"
        self._held = self._reached()  # the server ends with the last that refers to it
        self._store = PrefixStore(self._prefix, self._held)
        self._slot = self._store.add("slots", 1)
        self._beats = 0
        self._heard: dict[int, tuple[bytes, float]] = {}  # by slot, its last beat, and when it was new

    def _reached(self) -> Any:
        try:
            return reach_store(self._host, self._port, _CALL_S)
        except PeerLost as error:
            if not _matches_machine_hostname(self._host):
                raise dist.DistError(str(error)) from None
            try:
                return open_store(self._host, self._port)
            except OSError as taken:
                raise dist.DistError(f"{error}; nor can one be opened there: {taken}") from None

    @property
    def place(self) -> str:
        """Where workers reach the directory, as "host:port"."""
        return f"{self._host}:{self._port}"

    @property
    def prefix(self) -> str:
        """What the run's names in the store begin with."""
        return self._prefix

    def tell(self, addresses: list[str]) -> None:
        """These are this agent's workers now."""
        self._store.set(f"members {self._slot}", json.dumps(addresses))

    def beat(self) -> None:
        """This agent is alive and its workers are placed."""
        self._beats += 1
        self._store.set(f"beat {self._slot}", str(self._beats))

    def rest(self) -> None:
        """This agent has no workers."""
        self.tell([])
        self._store.set(f"beat {self._slot}", "")

    def others_beat(self, now: float) -> bool:
        """Another agent's workers are placed, and it is alive, as far as this one has heard so far."""
        for slot in self._slots():
            name = f"beat {slot}"
            beat = self._store.get(name) if slot != self._slot and self._store.check([name]) else b""
            if beat != self._heard.get(slot, (b"", 0.0))[0]:
                self._heard[slot] = beat, now
        return any(beat and now < since + _SILENCE_S for beat, since in self._heard.values())

    def members(self) -> list[str]:
        """Addresses of all agents' workers. Raises: PeerLost if others write there."""
        listed = [name for slot in self._slots() if self._store.check([name := f"members {slot}"])]
        with reading(self._held, "addresses of workers"):
            return [place for name in listed for place in _addresses(value(self._store, name, _LIST_BYTES))]

    def _slots(self) -> range:
        """The numbers of all agents that have come."""
        with reading(self._held, "the number of agents"):
            return range(1, whole(self._store.add("slots", 0), most=_MOST_SLOTS) + 1)

    def arrive(self) -> tuple[int, int]:
        """The number of the meeting of founders, and which of those that arrive there this agent is."""
        meeting = self._store.add("meeting", 0)
        return meeting, self._store.add(f"{meeting} arrived", 1) - 1

    def arrived(self, meeting: int) -> int:
        """How many agents have arrived at this meeting."""
        return self._store.add(f"{meeting} arrived", 0)

    def close(self, meeting: int, agents: int) -> None:
        """The first so many are the founders, this agent among them."""
        self.beat()
        self._store.set(f"{meeting} founders", str(agents))
        self._store.add("meeting", 1)

    def founders(self, meeting: int) -> int:
        """How many they are; 0: they are not counted yet."""
        name = f"{meeting} founders"
        if not self._store.check([name]):
            return 0
        with reading(self._held, "the number of founders"):
            return whole(int(value(self._store, name, _NUMBER_BYTES)), most=_MOST_SLOTS)


@dataclass(slots=True)
class _Arrival:
    """An agent that has arrived: at which meeting of founders, which it is of those there, and when the least
    number had come."""

    meeting: int
    number: int
    enough_at: float | None = None


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
        return "tweed"

    @property
    def use_agent_store(self) -> bool:
        """Always true: workers of an agent that are one member have a group by its own store."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Places this agent's workers, see the module; it is alone in what torch sees."""
        with self._lock:
            self._own = None
            with suppress(dist.DistError):  # it is asked again below
                if self._directory is not None:
                    self._directory.rest()
        place = self._joins or self._place()
        own = open_store("127.0.0.1")
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
        until, trouble = time.monotonic() + self._join_s, ""
        arrival: _Arrival | None = None
        while time.monotonic() < until:
            try:
                directory = self._reached()
                if members := directory.members():
                    directory.beat()
                    return ",".join(members)
                if arrival is None and not directory.others_beat(time.monotonic()):
                    arrival = _Arrival(*directory.arrive())
                if arrival is not None:
                    founders = self._founders(directory, arrival)
                    if founders > arrival.number:
                        directory.beat()
                        return (
                            directory.place,
                            f"{directory.prefix}/{arrival.meeting}",
                            arrival.number,
                            founders,
                        )
                    arrival = None if founders else arrival
            except (dist.DistError, PeerLost) as error:
                self._directory, arrival = None, None  # another one is found, or held
                trouble = f". {str(error).splitlines()[0]}"
            self._over.wait(_LOOK_S)
        raise RendezvousTimeoutError(
            f"tweed: no members of run {self._params.run_id!r} are listed at {self._params.endpoint}, and "
            f"fewer than {self._params.min_nodes} agents have come there within {self._join_s:g} s{trouble}"
        )

    def _founders(self, directory: Directory, arrival: _Arrival) -> int:
        """How many found; 0: they are not counted yet. The first of them counts."""
        now, most = time.monotonic(), self._params.max_nodes
        founders = directory.founders(arrival.meeting)
        if founders or arrival.number > 0:
            return founders
        arrived = directory.arrived(arrival.meeting)
        if arrived >= self._params.min_nodes and arrival.enough_at is None:
            arrival.enough_at = now
        called = arrival.enough_at is not None and now > arrival.enough_at + self._last_call_s
        # Agents of a run that goes on may have found this directory after this one has.
        if (arrived >= most or called) and not directory.others_beat(now):
            directory.close(arrival.meeting, min(arrived, most))
            return min(arrived, most)
        return 0

    def _reached(self) -> Directory:
        with self._lock:
            if self._directory is None:
                self._directory = Directory(self._params.endpoint, self._params.run_id)
            return self._directory

    def _keep(self) -> None:
        """Lists this agent's workers, again where the directory is another one."""
        listed: tuple[Any, list[str]] = (None, [])
        while not self._over.wait(_BEAT_S):
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
                    directory.beat()
                except (dist.DistError, PeerLost):
                    self._directory = None

    def is_closed(self) -> bool:
        return self._over.is_set()

    def set_closed(self) -> None:
        """Closes the rendezvous here alone; others go on."""
        self._over.set()

    def num_nodes_waiting(self) -> int:
        """None: workers that go on take others in by themselves, and must not be restarted for it."""
        return 0

    def get_run_id(self) -> str:
        return self._params.run_id

    def shutdown(self) -> bool:
        """Its workers are listed no more."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        with suppress(dist.DistError):
            if self._directory is not None:
                self._directory.rest()
        return True


def _addresses(said: bytes) -> list[str]:
    """The addresses that an agent lists."""
    places = [text(place) for place in json.loads(said)]
    for place in places:
        split_place(place)
    return places


def _listed(own: Any) -> list[str]:
    """Addresses that workers of this agent have said, see `tweed.elastic.meet`; none where others write."""
    with suppress(PeerLost), reading(own, "addresses of workers"):
        slots = whole(own.add("members", 0), most=_MOST_SLOTS)
        places = [value(own, f"member {slot}", MOST_TEXT).decode() for slot in range(1, slots + 1)]
        return _addresses(json.dumps(places).encode())
    return []
