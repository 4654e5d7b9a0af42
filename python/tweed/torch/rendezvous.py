"""How the ranks of a group find each other: through torch's Store, once.

Every rank leaves its peer descriptor. Rank 0 collects them, chooses the schedules, and leaves both with a
fresh group id; the others take what rank 0 chose. A handful of requests per rank to the store; rank 0 makes
`size` more. `meeting` has how they wait.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import secrets
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from tweed import distribution
from tweed.collective import NETWORK, ONE_HOST, Plan, plan
from tweed.errors import PeerLost, TweedError, UsageError
from tweed.exchange.store import limited, reading, text, whole
from tweed.torch.agreement import RankTerms, ahead, conflict
from tweed.torch.measure_links import MEASURED, agree
from tweed.torch.meeting import Meeting, Place, Process, Renewed, prefix
from tweed.torch.options import Options

if TYPE_CHECKING:
    from tweed._core import Group, Node


@dataclass(frozen=True)
class Terms:
    """What rank 0 has settled for all."""

    hash: int
    descriptors: list[bytes]
    plan: Plan
    # The plan is for links that nobody has measured: it holds until the members have.
    assumed: bool = False
    # Why there can be no such group, in words, such as two ranks that were given different transports; empty:
    # nothing speaks against it.
    conflict: str = ""
    # What rank 0 has said of itself, encoded.
    first: str = ""

    def encode(self) -> bytes:
        """As bytes for the store."""
        descriptors = [base64.b85encode(descriptor).decode() for descriptor in self.descriptors]
        terms = [self.hash, descriptors, self.plan.to_json(), self.assumed, self.conflict, self.first]
        return json.dumps(terms).encode()

    @classmethod
    def decode(cls, data: bytes) -> Terms:
        """The inverse of `encode`. Raises: ValueError, TypeError, KeyError for anything else."""
        number, descriptors, coded, assumed, conflict, first = json.loads(data)
        known = [_descriptor(one) for one in descriptors]
        try:
            chosen = Plan.from_json(coded)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return cls(whole(number), known, chosen, assumed is True, str(conflict), str(first))


def join(node: Node, place: Place, options: Options) -> tuple[Group, Terms]:
    """Joins this process to the group. Returns when all members have their descriptors in.

    Raises:
      DeadlineExceeded: a member did not turn up within the group's timeout; names it.
      PeerLost: it turned up, and ended since or could not be reached, from here or from another rank.
      UsageError: another process has this one's rank, or ranks have different versions, sizes, clocks,
        secrets, transports or servers (names both), or rank 0 was given a plan that cannot be used.
    """
    while True:
        with reading(place.store, "how often ranks have met"):
            meeting = enter(place)
        with contextlib.suppress(Renewed), meeting.reported():
            return _meet(node, meeting, options)


def _meet(node: Node, meeting: Meeting, options: Options) -> tuple[Group, Terms]:
    place = meeting.place
    terms = settle(node.card(), meeting, options)
    if terms.conflict:
        raise UsageError(f"group {place.name!r}: {terms.conflict}")
    try:
        group = node.join(
            place.name,
            terms.hash,
            place.rank,
            terms.descriptors,
            terms.plan.rows(),
            place.timeout.total_seconds(),
            server=options.server,
            ltp=options.ltp,
            watch=meeting.look,
            turn=meeting.turn,
            missing=place.missing,
            epoch=place.epoch,
        )
        if terms.assumed:
            # Within the meeting: who fails here, or before, leaves why for those who are further.
            missing = unreached(terms.descriptors, place.missing)
            members = place.epoch is not None
            chosen = agree(
                group, options.overrules(), meeting.look, terms.descriptors, missing, of_members=members
            )
            terms = replace(terms, plan=chosen, assumed=False)
    except PeerLost:
        meeting.look(at_once=True)  # who is gone may have left why
        raise
    if not dist.is_initialized():
        _world[:] = map(Process.of_descriptor, terms.descriptors)
        leave_together(meeting, _world)
    return group, terms


@contextlib.contextmanager
def told_to_others(place: Place) -> Iterator[None]:
    """What makes this rank fail before it meets the others, such as a setting of its own, is told to them.

    Those that come within `_TOLD_S` hear of it; nobody is waited for any longer.
    """
    try:
        yield
    except TweedError as error:
        with contextlib.suppress(Exception), enter(replace(place, timeout=_TOLD_S)).reported():
            raise error
        raise


def leave_together(meeting: Meeting, processes: Sequence[Process]) -> None:
    """Rank 0, whose process may keep the store, waits for those who need it: its program may end at once.

    Args:
      processes: of all ranks.

    Raises:
      PeerLost: one of them ended before it had joined, as far as this host can see.
      DeadlineExceeded: one did not join in time.
    """
    place = meeting.place
    if place.rank != 0:
        meeting.leave(f"joined/{place.rank}", b"")
        return
    others = range(1, place.size)

    def missing() -> list[int]:
        return [rank for rank in others if not meeting.has(f"joined/{rank}")]

    for rank in others:
        meeting.members = {rank: processes[rank]}
        try:
            meeting.take(f"joined/{rank}", missing)
        except PeerLost:
            if rank in missing():  # it may well end once it has joined
                raise


_TOLD_S = timedelta(seconds=5)
#: No rank says more of itself: a descriptor grows with the links that have broken.
_ENTRY_BYTES = 1 << 20
#: What the keys of this process's groups begin with: a run of processes that torchrun has started together.
_life: str | None = None
#: The processes of the default group, by rank.
_world: list[Process] = []


def enter(place: Place) -> Meeting:
    """Takes this process's rank, and begins a new try to make the group."""
    global _life
    first, members, life = None, dict(enumerate(_members(place))), _life
    if not place.ranks:  # part of no other group: a later one may share a name with groups of other ranks
        _claim(place)
        first = _first(place)
        members = {0: Process.decode(first)}
        life = hashlib.blake2b(first.encode(), digest_size=6).hexdigest()
    if not dist.is_initialized():
        _life = life
    # Where another backend has the default group, nobody claims ranks.
    life = life or "restart-" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    # A store may outlive a group: torch reuses group names after destroy_process_group.
    round_ = place.store.add(f"{prefix()}/{life}/rounds/{place.rank}", 1)
    return Meeting(place, f"{prefix()}/{life}/{round_}", first, members)


