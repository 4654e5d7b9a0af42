"""How a process gets among the members: founders meet by torch's store, a joiner calls any member."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from typing import Any, cast

from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from tweed import _core
from tweed.elastic.control import Control
from tweed.elastic.discovery import ALL_GONE
from tweed.elastic.member_links import later_life, settings
from tweed.elastic.messages import MOST_BYTES, TEXT, Hello, Known, Life, packed, read
from tweed.elastic.settings import Elastic
from tweed.errors import DeadlineExceeded, PeerLost, TweedError, UsageError
from tweed.exchange.store import reach_store, reading, split_place, text, value, whole
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import opened

log = logging.getLogger("tweed")

#: Where rank 0 says who votes.
_VOTERS = "tweed witnesses"
_WITNESS_S = 10.0
#: A store of an agent answers in so long, and what founders say comes in so long.
_STORE_S, _SAID_S = 10.0, 300.0
#: The most that it is to say of a founder, and of witnesses or why there are none.
_FOUNDER_BYTES, _VOTERS_BYTES = 2000, 16_000
_KEY_BYTES, _MOST_WORKERS = 32, 4096
_OF_FOUNDERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def start(store: Any, rank: int, size: int, elastic: Elastic, timeout_s: float = 60.0) -> Control:
    """Links this process to the other founders, which it finds through torch's store; that may go afterwards.

    Args:
      store: torch's, a `dist.Store`.

    Raises:
      UsageError: there are more founders than there may be members, or fewer than there must be; a witness
        has seen another run; one of them has another secret, or other witnesses than rank 0.
      PeerLost: a witness is not reached.
      DeadlineExceeded: one of them did not come in time.
    """
    if not elastic.min_members <= size <= elastic.max_members:
        raise UsageError(
            f"{size} members begin, and Elastic allows {elastic.min_members} to {elastic.max_members}: "
            "start another number of processes, or change Elastic(min_members, max_members)"
        )
    links = opened(Credentials.of(elastic.key_file), MOST_BYTES)
    try:
        address = _listening(links, elastic)
        store.set(f"tweed member {rank}", json.dumps([links.key, address]))
        voters = _voters(store, rank, elastic)
        with reading(store, "where the founders are"):
            found = [_founder(value(store, f"tweed member {other}", _FOUNDER_BYTES)) for other in range(size)]
        linked, early = _meet(links, found, rank, timeout_s)
    except BaseException:
        links.close()
        raise
    founders = [(key, 0) for key, _ in found]
    node = _core.MemberNode.founder((links.key, 0), founders, voters, _settings(elastic, rank))
    return Control(links, node, (linked, dict(found)), early, address, elastic)


def _founder(said: bytes) -> tuple[str, str]:
    """The key of one, and where it is called; empty: nobody calls it."""
    key, address = json.loads(said)
    if address:
        split_place(text(address))
    return _sound_key(key), address


def _sound_key(key: Any) -> str:
    if len(bytes.fromhex(text(key))) != _KEY_BYTES:
        raise ValueError(f"{key!r} is no key")
    return str(key)


def meet(elastic: Elastic, timeout_s: float = 60.0, *, of_agents: bool = False) -> Control:
    """Gets this process among the members as its environment has it: TWEED_JOIN names members to join; else
    torch's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets, are those of a founder. Under
    `torchrun --rdzv-backend tweed` the agent has said which of both this is (`tweed.torch.torchrun`).

    Args:
      of_agents: a member is all workers of an agent, of which this is the first: torch's variables are then
        those of the workers among themselves, and without agents it founds a run alone.

    Raises: UsageError if there is neither; else see `join` and `start`.
    """
    agent, *founds = json.loads(os.environ.get("TWEED_AGENT", '[""]'))
    if os.environ.get("TWEED_JOIN"):
        control = join(None, elastic, timeout_s)
    else:
        found = _founders if not of_agents else _first_workers
        control = start(*(found(*founds) if founds else _of_torch(of_agents)), elastic, timeout_s)
    if agent and control.address:  # else others join by another one
        store = _store(agent)
        store.set(f"member {store.add('members', 1)}", control.address)
    return control


def _store(place: str) -> Any:
    return reach_store(*split_place(place), _STORE_S, _SAID_S)


def _founders(place: str, prefix: str, agent: int, agents: int) -> tuple[Any, int, int]:
    """Where founders meet, which of them this process is, and how many there are: of all agents' workers.

    Args:
      place, prefix: of the store.
      agent: which of so many `agents` has started this process.
    """
    store, workers = PrefixStore(prefix, _store(place)), int(os.environ["LOCAL_WORLD_SIZE"])
    store.set(f"workers {agent}", str(workers))
    with reading(store, "how many workers agents have"):
        sizes = [
            whole(int(value(store, f"workers {other}", 8)), most=_MOST_WORKERS) for other in range(agents)
        ]
    return store, sum(sizes[:agent]) + int(os.environ["LOCAL_RANK"]), sum(sizes)


def _first_workers(place: str, prefix: str, agent: int, agents: int) -> tuple[Any, int, int]:
    """As `_founders`, where only the first worker of each agent is one."""
    return PrefixStore(prefix, _store(place)), agent, agents


def _of_torch(of_agents: bool) -> tuple[Any, int, int]:
    """As `_founders`, by torch's own variables."""
    if of_agents:  # nobody has said where other agents are: it begins alone
        return HashStore(), 0, 1
    if missing := [name for name in _OF_FOUNDERS if name not in os.environ]:
        raise UsageError(
            "this process does not know the other members. Start it by torchrun, which sets "
            f"{missing[0]}; or set TWEED_JOIN=host:port of a member that trains already; or give "
            "attach(elastic=control) a control that tweed.elastic.start or join returns"
        )
    found: tuple[Any, int, int] = next(rendezvous("env://"))
    return found