def _members(place: Place) -> list[Process]:
    """The processes of a part of the default group; none where that is of another backend."""
    if not place.ranks or not dist.is_initialized() or "tweed" not in str(dist.get_backend_config()):
        return []
    return [_world[rank] for rank in place.ranks]


def _first(place: Place) -> str:
    """The process that has rank 0. After a restart, the one before it may still be noted in the same store.

    All ranks name their life by it: torchrun restarts all workers together, and its count of restarts is no
    help, as two of its agents may count differently.
    """
    meeting = Meeting(place, prefix())

    def find() -> bytes | None:
        holder = meeting.holder(0)
        return holder.encode() if holder and not Process.decode(holder).has_ended() else None

    return meeting.wait(find, lambda: [0]).decode()


def settle(descriptor: bytes, meeting: Meeting, options: Options) -> Terms:
    """Exchanges descriptors for terms."""
    place = meeting.place
    mine = rank_terms(place.size, options, place.epoch)
    meeting.leave(
        f"descriptor/{place.rank}", json.dumps([base64.b85encode(descriptor).decode(), mine.encode()])
    )

    def missing() -> list[int]:
        absent = [rank for rank in range(place.size) if not meeting.has(f"descriptor/{rank}")]
        return absent or [0]

    if place.rank != 0:
        settled = meeting.take("terms", missing)
        with reading(place.store, "what rank 0 has settled"):
            terms = Terms.decode(settled)
            terms = replace(terms, conflict=terms.conflict or _own_conflict(terms, place, mine))
        if not terms.conflict and terms.descriptors[place.rank] != descriptor:
            # Of the life before, whose rank 0 cannot be seen from here.
            meeting.wait(lambda: None, lambda: [0])
        return terms
    descriptors, wrong = [], ""
    for rank in range(place.size):
        entry = meeting.take(f"descriptor/{rank}", missing)
        with reading(place.store, f"what rank {rank} says of itself"):
            coded, said = json.loads(limited(entry, _ENTRY_BYTES))
            descriptors.append(_descriptor(coded))
            # At once: a rank that was told of fewer may be the last one there is.
            wrong = conflict(mine, rank, RankTerms.decode(said), time.time())
        if wrong:
            break
    terms = replace(
        _choose(descriptors, place, options), first=replace(mine, clock_s=_clock_s(options)).encode()
    )
    terms = replace(terms, conflict=wrong or terms.conflict)
    meeting.leave("terms", terms.encode())
    return terms


def _descriptor(coded: str) -> bytes:
    """A peer descriptor, with all that is read of it here. The engine reads the rest."""
    known = json.loads(found := base64.b85decode(coded))
    Process.of_descriptor(found)
    text(known["network"])
    if not isinstance(known["wire_only"], bool) or not isinstance(known["tcp"], str | None):
        raise ValueError("no descriptor of a process")
    return found


def rank_terms(size: int, options: Options, epoch: int | None = None) -> RankTerms:
    """What this process says of itself before it makes a group of `size`."""
    return RankTerms(_version(), size, socket.gethostname(), _clock_s(options), options.terms(), epoch)


def settings() -> list[str]:
    """What all ranks of a group must have alike, as the environment has it, a line each."""
    given = Options.resolve(None).terms()
    return [f"tweed {_version()}", *(f"{name} {value}" for name, value in given.items())]


def _clock_s(options: Options) -> float:
    """This process's clock; where clocks are not compared the first second, which is ahead of nobody's."""
    return 0.0 if options.compare_clocks is False else time.time()


def _own_conflict(terms: Terms, place: Place, mine: RankTerms) -> str:
    """What rank 0 could not see: that this rank is none of its group, or that this clock is behind."""
    first = RankTerms.decode(terms.first)
    if len(terms.descriptors) != place.size:
        return conflict(first, place.rank, mine, first.clock_s)
    return ahead(0, first, place.rank, mine.host, time.time())


def _claim(place: Place) -> None:
    """The first process to name a rank has it. Two of them would wait for the missing one, for ever."""
    if not 0 <= place.rank < place.size:
        raise UsageError(f"there is no rank {place.rank} in a group of {place.size}: they count from 0")
    me, key, known = Process.here(), f"{prefix()}/holder/{place.rank}", ""
    while (found := place.store.compare_set(key, known, me.encode()).decode()) != me.encode():
        holder = Process.decode(found)
        if not _is_void(holder):
            raise UsageError(
                f"rank {place.rank} is taken: {holder} has it, and this is {me}. Give every process a RANK "
                "of its own; a job that is started again needs a fresh store"
            )
        known = found


def _is_void(holder: Process) -> bool:
    """Whether that process cannot have its rank any more.

    torchrun gives a rank to one process at a time, and to a new one after a restart, so there a holder that
    cannot be seen from here has ended too.
    """
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    return holder.has_ended() or (under_torchrun and not holder.is_visible())


def group_hash(name: str, nonce: bytes) -> int:
    """64 bits that no other group of any run has; messages name it by some of them, and by its epoch
    (crates/proto/src/engine/group_number.rs)."""
    return int.from_bytes(hashlib.blake2b(name.encode() + b"/" + nonce, digest_size=8).digest())


def one_host(descriptors: Sequence[bytes]) -> bool:
    """All members share memory: one machine, one network namespace, and none of them refuses."""
    known = [json.loads(descriptor) for descriptor in descriptors]
    places = {(descriptor["boot"], descriptor["network"]) for descriptor in known}
    return len(places) == 1 and not any(descriptor["wire_only"] for descriptor in known)


def unreached(descriptors: Sequence[bytes], missing: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """Pairs of ranks that need a third one to reach each other, the lower rank first. Pure.

    Args:
      descriptors: by rank; two that only dial out, and share no memory, are such a pair.
      missing: pairs between which nothing crosses besides.
    """
    known = [json.loads(descriptor) for descriptor in descriptors]

    def place(rank: int) -> object:
        of = known[rank]
        return rank if of["wire_only"] else (of["boot"], of["network"])

    found = {(min(pair), max(pair)) for pair in missing}
    shut = [rank for rank, of in enumerate(known) if of["tcp"] is None]
    found |= {(a, b) for a, b in itertools.combinations(shut, 2)}
    return sorted((a, b) for a, b in found if place(a) != place(b))


def _choose(descriptors: Sequence[bytes], place: Place, options: Options) -> Terms:
    links = ONE_HOST if one_host(descriptors) else MEASURED.links(descriptors) or NETWORK
    taken, conflict = _stored(len(descriptors), place, options)
    missing = unreached(descriptors, place.missing)
    chosen = taken or plan(len(descriptors), links, options.overrules(), missing)
    assumed = taken is None and links is NETWORK
    return Terms(
        group_hash(place.name, secrets.token_bytes(16)), list(descriptors), chosen, assumed, conflict
    )


def _stored(ranks: int, place: Place, options: Options) -> tuple[Plan | None, str]:
    """The plan that was given, if it is for so many ranks; and what is wrong with it, for all to hear."""
    try:
        found = options.stored_plan()
        if found is not None:
            found.rows()
    except TweedError as error:
        return None, f"rank 0 was given a plan that cannot be used: {error}"
    if found is None or found.ranks == ranks:
        return found, ""
    if not dist.is_initialized():  # the group of all ranks; others may well have other sizes
        warnings.warn(
            f"the plan that rank 0 was given is for {found.ranks} ranks, and group {place.name!r} has "
            f"{ranks}: it runs a plan of its own; `tweed plan` makes one for its network",
            stacklevel=2,
        )
    return None, ""


def _version() -> str:
    return distribution.version() or "of no version"