#: Of who joins: how many members there may be, the others say.
_OF_OTHERS = Elastic(1, 1)


def join(address: str | None = None, elastic: Elastic = _OF_OTHERS, timeout_s: float = 60.0) -> Control:
    """Links this process to all members; `ElasticRun` takes their state, and lets them let it in.

    Args:
      address: "host:port" of any member, its `Control.address`; several, with commas between, are tried in
        turn. None: TWEED_JOIN has it.
      elastic: how this process is reached; how many members there may be is taken from the others.

    Raises:
      UsageError: no address is given, or the members have another secret.
      PeerLost: none of them answers.
      DeadlineExceeded: a member did not answer in time.
    """
    places = os.environ.get("TWEED_JOIN", "") if address is None else address
    if not places:
        raise UsageError(
            "join was given no address of a member: give one, or set TWEED_JOIN=host:port,host:port,..."
        )
    links = opened(Credentials.of(elastic.key_file), MOST_BYTES)
    try:
        own = _listening(links, elastic)
        joiner = _Joiner(links, own, time.monotonic() + timeout_s)
        joiner.call(places)
        if not joiner.run.most:
            raise PeerLost(
                f"no process at {places} is a member: those that answer there are joining as well. Give the "
                "address of a process that trains"
            )
    except BaseException:
        links.close()
        raise
    # Members forget who has left: the number that they know may be none.
    me, run = (links.key, max(joiner.incarnation + 1, later_life())), joiner.run
    elastic = replace(
        elastic,
        min_members=run.least,
        max_members=run.most,
        about=run.about,
    )
    node = _core.MemberNode.joiner(me, list(joiner.addresses), _settings(elastic, 0))
    return Control(links, node, (joiner.linked, joiner.addresses), joiner.early, own, elastic)


def _listening(links: _core.HubLinks, elastic: Elastic) -> str:
    """Where this process is called; empty: nobody calls it."""
    if os.environ.get("TWEED_DIAL_ONLY") == "1":
        return ""
    return links.listen(f"{elastic.host}:{elastic.port}", "members")


def _settings(elastic: Elastic, seed: int) -> dict[str, int]:
    return settings(elastic.min_members, elastic.max_members, seed)


def _voters(store: Any, rank: int, elastic: Elastic) -> list[tuple[str, int, str]]:
    """Witnesses, which of their lives these are, and where they are called. Rank 0 asks them: all are to
    begin with one epoch."""
    if rank == 0:
        try:
            store.set(_VOTERS, json.dumps([_life(one) for one in elastic.witness_addresses()]))
        except TweedError as error:
            store.set(_VOTERS, json.dumps(str(error)))
            raise
    with reading(store, "the witnesses"):
        said = json.loads(value(store, _VOTERS, _VOTERS_BYTES))
        if not isinstance(said, str):
            said = [(_sound_key(key), whole(incarnation), text(place)) for key, incarnation, place in said]
    if isinstance(said, str):
        raise PeerLost(f"rank 0 cannot begin: {said}")
    given = {str(one) for one in elastic.witness_addresses()}
    if given != (known := {f"{key}@{place}" for key, _, place in said}):
        raise UsageError(
            f"rank 0 has the witnesses {sorted(known)}, and this process was given {sorted(given)}: give "
            "all processes the same Elastic(witnesses=...)"
        )
    return cast("list[tuple[str, int, str]]", said)


def _life(witness: HubAddress) -> tuple[str, int, str]:
    """A witness's key, its incarnation, and where it is called. Raises: see `start`."""
    links = opened(Credentials.of(None).anonymous, MOST_BYTES)
    try:
        link = links.call(witness.place, witness.key)
        links.send(link, packed(Hello(witness.place)))
        until = time.monotonic() + _WITNESS_S
        while time.monotonic() < until:
            for _, what in links.next(0.1):
                if isinstance(what, str):
                    raise PeerLost(f"the witness at {witness.place} has ended the link: {what}")
                if isinstance(what, bytes):  # the link stands, and this is its key
                    continue
                if what[:1] == bytes([TEXT]) and isinstance(said := read(what), Life):
                    return _unused(witness, said)
    finally:
        links.close()
    raise PeerLost(f"the witness at {witness.place} does not answer within {_WITNESS_S:g} s")


def _unused(witness: HubAddress, said: Life) -> tuple[str, int, str]:
    if said.epoch:
        raise UsageError(
            f"the witness at {witness.place} knows epoch {said.epoch} of another run, and would mistake it "
            "for the last epoch of this one: start the witness with another --state"
        )
    assert witness.key is not None  # `Elastic` has looked
    return witness.key, said.incarnation, witness.place


def _meet(
    links: _core.HubLinks, found: list[tuple[str, str]], rank: int, timeout_s: float
) -> tuple[dict[int, str], list[Any]]:
    """Calls those of lower ranks, and those that cannot call this process; waits for the others. Returns the
    links, and what has come over them."""
    mine = found[rank][1]
    called = [(key, at) for other, (key, at) in enumerate(found) if at and (other < rank or not mine)]
    linked = {links.call(at, key): key for key, at in called}
    early: list[Any] = []  # others may be further, and send already
    until = time.monotonic() + timeout_s
    reached = [other for other, (_, at) in enumerate(found) if other != rank and (at or mine)]
    while len(linked) < len(reached):
        if time.monotonic() > until:
            missing = [other for other in reached if found[other][0] not in linked.values()]
            raise DeadlineExceeded(f"no link to the members of ranks {missing} within {timeout_s:g} s")
        early += (events := links.next(0.1))
        linked |= {link: what.hex() for link, what in events if isinstance(what, bytes)}
    return linked, early


class _Joiner:
    """Calls one member, hears of the others, and calls them too."""

    def __init__(self, links: _core.HubLinks, own: str, until: float) -> None:
        self._links, self._own, self._until = links, own, until
        self.linked: dict[int, str] = {}
        self.addresses: dict[str, str] = {}
        self.early: list[Any] = []
        self.incarnation, self.run = -1, Known([], -1)
        self._asked: set[int] = set()

    def call(self, addresses: str) -> None:
        """Returns when all are linked, and have answered."""
        reasons = []
        for address in filter(None, (one.strip() for one in addresses.split(","))):
            try:
                self._hello(self._links.call(address))
                break
            except PeerLost as error:
                reasons.append(f"{address}: {error}")
        else:
            raise PeerLost(f"no member can be joined. {'; '.join(reasons) or 'No address was given'}")
        while self._asked:
            if time.monotonic() > self._until:
                raise DeadlineExceeded(
                    "a member was reached, but it has not said in time who the other members are: see its "
                    "output, and start this process again"
                )
            for link, what in self._links.next(0.1):
                self._handle(link, what)

    def _hello(self, link: int) -> None:
        key = self._links.key_of(link)
        if key is None:
            return  # it has ended already, and an event says so
        self.linked[link] = key
        self._asked.add(link)
        self._links.send(link, packed(Hello(self._own)))

    def _handle(self, link: int, what: bytes | bytearray | str) -> None:
        if isinstance(what, bytes):
            self.linked[link] = what.hex()
        elif isinstance(what, str):
            self._asked.discard(link)
            self.addresses.pop(self.linked.pop(link, ""), None)
            if not self.linked:
                raise PeerLost(f"{ALL_GONE} ({what})")
        elif what[:1] == bytes([TEXT]) and isinstance(said := read(what), Known | Hello):
            if isinstance(said, Hello):  # another joiner, which waits as this one does
                self.addresses[self.linked[link]] = said.address
                self._links.send(link, packed(Known([[self._links.key, self._own]], -1)))
            else:
                self._asked.discard(link)
                self._learn(said)
        else:
            self.early.append((link, what))

    def _learn(self, known: Known) -> None:
        self.incarnation = max(self.incarnation, known.incarnation)
        self.run = known if known.most else self.run
        for key, address in known.others:
            if key == self._links.key or key in self.addresses:
                continue
            if address and key not in self.linked.values():
                try:
                    self._hello(self._links.call(address, key))
                except PeerLost as error:  # it may have died a moment ago: the others will say so
                    log.warning("a member at %s is not reached: %s", address, error)
                    continue
            self.addresses[key] = address
